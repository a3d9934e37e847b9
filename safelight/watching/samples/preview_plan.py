"""When pictures and evaluations of a watched loop are due, also where nobody knows how long it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from safelight.config.tree import Features
from safelight.errors import UsageError
from safelight.observing.stage_pictures import planned_steps


@dataclass(frozen=True, slots=True)
class PreviewIntervals:
    """How often samples are drawn and compared with images; unset: within a share of the time, 0: never."""

    sample_every: int | None = None
    evaluate_every: int | None = None
    features: Features = "lite0"

    def __post_init__(self) -> None:
        for name in ("sample_every", "evaluate_every"):
            every = getattr(self, name)
            if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 0):
                raise UsageError(f"{name} is {every!r}. Use a number of updates, 0 for never, or leave it out.")
        if self.features not in ("lite0", "inception"):
            raise UsageError(f"features is {self.features!r}. Use lite0 or inception.")


USUAL_INTERVALS = PreviewIntervals()


class Plan:
    """Every so many updates where it is said; else so many in all of a loop of known length, more at its beginning;
    else further and further apart. One that is not drawn in its turn stays due."""

    def __init__(self, step: int, steps: int | None, every: int | None, count: int, first: int, growth: float) -> None:
        self._every, self._growth = every, growth
        planned = None if every is not None or steps is None else sorted(planned_steps(steps, None, count))
        self._planned, self._first = planned, first
        self._next = self._after(step)

    def is_due(self, updates: int) -> bool:
        return updates >= self._next

    def passed(self, updates: int) -> None:
        """It was drawn after so many."""
        self._next = self._after(updates)

    def _after(self, updates: int) -> float:
        if self._every is not None:
            return (updates // self._every + 1) * self._every if self._every else math.inf
        if self._planned is not None:
            return next((step for step in self._planned if step > updates), math.inf)
        return max(self._first, math.ceil(updates * self._growth))
