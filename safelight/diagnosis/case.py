"""What a rule is given: the history of a run, asked in the words that rules use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from safelight.config import Config
from safelight.diagnosis.finding import Evidence
from safelight.record.notes import Note
from safelight.vocabulary import CHECK, LOSS

NOTHING = 1e-6  # change of an output over its length; sound networks have 0.01 to 0.1 after four updates
AWAKE = 16  # updates after which zero layers on the way have moved
LEARNS = 0.95  # of the error of a network that always answers 0
Test = Callable[[np.ndarray], np.ndarray]


class Readings(Protocol):
    """A record, or in tests a few lists."""

    def signals(self) -> list[str]: ...

    def raw(self, signal: str, first: int | None = None, last: int | None = None) -> tuple[np.ndarray, np.ndarray]: ...

    def events(self, kind: str | None = None) -> list[Note]: ...


class Remembered:
    """Readings and events that are not on any disk."""

    def __init__(
        self, series: Mapping[str, tuple[Any, Any]], events: Sequence[tuple[int, str, dict[str, Any]]] = ()
    ) -> None:
        self._series, self._events = series, events

    def signals(self) -> list[str]:
        return sorted(self._series)

    def raw(self, signal: str, first: int | None = None, last: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        steps, numbers = self._series.get(signal, ([], []))
        return np.asarray(steps, np.int64), np.asarray(numbers, np.float32)

    def events(self, kind: str | None = None) -> list[Note]:
        return [Note(step, 0.0, name, facts) for step, name, facts in self._events if kind in (None, name)]


@dataclass(frozen=True, slots=True)
class Spell:
    """A time in which something was so at every look."""

    first: int
    last: int
    looks: int
    over: int | None
    """The step of the look at which it was no longer so."""


@dataclass(frozen=True)
class Case:
    """A run as far as it is known; a loop that is not ours has no config."""

    readings: Readings
    config: Config | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    _known: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False)

    def series(self, signal: str) -> tuple[np.ndarray, np.ndarray]:
        """(steps, numbers), whole; empty where it was not recorded."""
        if signal not in self._known:
            self._known[signal] = self.readings.raw(signal)
        return self._known[signal]

    def parts(self, family: str) -> list[str]:
        """The parts of a network that a family of signals tells of."""
        start = f"{family}/"
        return [name.removeprefix(start) for name in self.readings.signals() if name.startswith(start)]

    def events(self, kind: str) -> Sequence[Note]:
        return self.readings.events(kind)

    # --- answers of probes ----------------------------------------------------------------------------------------

    def check(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        return self.series(f"{CHECK.name}/{name}")

    def newest(self, name: str, otherwise: float = math.nan) -> float:
        """The last answer of a probe."""
        numbers = self.check(name)[1]
        return float(numbers[-1]) if len(numbers) else otherwise

    def asked(self, name: str) -> int:
        """The step of the last answer."""
        steps = self.check(name)[0]
        return int(steps[-1]) if len(steps) else 0

    def spell(self, name: str, test: Test, least: int = 1) -> Spell | None:
        """The last time in which at least `least` answers in a row passed the test."""
        steps, numbers = self.check(name)
        return spell_of(steps, test(numbers), least)

    def silent(self, first: str, later: str) -> Spell | None:
        """Where the first answer of one probe is next to nothing, or the last ones of another are."""
        steps, numbers = self.check(first)
        if len(numbers) and numbers[-1] < NOTHING:
            return Spell(int(steps[-1]), int(steps[-1]), 1, None)
        # A network that has collapsed answers nothing to anything: that is another disease.
        if not self._learns():
            return None
        steps, numbers = self.check(later)
        late = steps >= AWAKE
        return spell_of(steps[late], numbers[late] < NOTHING)

    def _learns(self) -> bool:
        """Whether the network is better than one that always answers 0; or, where nobody knows, than it was."""
        if len(self.check("loss/error")[0]):
            return self.newest("loss/error") < LEARNS * self.newest("loss/zero")
        losses = self.series(LOSS.name)[1]
        return len(losses) > 16 and bool(np.median(losses[-8:]) < LEARNS * np.median(losses[:8]))

    def evidence(self, name: str, usual: str | None = None, step: int | None = None) -> Evidence:
        """An answer as it stands in a finding: the last one, or that of a step."""
        steps, numbers = self.check(name)
        place = len(numbers) - 1 if step is None else int(np.searchsorted(steps, step))
        place = min(max(place, 0), len(numbers) - 1)
        value = float(numbers[place]) if len(numbers) else math.nan
        where = (int(steps[place]), int(steps[place])) if len(numbers) else None
        return Evidence(f"{CHECK.name}/{name}", value, where, usual)


def spell_of(steps: np.ndarray, hits: np.ndarray, least: int = 1) -> Spell | None:
    """The last time in which at least `least` looks in a row were hits."""
    edges = np.diff(np.concatenate([[0], np.asarray(hits, bool)[: len(steps)].astype(np.int8), [0]]))
    begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    long = np.flatnonzero(ends - begins >= least)
    if not len(long):
        return None
    begin, end = int(begins[long[-1]]), int(ends[long[-1]])
    over = int(steps[end]) if end < len(steps) else None
    return Spell(int(steps[begin]), int(steps[end - 1]), end - begin, over)
