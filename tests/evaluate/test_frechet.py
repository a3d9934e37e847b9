"""The Fréchet distance against a slow oracle, its bias and error against known truths."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy.linalg import sqrtm

from safelight.errors import UsageError
from safelight.evaluate.frechet import frechet
from safelight.evaluate.moments import Moments
from safelight.evaluate.reference import Reference, fit_reference, symmetric_root


def oracle(x: np.ndarray, y: np.ndarray) -> float:
    """By the slow way of others, and by singular values, which stay exact where that one loses digits."""
    mean, one, other = x.mean(0) - y.mean(0), np.cov(x.T), np.cov(y.T)
    singular = np.linalg.svd(symmetric_root(one) @ symmetric_root(other), compute_uv=False).sum()
    assert np.trace(sqrtm(one @ other).real) == pytest.approx(singular, rel=1e-5)
    return float(mean @ mean + np.trace(one) + np.trace(other) - 2 * singular)


def draw(count: int, dimension: int, seed: int, shift: float = 0.2) -> np.ndarray:
    chance = np.random.default_rng(seed)
    mix = np.random.default_rng(dimension).normal(size=(dimension, dimension)) / np.arange(1, dimension + 1)
    return chance.normal(size=(count, dimension)) @ mix * (1 + shift) + shift


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize(("count", "dimension"), [(200, 1), (200, 8), (100, 60), (61, 60), (60, 60), (500, 40)])
def test_it_is_what_the_root_of_the_product_gives(count: int, dimension: int, kind: type) -> None:
    x, y = (
        draw(count, max(dimension, 2), 0).astype(kind)[:, :dimension],
        draw(900, max(dimension, 2), 1, 0.0)[:, :dimension],
    )
    wide = x.astype(np.float64)
    wanted = (wide.mean() - y.mean()) ** 2 + (wide.std(ddof=1) - y.std(ddof=1)) ** 2  # of one dimension
    if dimension > 1:
        wanted = oracle(wide, y)
    reference = fit_reference(y)
    for found in (frechet(x, reference).value, frechet(x, y).value, frechet(Moments.of(x), reference).value):
        assert found == pytest.approx(wanted, rel=1e-6)


def test_without_full_rank_both_forms_agree() -> None:
    """Fewer samples than dimensions, and features that are 0 in all real images: sqrtm has no answer there."""
    x, y = draw(20, 50, 0), draw(400, 50, 1, 0.0)
    y[:, 40:] = 0
    reference = fit_reference(y)
    one, other = np.cov(x.T), np.cov(y.T)
    singular = np.linalg.svd(symmetric_root(one) @ symmetric_root(other), compute_uv=False).sum()
    wanted = ((x.mean(0) - y.mean(0)) ** 2).sum() + np.trace(one) + np.trace(other) - 2 * singular
    assert frechet(x, reference).value == pytest.approx(wanted, rel=1e-6)
    assert frechet(Moments.of(x), reference).value == pytest.approx(wanted, rel=1e-6)
    assert frechet(draw(400, 50, 2), reference).value == pytest.approx(
        frechet(Moments.of(draw(400, 50, 2)), reference).value
    )


def test_the_bias_is_gone_and_the_interval_holds_the_truth() -> None:
    """60 trials; bench/calibration.py has many more."""
    dimension, truth = 16, 16 * (1.3 - 1) ** 2
    reference = Reference(10**9, np.zeros(dimension), np.eye(dimension))
    found = [frechet(1.3 * np.random.default_rng(seed).normal(size=(128, dimension)), reference) for seed in range(60)]
    plain, corrected = (np.array([getattr(one, name) for one in found]) for name in ("value", "corrected"))
    error = corrected.std() / 60**0.5
    assert plain.mean() > truth + 10 * error  # what this is for
    assert abs(corrected.mean() - truth) < 3 * error
    assert np.mean([one.error for one in found]) == pytest.approx(corrected.std(), rel=0.2)
    assert 0.88 <= np.mean([one.interval()[0] <= truth <= one.interval()[1] for one in found]) <= 1


def test_moments_alone_are_enough_with_many_samples() -> None:
    reference = Reference(10**9, np.zeros(8), np.eye(8))
    for count, near in ((64, False), (2048, True)):
        x = 1.3 * np.random.default_rng(0).normal(size=(count, 8))
        found, wanted = frechet(Moments.of(x), reference), frechet(x, reference)
        assert found.value == pytest.approx(wanted.value)
        assert found.corrected == pytest.approx(wanted.corrected, abs=(0.1 if near else 1) * wanted.error)
        assert found.error == pytest.approx(wanted.error, rel=0.25)
        assert found.trusted == (count >= 64 * 8)
        assert np.isinf(found.degrees)


def test_two_finite_sets() -> None:
    """The distance is symmetric, and so are bias and error; with a reference as given, only one side's count."""
    x, y = draw(300, 8, 0, 0.0), draw(200, 8, 1, 0.0)
    both, turned, one = frechet(x, y), frechet(y, x), frechet(x, fit_reference(y))
    assert both.corrected == pytest.approx(turned.corrected, abs=1e-9)
    assert both.error == pytest.approx(turned.error)
    assert both.error > one.error
    assert both.corrected < one.corrected < one.value
    assert both.interval()[0] == 0  # the same law
    moments = frechet(x, fit_reference(y), finite_reference=True)
    assert moments.error == pytest.approx(both.error, rel=0.2)
    assert moments.error > one.error


def test_order_and_classes_in_turns_do_not_matter_much() -> None:
    x, reference = draw(320, 8, 0), fit_reference(draw(900, 8, 1, 0.0))
    turns = x[np.argsort(x[:, 0]).reshape(10, 32).T.reshape(-1)]
    assert frechet(turns, reference).error == pytest.approx(frechet(x, reference).error, rel=0.35)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_too_few_are_refused(count: int) -> None:
    with pytest.raises(UsageError, match=f"came {count}. Evaluate more"):
        frechet(np.zeros((count, 2)), draw(50, 2, 0))
    with pytest.raises(UsageError, match=f"reference features, came {count}"):
        frechet(draw(50, 2, 0), np.zeros((count, 2)))
    with pytest.raises(UsageError, match=f"at least 4 features, came {count}"):
        frechet(Moments(2).add(np.zeros((count, 2))), fit_reference(draw(50, 2, 0)))


@pytest.mark.parametrize("count", [4, 5, 9, 33])
def test_few_and_constant_ones_have_a_finite_answer(count: int) -> None:
    reference = fit_reference(draw(50, 6, 0))
    for x in (draw(count, 6, 1), np.ones((count, 6))):
        found = frechet(x, reference)
        assert np.isfinite([found.value, found.corrected, found.error, *found.interval()]).all()


def test_wrong_features_are_refused() -> None:
    y = draw(50, 2, 0)
    with pytest.raises(UsageError, match="features of 2 dimensions as in the reference, came 3"):
        frechet(np.zeros((9, 3)), y)
    with pytest.raises(UsageError, match="1 NaN or infinite values in 1 of 50 rows"):
        frechet(y, np.where(np.arange(100).reshape(50, 2) == 7, np.nan, y))
    with pytest.raises(UsageError, match="100 NaN or infinite values"):
        frechet(y * 1e200, y)


def test_the_package_is_light() -> None:
    script = "import sys, json, safelight.evaluate; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"torch", "sklearn", "scipy"}.isdisjoint(json.loads(done.stdout))
