"""Readings that the training handed over, as tables of steps by signals."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class ReadingTable(NamedTuple):
    steps: NDArray[np.int64]
    names: tuple[str, ...]
    values: NDArray[np.float32]  # [steps, names]


def take(backlog: deque[Any]) -> list[Any]:
    """All that is there now; what the training adds meanwhile stays."""
    return [backlog.popleft() for _ in range(len(backlog))]


def group_by_signals(readings: list[tuple[int, dict[str, float]]]) -> list[ReadingTable]:
    """Steps with the same signals as one table each."""
    alike: dict[tuple[str, ...], list[tuple[int, dict[str, float]]]] = {}
    for reading in readings:
        alike.setdefault(tuple(reading[1]), []).append(reading)
    return [table for names, group in alike.items() if names for table in _tables(names, group)]


def _tables(names: tuple[str, ...], group: list[tuple[int, dict[str, float]]]) -> list[ReadingTable]:
    try:
        with np.errstate(over="ignore"):
            steps = np.array([step for step, _ in group], np.int64)
            return [ReadingTable(steps, names, np.array([list(row.values()) for _, row in group], np.float32))]
    except (TypeError, ValueError, OverflowError):  # one that is not a number must not take the others with it
        return [ReadingTable(np.array([s]), (n,), np.array([[v]])) for s, row in group for n, v in row.items()]
