"""What a logger is given, a window of the run at a time, and what it must be able to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from safelight.record.backlog import ReadingTable


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
class SinkBatch:
    """What happened in a window. It crosses threads: it must not be changed after it was passed on."""

    readings: tuple[ReadingTable, ...] = ()
    pictures: tuple[LoggedPicture, ...] = ()
    histograms: tuple[Histogram, ...] = ()
    events: tuple[Event, ...] = ()


class Sink(Protocol):
    """A logger. It may be slow, raise or hang: it has a thread of its own, and the run goes on without it."""

    def write(self, batch: SinkBatch) -> None:
        """Everything of one window; readable by others when this returns, as far as the logger can."""
        ...

    def close(self) -> None:
        """Called once, after the last batch."""
        ...


class NotWanted(Exception):
    """The user switched this logger off by a variable of its own: no fault, but worth a line."""


def rows_of(batch: SinkBatch) -> dict[int, dict[str, float]]:
    """The readings by step, in rising order; several tables may have the same step."""
    rows: dict[int, dict[str, float]] = {}
    for steps, names, values in batch.readings:
        for step, numbers in zip(steps.tolist(), values.tolist(), strict=True):
            rows.setdefault(step, {}).update(zip(names, numbers, strict=True))
    return {step: rows[step] for step in sorted(rows) if rows[step]}
