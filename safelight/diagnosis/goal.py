"""How near the samples of a run came to the distance that is aimed at: evaluate.target."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from safelight.diagnosis.run_history import ReadingSource
from safelight.vocabulary import DISTANCE, TARGET_DISTANCE


@dataclass(frozen=True, slots=True)
class Goal:
    """Steps are those that are done."""

    target: float
    reached: int | None
    """The first evaluation with a distance no larger."""
    lowest: float
    lowest_at: int

    def words(self) -> str:
        if self.reached is not None:
            return f"The target distance of {self.target:g} was reached at step {self.reached:,}."
        return (
            f"The target distance of {self.target:g} was not reached: the lowest was {self.lowest:.4g}, at step "
            f"{self.lowest_at:,}."
        )


def find_goal(readings: ReadingSource) -> Goal | None:
    """By the newest target; None where there is none, or no evaluation yet."""
    targets = readings.raw(TARGET_DISTANCE.name)[1]
    steps, distances = readings.raw(DISTANCE.name)
    steps, distances = steps[np.isfinite(distances)], distances[np.isfinite(distances)]
    if not len(targets) or not math.isfinite(targets[-1]) or not len(distances):
        return None
    at, lowest = np.flatnonzero(distances <= targets[-1]), int(np.argmin(distances))
    reached = int(steps[at[0]]) + 1 if len(at) else None
    return Goal(float(targets[-1]), reached, float(distances[lowest]), int(steps[lowest]) + 1)
