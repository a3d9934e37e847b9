"""The rate of false alarms of a run: one budget, shared by all tests that chance can fool, over all their looks.

Most rules check identities, which chance does not break. Those that compare with chance are named here. Each has an
equal share of the rate, and spends 6 / (π² k²) of that share at its k-th look: however long a run is and however often
it is checked, the sum stays within the rate.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Literal, get_args

Test = Literal[
    "copies of training images",
    "held-out images",
    "labels in order",
    "batches in order",
    "batches that changed",
    "moments of the noise",
    "labels that never come",
    "labels that help nothing",
    "shape of the loss",
]
RATE = 0.01  # of the healthy runs may have a false alarm
FALSE_ALARM_SHARE = RATE / len(get_args(Test))


def allowed(test: Test, look: int = 1) -> float:
    """The chance that a healthy run fails the test at this look."""
    del test  # all have equal shares; the name says which test spends it
    return FALSE_ALARM_SHARE * 6 / (math.pi * max(look, 1)) ** 2


def bound(test: Test, look: int = 1, tests: int = 1) -> float:
    """The standard errors that this chance means, two-sided; `tests` that are made at once share it."""
    return -NormalDist().inv_cdf(allowed(test, look) / (2 * tests))
