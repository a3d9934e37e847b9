"""What a rule is given: the readings and events of a run, by name, step and episode."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from safelight import checks
from safelight.checks import ProbeReading
from safelight.config import Config
from safelight.diagnosis.finding import Evidence
from safelight.diagnosis.spacing import Spacing
from safelight.record.history import RecordedEvent
from safelight.vocabulary import CHECK, LEARNING_RATE, LOSS, Signal

NO_RESPONSE = 1e-6  # change of an output over its length; healthy networks have 0.01 to 0.1 after four updates
FIRST_RESPONSIVE_UPDATE = 16  # updates after which zero layers have moved
LEARNING_ERROR_SHARE = 0.95  # of the error of a network that always predicts 0
# A loss that stays: 160 healthy runs were at 0.57 of their first loss or less after 100 steps, at 0.33 after 200.
MIN_STEPS_AT_RATE, MIN_STEPS = 200, 500  # steps at more than half of the highest rate; where the rate is not known
WHOLE_RATE_SHARE = 0.5
NOISE_MSE_RANGE = (0.9, 1.25)  # mean square of noise is 1; the first prediction may add a little
UNCHANGED_SHARE = 0.93  # of the first loss
SCATTER = 0.2  # deviation over the mean: 0.18 by the noise of one image of 64 values; 1 by timesteps, for one image
Predicate = Callable[[np.ndarray], np.ndarray]
ReadingName = ProbeReading | Signal | str
"""A declared check or signal; a plain string is one member of a family of signals, as it is recorded."""
HealthyRanges = Mapping[ReadingName, str | None]
"""Readings that are evidence, with what a healthy run has."""


def name_of(reading: ReadingName) -> str:
    """The name in the record."""
    if isinstance(reading, ProbeReading):
        return f"{CHECK.name}/{reading}"
    return reading.name if isinstance(reading, Signal) else reading


class ReadingSource(Protocol):
    """A record, or in tests a few lists."""

    def signals(self) -> list[str]: ...

    def raw(self, signal: str, first: int | None = None, last: int | None = None) -> tuple[np.ndarray, np.ndarray]: ...

    def events(self, kind: str | None = None) -> list[RecordedEvent]: ...


class InMemoryReadings:
    """Readings and events in memory."""

    def __init__(
        self, series: Mapping[str, tuple[Any, Any]], events: Sequence[tuple[int, str, dict[str, Any]]] = ()
    ) -> None:
        self._series, self._events = series, events

    def signals(self) -> list[str]:
        return sorted(self._series)

    def raw(self, signal: str, first: int | None = None, last: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        steps, numbers = self._series.get(signal, ([], []))
        with np.errstate(over="ignore"):  # what no float32 holds is infinite, as in a record
            return np.asarray(steps, np.int64), np.asarray(numbers, np.float32)

    def events(self, kind: str | None = None) -> list[RecordedEvent]:
        return [RecordedEvent(step, 0.0, name, facts) for step, name, facts in self._events if kind in (None, name)]


@dataclass(frozen=True, slots=True)
class Episode:
    """Consecutive readings that passed a test."""

    first: int
    last: int
    looks: int
    ended_at: int | None
    """The step of the next reading, which failed it."""


@dataclass(frozen=True)
class RunHistory:
    """A run as far as it is known; a user's loop has no config."""

    record: ReadingSource
    config: Config | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    spacing: Spacing | None = None
    """That of a log that we did not write; None if every step was recorded."""
    _known: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False)
    _names: list[str] = field(default_factory=list, repr=False)

    @property
    def planned_steps(self) -> int | None:
        """The length of the run; None if a loop did not pass it."""
        planned = self.status.get("steps") if self.config is None else self.config.train.steps
        return planned if isinstance(planned, int) else None

    def series(self, reading: ReadingName) -> tuple[np.ndarray, np.ndarray]:
        """(steps, numbers) of the whole run; empty if it was not recorded."""
        name = name_of(reading)
        if name not in self._known:
            self._known[name] = self.record.raw(name)
        return self._known[name]

    def steps(self, reading: ReadingName) -> np.ndarray:
        return self.series(reading)[0]

    def numbers(self, reading: ReadingName) -> np.ndarray:
        return self.series(reading)[1]

    def at(self, reading: ReadingName, steps: np.ndarray, otherwise: float = math.nan) -> np.ndarray:
        """The numbers of a reading at some steps; `otherwise` where it was not recorded."""
        known = dict(zip(*self.series(reading), strict=True))
        return np.array([known.get(step, otherwise) for step in steps], np.float32)

    def during(self, reading: ReadingName, episode: Episode) -> np.ndarray:
        """The numbers of an episode."""
        steps, numbers = self.series(reading)
        return numbers[(steps >= episode.first) & (steps <= episode.last)]

    def median(self, reading: ReadingName, episode: Episode) -> float:
        """The median of the numbers of an episode; NaN if it has none."""
        numbers = self.during(reading, episode)
        return float(np.median(numbers)) if len(numbers) else math.nan

    def parts(self, family: Signal) -> list[str]:
        """The parts of a network that a family of signals has."""
        start = f"{family.name}/"
        return [name.removeprefix(start) for name in self.signals() if name.startswith(start)]

    def signals(self) -> list[str]:
        """The names of all that was recorded."""
        if not self._names:
            self._names.extend(self.record.signals())
        return self._names

    def events(self, kind: str) -> Sequence[RecordedEvent]:
        return self.record.events(kind)

    def named_parameters(self, kind: str) -> str:
        """The first of the parameters that were recorded as `missing` in the optimizer, or as `frozen`."""
        names = [name for note in self.events("parameters") for name in note.facts.get(kind, [])]
        return ", ".join(names[:4]) + (" …" if len(names) > 4 else "")

    def latest(self, reading: ReadingName, otherwise: float = math.nan) -> float:
        """The last number."""
        numbers = self.numbers(reading)
        return float(numbers[-1]) if len(numbers) else otherwise

    def latest_step(self, reading: ReadingName) -> int:
        """The step of the last number."""
        steps = self.steps(reading)
        return int(steps[-1]) if len(steps) else 0

    def episode(self, reading: ReadingName, test: Predicate, least: int = 1) -> Episode | None:
        """The last time that at least `least` numbers in a row passed the test."""
        steps, numbers = self.series(reading)
        return episode_of(steps, test(numbers), least)

    def no_response(self, first: ProbeReading, later: ProbeReading) -> Episode | None:
        """Where the response that was measured at the start is 0, or the last ones of another check are."""
        steps, numbers = self.series(first)
        if len(numbers) and numbers[-1] < NO_RESPONSE:
            return Episode(int(steps[-1]), int(steps[-1]), 1, None)
        # A network that has collapsed responds to nothing: that is another cause.
        if not self._learns():
            return None
        steps, numbers = self.series(later)
        late = steps >= FIRST_RESPONSIVE_UPDATE
        return episode_of(steps[late], numbers[late] < NO_RESPONSE)

    def _learns(self) -> bool:
        """Whether the network is better than one that always predicts 0; without that error, better than at first."""
        if len(self.steps(checks.LOSS_MSE)):
            return self.latest(checks.LOSS_MSE) < LEARNING_ERROR_SHARE * self.latest(checks.LOSS_ZERO_MSE)
        losses = self.numbers(LOSS)
        return len(losses) > 16 and bool(np.median(losses[-8:]) < LEARNING_ERROR_SHARE * np.median(losses[:8]))

    def evidence(self, reading: ReadingName, healthy_range: str | None = None, step: int | None = None) -> Evidence:
        """The last number, or that of a step."""
        steps, numbers = self.series(reading)
        if not len(numbers):
            return Evidence(name_of(reading), math.nan, None, healthy_range)
        place = len(numbers) - 1 if step is None else min(int(np.searchsorted(steps, step)), len(numbers) - 1)
        return Evidence(name_of(reading), float(numbers[place]), (int(steps[place]), int(steps[place])), healthy_range)

    def evidence_of(self, ranges: HealthyRanges, step: int | None = None) -> tuple[Evidence, ...]:
        """That of several readings, each with what a healthy run has."""
        return tuple(self.evidence(reading, healthy_range, step) for reading, healthy_range in ranges.items())


