"""How the readings of somebody else's log lie: how many steps apart, of single steps or smoothed, how finely written.

A record of ours has every step. A log may have one in a hundred, a running mean, or two decimals: what a rule may
conclude depends on that, so each rule says what it needs, and does not look where it is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Kind = Literal["any", "known steps", "single", "every step"]
EVEN_SHARE = 0.9  # of the distances between readings are the same
# Share of readings above or below both neighbours: 2/3 where they are independent, however they are distributed; 0.58
# by an EMA of one half, 1/2 by any running mean.
TURNS = 0.61
MIN_READINGS = 32  # readings of which that is known
FINE_ROUNDING = 0.05  # of the middle loss: the most that two neighbouring values may be apart by rounding
WORDS = {1: "every step", None: "steps that are not evenly apart or not known"}


@dataclass(frozen=True, slots=True)
class Spacing:
    """How far apart the losses are of a log."""

    every: int | None = None
    """Steps between two readings; None if that is uneven or not known."""
    single: bool = False
    """Neighbours are independent: single steps, or means of steps that no other reading has in it."""
    known: bool = True
    """The log says which step each reading is of; else its rows are counted."""
    fine: bool = True
    """Written with enough digits to tell its shape."""

    def words(self) -> str:
        return WORDS.get(self.every, f"one in {self.every:,} steps" if self.every else "")


@dataclass(frozen=True, slots=True)
class LogNeed:
    """How the readings of a log must lie for a rule."""

    kind: Kind = "any"

    def lacking(self, spacing: Spacing) -> str | None:
        """Why the rule cannot look; None where it can."""
        if self.kind == "any" or (self.kind == "known steps" and spacing.known):
            return None
        if self.kind == "known steps":
            return "needs to know which step each reading is of"
        if not spacing.fine:
            return "needs losses with more digits"
        if not spacing.single:
            return "needs losses of single steps; these are smoothed, or too few to tell"
        if self.kind == "every step" and spacing.every != 1:
            return f"needs the loss of every step; the log has {spacing.words()}"
        return None


def spacing_of(steps: np.ndarray, losses: np.ndarray, *, known: bool) -> Spacing:
    """`known`: the log says which step each loss is of."""
    apart = np.diff(steps)
    usual = int(np.median(apart)) if len(apart) else 0
    even = known and usual > 0 and float(np.mean(apart == usual)) >= EVEN_SHARE
    finite = losses[np.isfinite(losses)]
    return Spacing(usual if even else None, _is_independent(finite), known, _is_fine(finite))


def _is_independent(losses: np.ndarray) -> bool:
    if len(losses) < MIN_READINGS:
        return False
    signs = np.sign(np.diff(losses))
    return float(np.mean(signs[1:] * signs[:-1] < 0)) > TURNS


def _is_fine(losses: np.ndarray) -> bool:
    """Whether rounding cannot make a shape: two decimals are enough for a loss of 1, and not for one of 0.02."""
    different = np.unique(losses)
    if len(different) < 2:
        return True
    return float(np.diff(different).min()) <= FINE_ROUNDING * abs(float(np.median(losses)))
