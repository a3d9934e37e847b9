"""What repeated passes of one step show: healthy, a hard batch, an error of the machine, or a real fault."""

from __future__ import annotations

import math
from typing import Literal

from safelight.healing.alarms import RecentRange

ALIKE_DIFFERENCE = 1e-3  # relative difference of loss and norm up to which a replay gave the same
MOST_PASSES = 4  # of a step that comes out otherwise each time

Verdict = Literal["continue", "again", "isolate", "redone"]


class Replays:
    """A replay is the step made once more. Nothing random has state, so a healthy machine gives the same result."""

    def __init__(self) -> None:
        self._usual = RecentRange()
        self._passes: list[tuple[float, float]] = []

    def begin(self) -> None:
        self._passes = []

    def judge(self, loss: float, norm: float, *, finite: bool) -> Verdict:
        """Judges one more pass of the step that was begun."""
        now = loss, norm
        odd = not finite or self._usual.is_odd(*now)
        if not self._passes and not odd:
            return "continue"
        self._passes.append(now)
        if len(self._passes) == 1:
            return "again"
        if _alike(self._passes[-2], now):
            if not finite:
                return "isolate"
        elif odd and len(self._passes) < MOST_PASSES:
            return "again"
        return "continue" if _alike(self._passes[0], now) else "redone"  # a hard batch is not an error

    def remember(self, loss: float, norm: float) -> None:
        self._usual.remember(loss, norm)

    def facts(self) -> dict[str, float]:
        (loss, norm), (loss_again, norm_again) = self._passes[0], self._passes[-1]
        return {"loss": loss, "norm": norm, "loss_again": loss_again, "norm_again": norm_again}


def _alike(before: tuple[float, float], now: tuple[float, float]) -> bool:
    return all(map(_same, before, now))


def _same(before: float, now: float) -> bool:
    if not (math.isfinite(before) and math.isfinite(now)):
        return math.isfinite(before) == math.isfinite(now)
    return math.isclose(before, now, rel_tol=ALIKE_DIFFERENCE)
