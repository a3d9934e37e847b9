"""The bench of the record: what it measures is there, and it can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import measure, record
from bench.record import QUICK, SIGNALS, Kills
from safelight.record.history import open_history


def test_10_kills_spoil_and_double_nothing(tmp_path: Path) -> None:
    """What they cost in seconds depends on the machine: the bench judges that."""
    found = record.kill_writers(tmp_path, 10, seed=2)
    assert found.wrong == []
    assert found.kills == 10
    assert found.doubled == 0
    assert found.steps > 1000


@pytest.mark.parametrize(
    ("sittings", "wrong"),
    [([1, 1, 2, 2], 0), ([1, 1, 1], 0), ([1, 1], 0), ([1, 2, 2, 2], 1), ([1, 1, 1, 2], 1), ([], 1)],
)
def test_a_record_that_is_not_as_it_was_is_found_out(tmp_path: Path, sittings: list[int], wrong: int) -> None:
    """Sitting 1 left three steps; sitting 2 began at step 2."""
    path = tmp_path / "record.sqlite"
    kept = record.RecordWriter(path, from_step=0, say=pytest.fail)
    for step, sitting in enumerate(sittings):
        kept.add(step, {"step": step, "sitting": sitting})
    kept.close()
    found = Kills()
    assert record.judge(found, path, [1, 1, 1], 2, 2, np.array([10.0, 11.0, 12.0]), 12.5) == sittings
    assert len(found.wrong) == wrong
    if sittings == [1, 1, 2, 2]:
        assert found.lost == [0.5]


def test_steps_that_stand_twice_are_found_out(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    kept = record.RecordWriter(path, from_step=0, say=pytest.fail)
    for step in (0, 1, 1, 2):
        kept.add(step, {"step": step, "sitting": 1})
    kept.close()
    found = Kills()
    record.judge(found, path, [], 0, 1, np.array([]), 0)
    assert found.doubled == 1


def test_what_is_hidden_is_found_out(tmp_path: Path) -> None:
    path, sizes = tmp_path / "record.sqlite", replace(QUICK, steps=2000, injected=20)
    injected, _ = record.fill(path, sizes)
    with open_history(path) as history:
        assert [record.survivors(history, injected, pixels) for pixels in (4, 2000)] == [(20, 20)] * 2
        elsewhere = record.Injected([(SIGNALS[0], 5)], [(SIGNALS[0], 5)])
        assert record.survivors(history, elsewhere, 2000) == (0, 0)


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    monkeypatch.setattr(record, "QUICK", replace(QUICK, steps=2000, timed=48, injected=10, kills=0))
    monkeypatch.setattr(record, "WANTED_MICROSECONDS", float("inf"))
    assert record.main(["--quick"]) == 0
    text = (tmp_path / "record.md").read_text()
    assert "training thread, 50 signals" in text
    assert "10 and 10 | 10 and 10" in text
    monkeypatch.setattr(record, "WANTED_MICROSECONDS", 0.0)
    assert record.main(["--quick"]) == 1
