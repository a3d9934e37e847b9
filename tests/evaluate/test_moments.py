"""Moments: the same from any split, without losing digits, and refusals in words."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.errors import UsageError
from safelight.evaluate.moments import Moments, check_features


@pytest.mark.parametrize("cuts", [[], [1], [0, 0, 7], [3, 4, 5, 999], list(range(1, 1000, 13))])
@pytest.mark.parametrize(("centre", "scale"), [(0.0, 1.0), (1e6, 1.0), (-3.0, 1e-6)])
def test_any_split_gives_the_same(cuts: list[int], centre: float, scale: float) -> None:
    features = centre + scale * np.random.default_rng(0).normal(size=(1000, 5))
    added, merged = Moments(5), Moments(5)
    for part in np.split(features, cuts):
        added.add(part)
        merged.merge(Moments(5).add(part))
    wanted = np.cov(features.T)
    for found in (added, merged):
        assert found.count == 1000
        assert np.allclose(found.mean, features.mean(0), rtol=1e-12)
        assert np.abs(found.covariance - wanted).max() <= 1e-10 * wanted.max() * max(1, abs(centre) / scale / 100)


def test_sums_of_squares_would_lose_it() -> None:
    """What the merging is for: the plain formula is wrong in the first digit here."""
    features = 1e8 + np.random.default_rng(0).normal(size=(1000, 2))
    plain = (features.T @ features - 1000 * np.outer(features.mean(0), features.mean(0))) / 999
    wanted = np.cov((features - 1e8).T)
    assert np.abs(plain - wanted).max() > 0.1
    assert np.abs(Moments.of(features).covariance - wanted).max() < 1e-6


def test_single_precision_is_widened() -> None:
    features = np.random.default_rng(0).normal(100, 1, size=(5000, 3)).astype(np.float32)
    assert np.allclose(Moments.of(features).covariance, np.cov(features.astype(np.float64).T), rtol=1e-12)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (np.zeros(5), r"came float64 of shape \(5,\)"),
        (np.zeros((5, 0)), r"shape \(5, 0\)"),
        (np.array([["a"]]), "as numbers"),
        (np.zeros((3, 2)), "at least 4 rows of features, came 3"),
        (np.array([[1.0, np.nan]] * 3 + [[np.inf, np.nan]] * 2), "7 NaN or infinite values in 5 of 5 rows, .* row 0"),
        (np.array([[1.0, 2.0]] * 4 + [[np.inf, -np.inf]]), "2 NaN or infinite values in 1 of 5 rows, .* row 4"),
        (np.full((5, 2), 1e80), "10 NaN or infinite values"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(features: np.ndarray, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_features(features)


def test_other_dimensions_and_too_few() -> None:
    with pytest.raises(UsageError, match="features of 3 dimensions as in the moments so far, came 2"):
        Moments(3).add(np.zeros((1, 2)))
    with pytest.raises(UsageError, match="at least 2 features, came 1"):
        _ = Moments(2).add(np.zeros((1, 2))).covariance
