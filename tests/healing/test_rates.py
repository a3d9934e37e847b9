"""The learning rate and the warmup of a run that diverged."""

from __future__ import annotations

import math

import pytest

from safelight.config.tree import Optimizer
from safelight.healing.rates import HALVINGS, choose_cut, longer_warmup, try_rates


@pytest.mark.parametrize(
    ("losses", "factor"),
    [
        ({0.5: 1.7, 0.25: 0.9, 0.125: 0.5, 0.0625: 0.55}, 0.125),  # a valley
        ({0.5: 0.509, 0.25: 0.505, 0.125: 0.50}, 0.5),  # hardly a difference: the largest
        ({0.5: 0.52, 0.25: 0.505, 0.125: 0.50}, 0.25),
        ({0.5: math.nan, 0.25: math.inf, 0.125: 0.5}, 0.125),
        ({0.5: math.nan, 0.25: math.nan}, 0.25),
    ],
)
def test_the_rate_is_the_largest_that_is_hardly_worse_than_the_best(losses: dict[float, float], factor: float) -> None:
    assert choose_cut(losses) == factor


@pytest.mark.parametrize(
    ("warmup", "step", "steps", "expected"),
    [
        (24, 19, 300, 48),  # within
        (24, 47, 300, 48),  # right after
        (24, 48, 300, None),  # long after
        (0, 3, 300, 48),  # there was none
        (100, 120, 300, 150),  # at most half of the run
        (200, 120, 300, 200),  # never shorter
    ],
)
def test_the_warmup_grows_where_the_run_diverged_in_it(
    warmup: int, step: int, steps: int, expected: int | None
) -> None:
    assert longer_warmup(warmup, step, steps) == expected


def test_rates_are_halved_until_one_will_do() -> None:
    def loss_after(settings: Optimizer, _: int) -> float:
        assert settings.warmup == 0
        return 0.5 if settings.lr <= limit else math.inf

    limit = 0.25
    assert len(tried := try_rates(Optimizer(lr=1.0), loss_after)) == HALVINGS
    assert choose_cut(tried) == 0.25
    limit = 0.5**HALVINGS  # only the smallest of the first round will do: smaller ones are tried too
    assert len(tried := try_rates(Optimizer(lr=1.0), loss_after)) == 2 * HALVINGS
    assert choose_cut(tried) == limit
