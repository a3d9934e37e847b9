"""How fast a run is: seconds per step over the recent past, with waiting for data counted separately."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SMOOTHING_DECAY = 0.95  # per step
WAITS, SHORTEST_WAIT = 16, 0.004  # steps between two readings of a foreign loop; seconds


class Speedometer:
    """The speed is that of what it is wrapped around, so pictures and checkpoints are left out of it."""

    def __init__(self, before: float = 0.0, elapsed: float = 0.0) -> None:
        """`before`: seconds that were trained before a resume; `elapsed`: all that had passed until then."""
        self._waited = self._worked = self._weight = 0.0
        self.seconds = 0.0  # since the start or resume
        self.beside: list[Callable[[int], float]] = []  # after a step: seconds that pictures and the like will take
        self._before, self._elapsed, self._begun = before, elapsed, time.perf_counter()

    @property
    def elapsed(self) -> float:
        """Seconds that the run has taken, with pictures, evaluations and checkpoints."""
        return self._elapsed + time.perf_counter() - self._begun

    @property
    def trained(self) -> float:
        """Seconds of training in all."""
        return self._before + self.seconds

    @contextmanager
    def waiting(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._waited = self._faded(self._waited, time.perf_counter() - start)

    @contextmanager
    def working(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._worked = self._faded(self._worked, time.perf_counter() - start)
        self._weight = self._weight * SMOOTHING_DECAY + (1 - SMOOTHING_DECAY)

    def _faded(self, average: float, seconds: float) -> float:
        self.seconds += seconds
        return average * SMOOTHING_DECAY + seconds * (1 - SMOOTHING_DECAY)

    @property
    def seconds_per_step(self) -> float:
        return max(1e-9, (self._waited + self._worked) / self._weight) if self._weight else float("inf")

    @property
    def share_waiting(self) -> float:
        return self._waited / max(1e-12, self._waited + self._worked)


class Pace:
    """Seconds per step of a foreign loop over the recent past. Clocks are read by who calls."""

    def __init__(self, steps: int | None) -> None:
        """`steps`: planned in all, where that is known."""
        self._steps, self._mean, self._weight = steps, 0.0, 0.0

    def left(self, step: int, seconds: float) -> float | None:
        """Seconds that are left after `step` updates, of which the last took so many, every so often."""
        self._mean = self._mean * SMOOTHING_DECAY + seconds * (1 - SMOOTHING_DECAY)
        self._weight = self._weight * SMOOTHING_DECAY + 1 - SMOOTHING_DECAY
        if self._steps is None or (step % WAITS and step != self._steps):
            return None
        return max(0, self._steps - step) * self._mean / self._weight


class DataWait:
    """How long a foreign loop waits between a step and the next call of its model. Clocks are read by who calls."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self._waited, self._passed, self._steps = 0.0, 0.0, 0

    def begin(self, now: float) -> None:
        self._begun = now

    def end(self, now: float) -> None:
        if self._begun is not None:
            self._waited += now - self._begun
            self._begun = None

    def share(self, seconds: float) -> float | None:
        """After a step of so many seconds, every so often. Short steps are all bookkeeping: what is less than a few
        milliseconds is no waiting."""
        self._passed += seconds
        self._steps += 1
        if self._steps < WAITS:
            return None
        waited = self._waited / self._passed if self._waited / self._steps > SHORTEST_WAIT else 0.0
        self._waited, self._passed, self._steps = 0.0, 0.0, 0
        return min(1.0, waited)
