"""When pictures and evaluations of a watched loop are due, also where nobody knows how long it is."""

from __future__ import annotations

import math

from safelight.observing.stage_pictures import planned_steps


class PreviewSchedule:
    """Every N updates if that is set; else N times over a loop of known length, more often at its start; else at
    growing distances. A preview that was not drawn when it was due stays due."""

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
