from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safelight.record.sinks.batch import Event, Histogram, LoggedPicture, ReadingTable, SinkBatch
from safelight.record.sinks.jsonl import WHOLE_LINE, JsonLines


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Every whole line, also while it is written."""
    return [json.loads(each) for each in path.read_bytes().splitlines(keepends=True) if WHOLE_LINE.fullmatch(each)]


def window(steps: range, offset: float = 0.0) -> SinkBatch:
    numbers = np.array([[step / 4 + offset, 0.1] for step in steps], np.float32)
    return SinkBatch(readings=(ReadingTable(np.array(steps, np.int64), ("loss/mean", "optimizer/lr"), numbers),))


def write(folder: Path, *batches: SinkBatch, from_step: int = 0) -> Path:
    sink = JsonLines(folder, from_step=from_step)
    for batch in batches:
        sink.write(batch)
    sink.close()
    return folder / "metrics.jsonl"


def test_one_object_per_step(tmp_path: Path) -> None:
    path = write(tmp_path, window(range(1, 4)))
    assert path.read_text().splitlines()[0] == '{"step": 1, "loss/mean": 0.25, "optimizer/lr": 0.1}'
    assert [row["step"] for row in read_lines(path)] == [1, 2, 3]


def test_numbers_come_back_as_they_were(tmp_path: Path) -> None:
    numbers = np.float32([1e-45, 3.4e38, 1 / 3, -0.0, 1e-7, 16777217, 2.5e-5])
    names = tuple("abcdefg")
    path = write(tmp_path, SinkBatch(readings=(ReadingTable(np.array([1]), names, numbers[None]),)))
    [row] = read_lines(path)
    assert np.array_equal(np.float32([row[name] for name in names]), numbers)


def test_what_is_not_finite_is_null_and_named(tmp_path: Path) -> None:
    values = np.array([[math.nan, math.inf, 1.0], [1.0, 1.0, -math.inf], [1.0, 1.0, 1.0]], np.float32)
    path = write(tmp_path, SinkBatch(readings=(ReadingTable(np.arange(3), ("a", "b", "c"), values),)))
    rows = [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]
    assert rows[0] == {"step": 0, "a": None, "b": None, "c": 1.0, "nonfinite": ["a", "b"]}
    assert rows[1]["nonfinite"] == ["c"]
    assert "nonfinite" not in rows[2]


def test_pictures_histograms_and_events_have_lines_of_their_own(tmp_path: Path) -> None:
    batch = SinkBatch(
        pictures=(
            LoggedPicture(5, "samples", tmp_path / "samples" / "a.png"),
            LoggedPicture(5, "other", Path("/elsewhere/b.png")),
        ),
        histograms=(Histogram(6, "weights", np.array([1, 2]), np.array([0.0, 0.5, 1.0])),),
        events=(Event(7, "refused", {"size": math.nan, "where": Path("x"), "line": "a\nb"}),),
    )
    rows = [json.loads(line, parse_constant=pytest.fail) for line in write(tmp_path, batch).read_text().splitlines()]
    assert rows == [
        {"step": 5, "picture": "samples", "path": "samples/a.png"},
        {"step": 5, "picture": "other", "path": "/elsewhere/b.png"},
        {"step": 6, "histogram": "weights", "counts": [1, 2], "edges": [0.0, 0.5, 1.0]},
        {"step": 7, "event": "refused", "facts": {"size": "NaN", "where": "x", "line": "a\nb"}},
    ]


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path, from_step=0)
    for start in range(0, 640, 64):
        sink.write(window(range(start, start + 64)))
        assert [row["step"] for row in read_lines(tmp_path / "metrics.jsonl")] == list(range(start + 64))
    sink.close()


@pytest.mark.parametrize("at", [0, 1, 63, 100, 200, 500])
def test_resume_cuts_what_is_trained_again(tmp_path: Path, at: int) -> None:
    path = write(tmp_path, window(range(200)))
    write(tmp_path, window(range(at, at + 20), offset=1000), from_step=at)
    found = [(row["step"], row["loss/mean"]) for row in read_lines(path)]
    kept = [(step, step / 4) for step in range(min(at, 200))]
    assert found == kept + [(step, step / 4 + 1000) for step in range(at, at + 20)]
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"], "no unfinished file stays"


def test_without_cutting_steps_would_stand_twice(tmp_path: Path) -> None:
    """Negative control."""
    path = write(tmp_path, window(range(20)))
    write(tmp_path, window(range(10, 20)), from_step=20)
    assert len(read_lines(path)) == 30


def test_a_late_line_of_an_earlier_step_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path, window(range(10)), SinkBatch(events=(Event(3, "late", {}),)))
    write(tmp_path, from_step=5)
    assert [row["step"] for row in read_lines(path)] == [0, 1, 2, 3, 4, 3]


@pytest.mark.parametrize("tail", [b'{"step": 10, "loss/me', b'{"st', b"{", b"\0" * 50, b'{"step": 1', b"\xff\n", b"\n"])
def test_a_line_that_a_kill_broke_is_mended(tmp_path: Path, tail: bytes) -> None:
    path = write(tmp_path, window(range(10)))
    path.write_bytes(path.read_bytes() + tail)
    assert len(read_lines(path)) == 10, "a reader is not disturbed by it either"
    write(tmp_path, window(range(10, 12)), from_step=10)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(12))


@pytest.mark.parametrize("step", ["rename", "sync"])
def test_a_cut_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    from safelight.files import DISK

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = write(tmp_path, window(range(10)))
    before = path.read_bytes()
    monkeypatch.setattr(type(DISK), step, full)
    with pytest.raises(OSError, match="No space"):
        JsonLines(tmp_path, from_step=5)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]
