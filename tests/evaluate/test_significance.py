"""Verdicts on two checkpoints: rarely wrong between equals, sharper by pairing, and never without enough samples."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.errors import UsageError
from safelight.evaluate import Reference, compare
from safelight.evaluate.kernel import fit_kernel_reference
from safelight.evaluate.significance import compare_kernel

DIMENSION = 8
REFERENCE = Reference(10**9, np.zeros(DIMENSION), np.eye(DIMENSION))
REAL = np.random.default_rng(77).normal(size=(400, DIMENSION))


def pair(seed: int, gain: float, shared: float, count: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """New and old samples: 1.4 times too wide, the new by `gain` less; so much of their noise comes from the seed."""
    chance = np.random.default_rng(seed)
    common = chance.normal(size=(count, DIMENSION))
    new, old = (shared**0.5 * common + (1 - shared) ** 0.5 * chance.normal(size=common.shape) for _ in range(2))
    return (1.4 - gain) * new, 1.4 * old


@pytest.mark.parametrize("shared", [0.0, 0.9, 0.999])
def test_equals_are_rarely_called_better(shared: float) -> None:
    found = [compare(*pair(seed, 0.0, shared), REFERENCE) for seed in range(1000, 1100)]
    assert np.mean([each.better for each in found]) <= 0.05 + 2 * (0.05 * 0.95 / 100) ** 0.5
    # What it is for: the rule that the lower number wins is wrong every other time.
    assert 0.35 < np.mean([each.difference < 0 for each in found]) < 0.65
    assert np.mean([each.error for each in found]) == pytest.approx(
        np.std([each.difference for each in found]), rel=0.2
    )


def test_pairing_is_what_finds_a_small_gain() -> None:
    power = {
        shared: np.mean([compare(*pair(seed, 0.03, shared), REFERENCE).better for seed in range(40)])
        for shared in (0.0, 0.99)
    }
    assert power[0.99] > 0.9
    assert power[0.0] < 0.5
    assert np.median([compare(*pair(seed, 0.03, 0.99), REFERENCE).paired_gain for seed in range(20)]) > 3
    assert 0.8 < np.median([compare(*pair(seed, 0.03, 0.0), REFERENCE).paired_gain for seed in range(20)]) < 1.2
    # The same samples in another order: the pairs are gone, and with them the gain.
    new, old = pair(0, 0.03, 0.99)
    assert compare(new, old[::-1], REFERENCE).paired_gain < 1.5


def test_worse_is_worse() -> None:
    found = compare(*pair(0, -0.2, 0.9), REFERENCE)
    assert not found.better
    assert found.p > 0.99
    assert "worse" in found.sentence


@pytest.mark.parametrize("count", [4, 128])
def test_the_same_samples_are_a_tie(count: int) -> None:
    new, _ = pair(0, 0.0, 0.5, count)
    for found in (compare(new, new, REFERENCE), compare_kernel(new, new, REAL)):
        assert (found.difference, found.error, found.z, found.better) == (0, 0, 0, False)
        assert "a tie" in found.sentence


def test_too_few_are_no_proof() -> None:
    """A large gain, but from fewer than 4 samples per dimension."""
    found = compare(*pair(0, 0.39, 0.99, 31), REFERENCE)
    assert found.z < -1.7
    assert not found.better
    assert not found.enough
    assert "31 samples are too few" in found.sentence
    assert compare(*pair(0, 0.39, 0.99, 32), REFERENCE).better


def test_the_kernel_agrees() -> None:
    kept = fit_kernel_reference(REAL)
    found = [compare_kernel(*pair(seed, 0.0, 0.9), kept) for seed in range(200)]
    assert np.mean([each.better for each in found]) <= 0.08
    assert np.mean([compare_kernel(*pair(seed, 0.2, 0.9), kept).better for seed in range(20)]) > 0.8
    assert compare_kernel(*pair(0, 0.2, 0.9), REAL) == compare_kernel(*pair(0, 0.2, 0.9), kept)


def test_features_of_a_reference_may_come_as_they_are() -> None:
    new, old = pair(0, 0.1, 0.99)
    assert compare(new, old, REAL).better
    with pytest.raises(UsageError, match="from the same seeds, came 127 and 128"):
        compare(new[1:], old, REAL)
    with pytest.raises(UsageError, match="from the same seeds, came 127 and 128"):
        compare_kernel(new[1:], old, REAL)
    with pytest.raises(UsageError, match="NaN"):
        compare(new * np.nan, old, REAL)
    with pytest.raises(UsageError, match="came 3"):
        compare(new[:3], old[:3], REAL)