@dataclass(frozen=True, slots=True)
class FlatLoss:
    """A loss that is where it began."""

    first: float
    latest: float
    steps: int
    """Since when it could have fallen."""
    last: int


def stays_at_first(run: RunHistory) -> FlatLoss | None:
    """A loss that is 1 from the first to the last step, and does not differ by timestep: that of a network which
    predicts no noise. Steps of a warm-up do not count."""
    steps, losses = run.series(LOSS)
    rate_steps, rates = run.series(LEARNING_RATE)
    whole = rate_steps[rates >= WHOLE_RATE_SHARE * rates.max()] if len(rates) else rate_steps
    count = int((steps >= whole[0]).sum()) if len(whole) else len(steps)
    if count < (MIN_STEPS_AT_RATE if len(whole) else MIN_STEPS) or not np.isfinite(losses).all():
        return None
    first, late = float(np.median(losses[:16])), losses[len(losses) // 2 :]
    latest = float(np.median(late[-len(late) // 2 :]))
    if not (
        NOISE_MSE_RANGE[0] < latest < NOISE_MSE_RANGE[1]
        and latest > UNCHANGED_SHARE * first
        and np.std(late) < SCATTER * latest
    ):
        return None
    return FlatLoss(first, latest, count, int(steps[-1]))


def running_median(numbers: np.ndarray, width: int) -> np.ndarray:
    """The median of every `width` numbers in a row: one for each but the first `width - 1`."""
    return np.median(np.lib.stride_tricks.sliding_window_view(numbers, width), axis=1)


def episode_of(steps: np.ndarray, hits: np.ndarray, least: int = 1) -> Episode | None:
    """The last time that at least `least` readings in a row were hits."""
    edges = np.diff(np.concatenate([[0], np.asarray(hits, bool)[: len(steps)].astype(np.int8), [0]]))
    begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    long = np.flatnonzero(ends - begins >= least)
    if not len(long):
        return None
    begin, end = int(begins[long[-1]]), int(ends[long[-1]])
    ended_at = int(steps[end]) if end < len(steps) else None
    return Episode(int(steps[begin]), int(steps[end - 1]), end - begin, ended_at)
