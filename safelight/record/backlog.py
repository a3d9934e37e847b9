"""What the training handed over and the writer has not looked at yet."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

Window = tuple[np.ndarray, tuple[str, ...], np.ndarray, np.ndarray | None]  # steps, names, numbers, which exist


def take(backlog: deque[Any]) -> list[Any]:
    """All that is there now; what the training adds meanwhile stays."""
    return [backlog.popleft() for _ in range(len(backlog))]


def gather(readings: list[tuple[int, dict[str, float]]]) -> list[Window]:
    """Steps with the same signals as one window each."""
    alike: dict[tuple[str, ...], list[tuple[int, dict[str, float]]]] = {}
    for reading in readings:
        alike.setdefault(tuple(reading[1]), []).append(reading)
    return [window for names, group in alike.items() if names for window in _windows(names, group)]


def _windows(names: tuple[str, ...], group: list[tuple[int, dict[str, float]]]) -> list[Window]:
    try:
        with np.errstate(over="ignore"):
            steps = np.array([step for step, _ in group], np.int64)
            return [(steps, names, np.array([list(numbers.values()) for _, numbers in group], np.float32), None)]
    except (TypeError, ValueError, OverflowError):  # one that is no number must not take the others with it
        return [(np.array([s]), (n,), np.array([[v]]), None) for s, numbers in group for n, v in numbers.items()]
