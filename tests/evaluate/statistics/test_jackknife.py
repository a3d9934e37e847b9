"""The jackknife against distances of samples that are really left out."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.evaluate.frechet import frechet
from safelight.evaluate.reference import fit_reference
from safelight.evaluate.statistics.jackknife import GROUPS, LARGE_GROUPS, jackknife, plain_value


def draw(count: int, dimension: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.2, 1.1, size=(count, dimension))


@pytest.mark.parametrize(("count", "dimension"), [(20, 6), (20, 40)], ids=["many", "fewer than dimensions"])
def test_each_replicate_leaves_one_group_out(count: int, dimension: int) -> None:
    """With as many groups as samples, each group is one sample, in the order that was drawn."""
    x, reference = draw(count, dimension, 0), fit_reference(draw(300, dimension, 1))
    found = jackknife(x, reference)
    order = np.random.default_rng(0).permutation(count)
    left = [frechet(np.delete(x, row, 0), reference).value for row in order]
    assert found.value == pytest.approx(frechet(x, reference).value)
    assert found.value == pytest.approx(plain_value(x, reference)), "alone, for a sixtieth of the cost"
    assert found.pseudo == pytest.approx(count * found.value - (count - 1) * np.array(left), rel=1e-5)
    twice = frechet(np.delete(x, order[:2], 0), reference).value
    wanted = count * found.value - (count - 1) * (left[0] + left[1]) + (count - 2) * twice
    assert found.crossed[0] == pytest.approx(wanted, abs=1e-6 * count * found.value)


@pytest.mark.parametrize(
    ("count", "dimension", "groups"), [(10, 3, 10), (100, 3, GROUPS), (600, 513, LARGE_GROUPS), (100, 600, GROUPS)]
)
def test_large_decompositions_have_fewer_groups(count: int, dimension: int, groups: int) -> None:
    reference = fit_reference(draw(50, dimension, 1))
    found = jackknife(draw(count, dimension, 0), reference)
    assert len(found.pseudo) == len(found.crossed) == groups
    assert found.degrees == groups - 1


def test_a_difference_of_replicates_is_paired() -> None:
    x, reference = draw(200, 4, 0), fit_reference(draw(300, 4, 1))
    one, other = jackknife(x, reference), jackknife(x + 0.01, reference)
    both = one.minus(other)
    assert both.corrected == pytest.approx(one.corrected - other.corrected)
    assert both.variance(1) < 0.1 * one.variance(1)
    assert one.minus(one).variance(1) == 0


def test_what_is_taken_off_a_variance_is_at_most_half() -> None:
    found = jackknife(draw(64, 4, 0), fit_reference(draw(300, 4, 1)))
    assert found.variance(0) > found.variance(0.25) >= found.variance(1e9)
    assert found.variance(1e9) == pytest.approx(found.variance(0) / 2)
