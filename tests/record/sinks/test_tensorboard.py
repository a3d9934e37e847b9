"""Read back with TensorBoard's own reader."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from safelight.record.sinks.batch import Event, Histogram, LoggedPicture, ReadingTable, SinkBatch
from safelight.record.sinks.tensorboard import TensorBoard, new_file

pytest.importorskip("tensorboard", reason="needs tensorboard: pip install 'safelight[tensorboard]'")


def window(steps: range, offset: float = 0.0) -> SinkBatch:
    numbers = np.array([[step / 4 + offset, 0.5] for step in steps], np.float32)
    return SinkBatch(readings=(ReadingTable(np.array(steps, np.int64), ("loss/mean", "optimizer/lr"), numbers),))


def write(folder: Path, *batches: SinkBatch, from_step: int = 0) -> None:
    sink = TensorBoard(folder, config={"train": {"steps": 10}}, from_step=from_step)
    try:
        for batch in batches:
            sink.write(batch)
    finally:
        sink.close()


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    everything = {"scalars": 0, "images": 0, "histograms": 0, "tensors": 0}
    found = EventAccumulator(str(folder / "tensorboard"), size_guidance=everything)
    found.Reload()
    return found


def scalars(folder: Path, tag: str = "loss/mean") -> list[tuple[int, float]]:
    return [(each.step, each.value) for each in read(folder).Scalars(tag)]


def test_every_value_has_its_own_step(tmp_path: Path) -> None:
    write(tmp_path, window(range(64)), window(range(64, 100)))
    assert scalars(tmp_path) == [(step, step / 4) for step in range(100)]
    assert scalars(tmp_path, "optimizer/lr") == [(step, 0.5) for step in range(100)]


def test_what_is_not_finite_is_kept(tmp_path: Path) -> None:
    numbers = np.array([[1.0], [math.nan], [math.inf], [-math.inf]], np.float32)
    write(tmp_path, SinkBatch(readings=(ReadingTable(np.arange(4), ("loss",), numbers),)))
    assert np.array_equal([number for _, number in scalars(tmp_path, "loss")], numbers[:, 0], equal_nan=True)


def test_what_was_not_measured_is_left_out(tmp_path: Path) -> None:
    first = ReadingTable(np.array([7]), ("a",), np.zeros((1, 1), np.float32))
    second = ReadingTable(np.array([8]), ("a", "b"), np.zeros((1, 2), np.float32))
    write(tmp_path, SinkBatch(readings=(first, second)))
    assert [step for step, _ in scalars(tmp_path, "a")] == [7, 8]
    assert [step for step, _ in scalars(tmp_path, "b")] == [8]


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("LA", 2), ("RGB", 3), ("RGBA", 4)])
def test_a_picture_is_there_byte_for_byte(tmp_path: Path, mode: str, channels: int) -> None:
    path = tmp_path / "grid.png"
    Image.new(mode, (30, 20)).save(path)
    write(tmp_path, SinkBatch(pictures=(LoggedPicture(5, "samples", path),)))
    [image] = read(tmp_path).Images("picture/samples")
    assert (image.step, image.width, image.height) == (5, 30, 20)
    assert image.encoded_image_string == path.read_bytes()
    raw = [v.image for e in raw_events(tmp_path) for v in e.summary.value if v.tag == "picture/samples"]
    assert [each.colorspace for each in raw] == [channels]


def raw_events(folder: Path) -> list[Any]:
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    return [
        event
        for path in sorted((folder / "tensorboard").iterdir())
        for event in LegacyEventFileLoader(str(path)).Load()
    ]


def test_no_picture_but_a_png_is_taken(tmp_path: Path) -> None:
    (tmp_path / "grid.png").write_bytes(b"JFIF")
    with pytest.raises(ValueError, match="must be a PNG"):
        write(tmp_path, SinkBatch(pictures=(LoggedPicture(5, "samples", tmp_path / "grid.png"),)))


def test_a_histogram_comes_back(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(2.0, 0.5, 10_000)
    counts, edges = np.histogram(numbers, bins=64)
    write(tmp_path, SinkBatch(histograms=(Histogram(9, "weights/all", counts, edges),)))
    [found] = read(tmp_path).Histograms("weights/all")
    value = found.histogram_value
    assert found.step == 9
    assert value.bucket == counts.tolist()
    assert value.bucket_limit == edges[1:].tolist()
    assert (value.min, value.max, value.num) == (edges[0], edges[-1], 10_000)
    assert value.sum / value.num == pytest.approx(numbers.mean(), rel=1e-2)
    assert value.sum_squares / value.num == pytest.approx((numbers**2).mean(), rel=1e-2)


def test_events_and_settings_are_texts(tmp_path: Path) -> None:
    write(tmp_path, SinkBatch(events=(Event(4, "refused", {"size": math.nan, "samples": [1]}),)))
    found = read(tmp_path)
    [event] = found.Tensors("event/refused")
    assert event.step == 4
    assert json.loads(event.tensor_proto.string_val[0]) == {"size": "NaN", "samples": [1]}
    [config] = found.Tensors("config")
    assert json.loads(config.tensor_proto.string_val[0]) == {"train": {"steps": 10}}
    assert found.SummaryMetadata("config").plugin_data.plugin_name == "text"


@pytest.mark.parametrize("at", [0, 1, 100, 150, 300])
def test_resume_does_not_draw_a_step_twice(tmp_path: Path, at: int) -> None:
    write(tmp_path, window(range(200)))
    write(tmp_path, window(range(at, at + 20), offset=1000), from_step=at)
    kept = [(step, step / 4) for step in range(min(at, 200))]
    assert scalars(tmp_path) == kept + [(step, step / 4 + 1000) for step in range(at, at + 20)]


def test_without_a_resume_step_they_would_stand_twice(tmp_path: Path) -> None:
    """Negative control: a resume that claims to start after the end purges nothing."""
    write(tmp_path, window(range(20)))
    write(tmp_path, window(range(10, 20)), from_step=20)
    assert len(scalars(tmp_path)) == 30


def test_many_resumes_and_a_file_that_a_kill_broke(tmp_path: Path) -> None:
    """Fourteen starts within a second: the order of the files is theirs, not that of the clock."""
    for start in range(0, 130, 10):
        write(tmp_path, window(range(start, start + 15)), from_step=start)
        newest = max((tmp_path / "tensorboard").iterdir())
        newest.write_bytes(newest.read_bytes()[:-7])
    write(tmp_path, window(range(130, 131)), from_step=130)
    assert scalars(tmp_path) == [(step, step / 4) for step in range(131)]


def test_names_rise_also_when_the_clock_runs_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "events.out.tfevents.4000000000.elsewhere.17.0").touch()
    (tmp_path / "events.out.tfevents.odd").touch()
    assert new_file(tmp_path).name == "events.out.tfevents.4000000001.safelight"


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path, config={}, from_step=0)
    for start in range(0, 192, 64):
        sink.write(window(range(start, start + 64)))
        assert len(scalars(tmp_path)) == start + 64
    sink.close()


def test_neither_tensorflow_nor_torch_is_imported(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from safelight.record.sinks.tensorboard import TensorBoard\n"
        "assert 'tensorboard' not in sys.modules\n"
        f"TensorBoard(Path({str(tmp_path)!r}), config={{}}, from_step=0).close()\n"
        "print(sorted({'torch', 'tensorflow', 'grpc', 'PIL'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
