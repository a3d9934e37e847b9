"""Kinds of images: those that are missing, crowded or out of proportion are seen, and chance is not taken for one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from safelight.errors import UsageError
from safelight.evaluate import modes
from safelight.evaluate.modes import count_different


def real(count: int, seed: int, kinds: int = 10, width: float = 0.3) -> np.ndarray:
    chance = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(10, 8)) * 2
    return centres[chance.integers(0, kinds, count)] + width * chance.normal(size=(count, 8))


def test_kinds_of_images() -> None:
    y = real(1000, 0)
    same, two = modes(real(500, 1), y, count=10), modes(real(500, 1, kinds=2), y, count=10)
    assert same.coverage.value == 1
    assert "as real images do" in same.coverage.sentence
    assert "no crowding" in same.largest.sentence
    assert same.different.value == 0
    assert two.coverage.value <= 0.5
    assert "kinds are missing" in two.coverage.sentence
    assert "crowd" in two.largest.sentence
    assert two.different.value >= 8
    assert "not that of real images" in two.different.sentence
    assert np.allclose(two.shares.sum(0), 1)
    assert len(modes(real(500, 1), y).shares) == 25  # one per 20 of half the real images
    # Fitted on the samples themselves, every kind would be visited, whatever is missing.
    own = KMeans(10, random_state=0).fit(real(500, 1, kinds=2))
    assert len(set(own.labels_.tolist())) == 10


def test_more_samples_do_not_visit_more_by_their_number() -> None:
    y = real(400, 0)
    few, many = modes(real(200, 1), y, count=60), modes(real(4000, 1), y, count=60)
    assert many.coverage.value == pytest.approx(few.coverage.value, abs=0.08)


def test_false_differences_are_rare() -> None:
    chance = np.random.default_rng(0)
    false = [count_different(*chance.multinomial(400, np.full(40, 1 / 40), size=2)) > 0 for _ in range(400)]
    assert np.mean(false) <= 0.05


def test_refusals() -> None:
    y = real(100, 0)
    with pytest.raises(UsageError, match="came 30 real images and 0 modes"):
        modes(y, y[:30])
    with pytest.raises(UsageError, match="came 2"):
        modes(y[:2], y)
    with pytest.raises(UsageError, match="NaN"):
        modes(np.where(y > 0, np.nan, y), y)
