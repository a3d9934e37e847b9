from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from safelight.diagnosis.budget import FALSE_ALARM_SHARE, RATE, Test, allowed, bound

TEST = "moments of the noise"
RUNS, LOOKS = 4000, 1000


def test_all_tests_over_all_looks_stay_within_the_rate() -> None:
    spent = sum(allowed(test, look) for test in get_args(Test) for look in range(1, 10_000))
    assert 0.99 * RATE < spent < RATE


@pytest.mark.parametrize("looks", [1, 10, 1000, 10**6])
def test_a_bound_is_the_chance_that_is_allowed(looks: int) -> None:
    from math import erfc

    assert erfc(bound(TEST, looks) / 2**0.5) == pytest.approx(allowed(TEST, looks), rel=1e-6)
    assert erfc(bound(TEST, looks, tests=3) / 2**0.5) == pytest.approx(allowed(TEST, looks) / 3, rel=1e-6)


def fooled(bounds: np.ndarray) -> float:
    """Share of healthy runs in which a mean that is looked at again and again leaves its bound at any look."""
    draws = np.random.default_rng(0).standard_normal((RUNS, LOOKS), np.float32)
    means = np.cumsum(draws, 1) / np.sqrt(np.arange(1, LOOKS + 1, dtype=np.float32))
    return float((np.abs(means) > bounds).any(1).mean())


def test_looking_at_every_step_does_not_spend_it_twice() -> None:
    assert fooled(np.array([bound(TEST, look) for look in range(1, LOOKS + 1)])) <= FALSE_ALARM_SHARE
    assert fooled(np.full(LOOKS, bound(TEST))) > 3 * FALSE_ALARM_SHARE  # the same bound at every look does
