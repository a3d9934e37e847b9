"""Steps have the times of their events; between these the measured speed shares the time out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from safelight.pages.data.clock import clock
from safelight.pages.data.run_state import read_status
from safelight.record.history import open_history
from safelight.record.store import RecordWriter
from safelight.run import RunFolder


def record(path: Path, *, events: dict[int, float], speeds: dict[int, float]) -> Path:
    writer = RecordWriter(path / "record.sqlite", from_step=0, say=print)
    for step, speed in speeds.items():
        writer.add(step, {"speed/images": speed})
    for step, moment in events.items():
        writer._note("event VALUES (NULL, ?, ?, ?, ?)", step, moment, "note", "{}")
    writer.close()
    return path


@pytest.mark.parametrize(
    ("events", "speeds", "batch_size", "at_half"),
    [
        ({0: 1000.0, 100: 1100.0}, {50: 8.0}, 8, 1050.0),  # the same speed all along
        ({0: 1000.0, 100: 1100.0}, {50: 8.0}, None, 1050.0),  # without a batch size, steps are equally long
        ({0: 1000.0, 100: 1100.0}, {0: 80.0, 49: 80.0, 50: 8.0, 100: 8.0}, 8, 1009.0),  # ten times slower later on
    ],
)
def test_times_rise_with_the_speed(tmp_path: Path, events, speeds, batch_size, at_half) -> None:
    with open_history(record(tmp_path, events=events, speeds=speeds) / "record.sqlite") as history:
        found = clock(history, None, batch_size)
    assert found is not None
    assert (found["step"][0], found["step"][-1]) == (0, 100)
    assert (found["time"][0], found["time"][-1]) == (1000.0, 1100.0)
    assert found["time"] == sorted(found["time"])
    assert found["time"][found["step"].index(50)] == pytest.approx(at_half, abs=2.0)


def test_the_heartbeat_is_a_time_too_and_without_any_there_is_no_clock(tmp_path: Path) -> None:
    record(tmp_path, events={}, speeds={5: 8.0})
    (tmp_path / "run.json").write_text(json.dumps({"status": "training", "step": 10, "heartbeat": 5000.0}))
    with open_history(tmp_path / "record.sqlite") as history:
        assert clock(history, None, 8) is None
        found = clock(history, read_status(RunFolder(tmp_path)), 8)
    assert found is not None
    assert found["time"][found["step"].index(9)] == 5000.0
