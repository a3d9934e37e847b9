"""When to check more closely: the run compared with its own past. An alarm changes nothing."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

from safelight.diagnosis.definitions import STORM_STEPS, SUSPECTED, SUSPICIOUS, is_storm

# A spike costs a replay of the step and no more: a hard batch comes out the same and is left alone.
HISTORY_STEPS, MIN_HISTORY_STEPS = 64, 16  # steps that are remembered, and those before which nothing is called odd
MIN_DEVIATION = 0.1  # standard deviation that is assumed at least: 10 %

# Divergence is confirmed by the fixed set, so this only has to be rare.
LOSS_MEMORY = 0.9  # memory of the loss, per step
SUSTAINED_STEPS, CHECKED_EVERY = 16, 4  # steps; a diverged run swings, so the fixed set is checked more than once


def is_good(loss: float, lowest: float, margin: float = 1.1) -> bool:
    """Whether weights with this loss on the fixed set are ones to go back to."""
    return math.isfinite(loss) and loss <= lowest * margin


class RecentRange:
    """What loss and gradient norm usually are. Forgotten by a resume: it decides on replays only, which change
    nothing."""

    def __init__(self) -> None:
        self._logs: tuple[deque[float], ...] = (deque(maxlen=HISTORY_STEPS), deque(maxlen=HISTORY_STEPS))

    def is_odd(self, loss: float, norm: float) -> bool:
        return any(_is_far(number, logs) for number, logs in zip((loss, norm), self._logs, strict=True))

    def remember(self, loss: float, norm: float) -> None:
        for number, logs in zip((loss, norm), self._logs, strict=True):
            if math.isfinite(number):
                logs.append(math.log(max(number, 1e-30)))


def _is_far(number: float, logs: deque[float]) -> bool:
    if len(logs) < MIN_HISTORY_STEPS:
        return False
    # Cheap first: the median of 64 numbers takes longer than the arithmetic of a small step's bookkeeping.
    value, low, high = math.log(max(number, 1e-30)), min(logs), max(logs)
    if low - MIN_DEVIATION * SUSPICIOUS <= value <= high + MIN_DEVIATION * SUSPICIOUS:
        return False
    middle = statistics.median(logs)
    spread = 1.4826 * statistics.median(abs(each - middle) for each in logs)
    return abs(value - middle) > SUSPICIOUS * max(spread, MIN_DEVIATION)


@dataclass(slots=True)
class DivergenceDetector:
    """What divergence and overflows are judged by. A checkpoint holds it: an act must come at the same step again."""

    smoothed: float | None = None
    lowest: float = math.inf
    risen: int = 0  # steps in a row
    overflows: list[int] = field(default_factory=list)  # steps

    def add_loss(self, loss: float, zero: float) -> bool:
        """The loss of a step, and that of a model which predicts zero. True where all that was learnt seems lost
        for good."""
        if not math.isfinite(loss):
            return False  # refused, and counted elsewhere
        before = loss if self.smoothed is None else self.smoothed
        self.smoothed = before + (1 - LOSS_MEMORY) * (loss - before)
        self.lowest = min(self.lowest, self.smoothed)
        high = SUSPECTED.is_met(self.smoothed, self.lowest, zero)
        self.risen = self.risen + 1 if high else 0
        return self.risen >= SUSTAINED_STEPS and (self.risen - SUSTAINED_STEPS) % CHECKED_EVERY == 0

    def add_overflow(self, step: int) -> bool:
        """True where half of the last steps overflowed: no scale is small enough."""
        self.overflows = [each for each in (*self.overflows, step) if each > step - STORM_STEPS]
        return is_storm(len(self.overflows))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def is_lost(loss: float, lowest: float, zero: float) -> bool:
    """The last word on divergence: the same images, timesteps and noise as ever, so that no draw can be blamed."""
    return not math.isfinite(loss) or SUSPECTED.is_met(loss, lowest, zero)
