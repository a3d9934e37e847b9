"""What a storm of overflows, a divergence, a spike and a safe rate are: one definition each, for rules and for healing.

A rule has only what was recorded, so it waits until there is no doubt. Healing can repeat a step or measure the fixed
set before it acts, so a suspicion is enough for it to look closer: the same test with other limits, side by side.
"""

from __future__ import annotations

from typing import NamedTuple

# Of the rate at which the error would be that of the zero predictor: on digits 0.0039 from 0.1 and from 1.
SAFE_RATE_SHARE = 0.3

# Overflows in fp16. A healthy loss scale skips one update in 2,000, and some ten in a row while it is searched for.
STORM_STEPS, STORM = 32, 16


def is_storm(overflows: int) -> bool:
    """Whether so many of the last 32 steps overflowed that no scale is small enough."""
    return overflows >= STORM


class Divergence(NamedTuple):
    """Limits of a loss beyond which all that was learnt is lost."""

    zero_ratio: float  # over the loss of a model that always predicts 0
    best_ratio: float  # over the lowest loss of the run

    def is_met(self, loss: float, lowest: float, zero: float) -> bool:
        """Also for a loss that is not a number."""
        return not loss <= self.zero_ratio * zero and not loss <= self.best_ratio * lowest


SUSPECTED = Divergence(0.95, 1.5)  # healing then measures the fixed set, where no draw of a batch can be blamed
DIVERGED = Divergence(2.0, 3.0)  # by the batches alone

# A gradient or loss beyond all that came before.
SUSPICIOUS = 8.0  # robust standard deviations of the logarithm: healing then repeats the step
FAR_OUT = 8.0  # times the largest of the steps before: a rule reports it
