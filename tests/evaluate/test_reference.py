"""The reference: its root, its main axes, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.errors import UsageError
from safelight.evaluate.frechet import frechet
from safelight.evaluate.moments import Moments
from safelight.evaluate.reference import fit_reference, symmetric_root


def draw(count: int, dimension: int, seed: int, shift: float = 0.2) -> np.ndarray:
    chance = np.random.default_rng(seed)
    mix = np.random.default_rng(dimension).normal(size=(dimension, dimension)) / np.arange(1, dimension + 1)
    return chance.normal(size=(count, dimension)) @ mix * (1 + shift) + shift


def test_the_root_of_a_covariance_without_full_rank() -> None:
    x = draw(20, 30, 0)
    covariance = np.cov(x.T)
    root = symmetric_root(covariance)
    assert np.allclose(root, root.T)
    assert np.allclose(root @ root, covariance)


def test_moments_of_a_reference_are_those_of_its_features() -> None:
    x = draw(50, 4, 0)
    moments = fit_reference(x).moments()
    assert moments.count == 50
    assert np.allclose(moments.mean, x.mean(0))
    assert np.allclose(moments.covariance, np.cov(x.T))


def test_main_axes_of_the_reference_make_few_samples_enough() -> None:
    x, y = draw(256, 300, 0), draw(2000, 300, 1, 0.0)
    whole, narrow = fit_reference(y), fit_reference(Moments.of(y), components=32)
    assert (frechet(x, whole).trusted, frechet(x, narrow).trusted) == (False, True)
    assert "too few for 300 dimensions" in frechet(x, whole).sentence
    projection = fit_reference(y, components=32).projection
    assert projection is not None
    assert narrow.projection is not None
    assert np.allclose(projection.components, narrow.projection.components)
    wanted = frechet(projection.project(x), fit_reference(projection.project(y))).value
    assert frechet(x, narrow).value == pytest.approx(wanted)
    assert frechet(Moments.of(x), narrow).value == pytest.approx(wanted)
    with pytest.raises(UsageError, match="Expected 1 to 300 components"):
        fit_reference(y, components=301)


@pytest.mark.parametrize("components", [None, 2])
def test_other_dimensions_and_too_few_are_refused(components: int | None) -> None:
    reference = fit_reference(draw(50, 4, 0), components=components)
    for project, given in ((reference.project, draw(9, 3, 1)), (reference.project_moments, Moments.of(draw(9, 3, 1)))):
        with pytest.raises(UsageError, match="features of 4 dimensions as in the reference, came 3"):
            project(given)
    with pytest.raises(UsageError, match="at least 4 rows of features, came 3"):
        reference.project(draw(3, 4, 1))
    with pytest.raises(UsageError, match="moments of at least 4 features, came 3"):
        reference.project_moments(Moments.of(draw(3, 4, 1)))
    with pytest.raises(UsageError, match="a reference of at least 4 images, came 3"):
        fit_reference(Moments.of(draw(3, 4, 1)))
