"""Rows of 64 steps: filled, cut and filled again."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from records import record, rows
from series import check, write

from safelight.record.database import open_database
from safelight.record.history import open_history
from safelight.record.reading import read_signal


@pytest.mark.parametrize("reopened", [False, True])
def test_a_number_that_comes_late_leaves_no_second_row(tmp_path: Path, reopened: bool) -> None:
    """The row begins at another step then: the one that began later is no longer true."""
    path = tmp_path / "record.sqlite"
    kept = record(path)
    for step in (70, 75, 80):
        kept.add(step, {"loss": float(step)})
    kept.flush(wait=True)
    if reopened:
        kept.close()
        kept = record(path, from_step=81)
    kept.add(66, {"loss": 66.0})
    kept.flush(wait=True)
    kept.add(81, {"loss": 81.0})
    kept.close()
    assert [row[:3] for row in rows(path)] == [(66, 81, 5)]
    assert read_signal(path, "loss") == [(step, float(step)) for step in (66, 70, 75, 80, 81)]


@pytest.mark.parametrize(("start", "stop"), [(0, 640), (1, 641), (63, 65), (64, 128), (5, 6)])
def test_every_64_steps_are_one_row(tmp_path: Path, start: int, stop: int) -> None:
    path = tmp_path / "record.sqlite"
    kept = record(path)
    for step in range(start, stop):
        kept.add(step, {"loss": 1.0})
        if step % 7 == 0:
            kept.flush(wait=True)
    kept.close()
    cells = range(start // 64, (stop - 1) // 64 + 1)
    assert [row[:3] for row in rows(path)] == [
        (first := max(start, 64 * cell), last := min(stop - 1, 64 * cell + 63), last - first + 1) for cell in cells
    ]


def test_steps_need_not_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    kept = record(path)
    for step in (3, 7, 7, 20, 21):
        kept.add(step, {"probe": float(step)})
    kept.close()
    assert read_signal(path, "probe") == [(3, 3.0), (7, 7.0), (7, 7.0), (20, 20.0), (21, 21.0)]


def test_what_is_not_finite_is_kept_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    kept = record(path)
    numbers = [1.0, math.nan, 3.0, math.inf, -math.inf, 2.0, math.nan]
    for step, number in enumerate(numbers, start=1):
        kept.add(step, {"loss": number, "all": math.nan})
    kept.close()
    found = [number for _, number in read_signal(path, "loss")]
    assert np.array_equal(found, numbers, equal_nan=True)
    assert rows(path) == [(1, 7, 7, 4, 1.0, 3.0, 2.0, None)]
    assert rows(path, "all") == [(1, 7, 7, 7, None, None, None, None)]


def test_a_cut_window_is_summed_up_again(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    kept = record(path)
    for step in range(1, 11):
        kept.add(step, {"loss": math.nan if step > 5 else float(step)})
    kept.close()
    record(path, 4).close()
    assert rows(path) == [(1, 3, 3, 0, 1.0, 3.0, 2.0, 3.0)]


def test_only_spans_that_are_complete_are_summed_up(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    for steps, summed in ((256, 0), (257, 1), (1024, 3), (1025, 5), (1100, 5), (900, 3), (200, 0)):
        write(path, [(np.arange(steps), np.zeros(steps))])
        opened = sqlite3.connect(path)
        found = opened.execute("SELECT level, first, last, count FROM rollup ORDER BY level, first").fetchall()
        opened.close()
        whole = [(1, first, first + 255, 256) for first in range(0, steps - 256, 256)]
        assert found == whole + [(2, 0, 1023, 1024)] * (steps > 1024)
        assert len(found) == summed


def test_a_number_that_comes_late_finds_its_place(tmp_path: Path) -> None:
    """Also in rows and rollups that are complete, and before all others."""
    path = tmp_path / "record.sqlite"
    steps = np.arange(64, 3000)
    write(path, [(steps, np.ones(len(steps))), (np.array([1000, 3, 2999, 64]), np.array([np.nan, 9.0, 8.0, -5.0]))])
    steps = np.sort(np.append(steps, [1000, 3, 2999, 64]), kind="stable")
    numbers = np.ones(len(steps), np.float32)
    for step, number in ((3, 9), (64, -5), (1000, np.nan), (2999, 8)):
        numbers[np.searchsorted(steps, step, "right") - 1] = number
    with open_history(path) as history:
        for pixels in (1, 10, 100):
            check(history.zoom("a", pixels=pixels), steps, numbers)


def test_a_damaged_row_elsewhere_does_not_stop_the_record(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    write(path, [(np.arange(70), np.zeros(70))])
    opened = open_database(path)
    opened.execute("UPDATE reading SET numbers = x'00' WHERE first = 64")
    opened.close()
    write(path, [(np.arange(128, 400), np.ones(272))], from_step=128)
    with open_history(path) as history:
        assert history.raw("a", 128)[1].tolist() == [1.0] * 272
        assert history.zoom("a", pixels=1).count.sum() == 342
