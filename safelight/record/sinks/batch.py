"""What a logger is given, a window of the run at a time, and what it must be able to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class ReadingTable(NamedTuple):
    """A table of steps by signals."""

    steps: NDArray[np.int64]
    names: tuple[str, ...]
    values: NDArray[np.float32]  # [steps, names]
    present: NDArray[np.bool_] | None = None  # [steps, names]; None: all of them were measured


class LoggedPicture(NamedTuple):
    step: int
    kind: str
    path: Path  # a finished PNG


class Histogram(NamedTuple):
    step: int
    name: str
    counts: NDArray[Any]  # [n]
    edges: NDArray[Any]  # [n + 1], rising


class Event(NamedTuple):
    step: int
    kind: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """What happened in a window. It crosses threads: it must not be changed after it was passed on."""

    readings: tuple[ReadingTable, ...] = ()
    pictures: tuple[LoggedPicture, ...] = ()
    histograms: tuple[Histogram, ...] = ()
    events: tuple[Event, ...] = ()


class Sink(Protocol):
    """A logger. It may be slow, raise or hang: it has a thread of its own, and the run goes on without it."""

    def write(self, batch: Batch) -> None:
        """Everything of one window; readable by others when this returns, as far as the logger can."""
        ...

    def close(self) -> None:
        """Called once, after the last batch."""
        ...


class NotWanted(Exception):
    """The user switched this logger off by a variable of its own: no fault, but worth a line."""


def rows_of(batch: Batch) -> dict[int, dict[str, float]]:
    """The readings by step, in rising order; several tables may speak of the same step."""
    rows: dict[int, dict[str, float]] = {}
    for steps, names, values, present in batch.readings:
        there = np.ones(values.shape, dtype=bool) if present is None else present
        for step, numbers, shown in zip(steps.tolist(), values.tolist(), there.tolist(), strict=True):
            row = rows.setdefault(step, {})
            row.update((name, number) for name, number, is_shown in zip(names, numbers, shown, strict=True) if is_shown)
    return {step: rows[step] for step in sorted(rows) if rows[step]}
