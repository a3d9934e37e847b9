"""Readings as loggers get them: one row per step."""

from __future__ import annotations

import numpy as np

from safelight.record.backlog import ReadingTable
from safelight.record.sinks.batch import SinkBatch, rows_of


def test_tables_are_put_together_by_step() -> None:
    nan = float("nan")
    first = ReadingTable(np.array([3, 4]), ("a", "b"), np.array([[1, 2], [nan, 4]], np.float32))
    second = ReadingTable(np.array([2]), ("c",), np.array([[5]], np.float32))
    empty = ReadingTable(np.array([9]), (), np.zeros((1, 0), np.float32))
    third = ReadingTable(np.array([3]), ("c",), np.array([[7]], np.float32))
    rows = rows_of(SinkBatch(readings=(first, second, third, empty)))
    assert list(rows) == [2, 3, 4], "rising, and without a step of which nothing was measured"
    assert rows[2] == {"c": 5}
    assert rows[3] == {"a": 1, "b": 2, "c": 7}
    assert rows[4]["b"] == 4
    assert rows[4]["a"] != rows[4]["a"]
