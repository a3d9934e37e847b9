"""The learning rate and the warmup of a run that diverged."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from safelight import checks
from safelight.config.tree import Optimizer
from safelight.healing.rates import (
    HALVINGS_PER_ROUND,
    MAX_TRIED_RATES,
    STABLE_ERROR,
    SUSPECT_ERROR,
    choose_cut,
    find_rate,
    longer_warmup,
    try_rates,
)


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
    assert len(tried := try_rates(Optimizer(lr=1.0), loss_after)) == HALVINGS_PER_ROUND
    assert choose_cut(tried) == 0.25
    limit = 0.5**HALVINGS_PER_ROUND  # only the smallest of the first round will do: smaller ones are tried too
    assert len(tried := try_rates(Optimizer(lr=1.0), loss_after)) == 2 * HALVINGS_PER_ROUND
    assert choose_cut(tried) == limit


def errors_of(limit: float) -> Callable[[Optimizer, int, float], float]:
    """A run that takes rates up to a limit, and whose error grows with the square of those above."""
    return lambda settings, updates, enough: max(1.0, (settings.lr / limit) ** 2)


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.3, 1.0])
def test_every_rate_that_is_too_high_leads_to_the_same_advice(rate: float) -> None:
    assert find_rate(Optimizer(lr=rate), errors_of(0.0133))[checks.TRIAL_STABLE_RATE] == 0.004


@pytest.mark.parametrize("rate", [1e-6, 0.002, 0.01, 0.0133 * (0.99 * SUSPECT_ERROR) ** 0.5])
def test_rates_that_hold_are_not_lowered(rate: float) -> None:
    assert find_rate(Optimizer(lr=rate), errors_of(0.0133)) == {}


def test_lower_rates_are_tried_until_one_holds() -> None:
    tried: list[float] = []

    def worst_error(settings: Optimizer, updates: int, limit: float) -> float:
        tried.append(settings.lr)
        return 1.0 if settings.lr < 1e-4 else 100.0

    found = find_rate(Optimizer(lr=1.0), worst_error)
    assert found == {checks.TRIAL_RATE: 1.0, checks.TRIAL_ERROR: 100.0, checks.TRIAL_STABLE_RATE: tried[-1]}
    assert tried == [1.0, 0.03, 0.009, 0.003, 0.0008, 0.0002, 0.00007]


@pytest.mark.parametrize("error", [100.0, math.inf])
def test_a_network_that_takes_no_rate_is_not_tried_without_end(error: float) -> None:
    tried: list[float] = []
    found = find_rate(Optimizer(lr=1.0), lambda settings, *_: tried.append(settings.lr) or error)
    assert len(tried) == 1 + MAX_TRIED_RATES
    assert checks.TRIAL_STABLE_RATE not in found
    assert error > STABLE_ERROR
