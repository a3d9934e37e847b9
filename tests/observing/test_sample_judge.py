"""The budget of evaluations, and who is the best: without a training around them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import tiny

from safelight.evaluate.examination import Real, measure_distances
from safelight.evaluate.thumbnails import Thumbnails
from safelight.observing.sample_judge import USUAL_EVALUATIONS, Budget, SampleJudge
from safelight.training.evaluation import evaluation_steps

SHARE = 0.05


@pytest.mark.parametrize(
    ("step", "spent", "guess", "total", "allowed"),
    [
        (25, 0, 2, 100, True),  # two of 2 s are 4 of the 5 s
        (25, 0, 2.5, 100, True),  # exactly
        (25, 0, 2.51, 100, False),  # one would fit, but none would be left for the end
        (100, 0, 2.51, 100, True),
        (100, 0, 5, 100, True),
        (100, 0, 5.01, 100, False),
        (50, 1.1, 2, 100, False),  # what a former sitting spent counts
        (50, 1, 2, 100, True),
        (100, 3.1, 2, 100, False),
        (100, 3, 2, 100, True),
        (25, 0, 2, 10, False),
        (100, 0, 2, 10, False),
        (25, 0, 2, math.inf, True),  # no step was timed yet
        (25, 0, 2, math.nan, False),
    ],
)
def test_a_run_that_does_not_say_how_often_stays_within_its_budget(
    step: int, spent: float, guess: float, total: float, allowed: bool
) -> None:
    config = tiny(train__steps=100, evaluate__every=None, evaluate__budget=SHARE)
    assert Budget(config, spent).allows(step, guess=guess, total=total) == allowed
    explicit = tiny(train__steps=100, evaluate__every=25, evaluate__budget=SHARE)
    assert Budget(explicit, spent).allows(step, guess=guess, total=total), "who says how often gets it"


def test_what_the_last_one_took_is_what_the_next_is_expected_to() -> None:
    budget = Budget(tiny(train__steps=100, evaluate__every=None, evaluate__budget=SHARE), 0.0)
    assert budget.allows(25, guess=1, total=100)
    budget.book(2.0, once=1.5)
    assert budget.spent == 2.0
    assert budget.allows(50, guess=1e9, total=100), "0.5 s each, not the guess, nor the 1.5 s of opening"
    budget.book(2.5)
    assert not budget.allows(75, guess=0, total=100)
    assert not budget.allows(100, guess=0, total=100)
    assert budget.allows(100, guess=0, total=140), "4.5 + 2.5 of 7"


@pytest.mark.parametrize("cost", [0.1, 0.9, 2.4, 2.6, 4.9, 5.1, 30.0])
def test_all_together_never_take_more_and_the_last_is_there_if_one_is(cost: float) -> None:
    config = tiny(train__steps=100, evaluate__every=None, evaluate__budget=SHARE)
    budget, done = Budget(config, 0.0), list[int]()
    for step in sorted(evaluation_steps(config)):
        if budget.allows(step, guess=cost, total=100):
            budget.book(cost)
            done.append(step)
    assert budget.spent <= 5
    assert (100 in done) == (cost <= 5)
    assert len(done) == min(USUAL_EVALUATIONS, int(5 // cost))


def test_with_too_few_samples_the_kernel_distance_judges(tmp_path: Path) -> None:
    """The Fréchet distance would call nothing better, and the first checkpoint would stay the best for ever."""
    from safelight.evaluate.significance import compare, compare_kernel

    rng = np.random.default_rng(0)
    real, bad = rng.normal(size=(400, 128)), rng.normal(3, 1, size=(128, 128))
    good = bad - 3
    assert not compare(good, bad, real).better
    assert compare_kernel(good, bad, real).better
    evaluator = object.__new__(SampleJudge)
    evaluator._config = tiny(evaluate__samples=128, evaluate__components=0)
    evaluator.real = Real(real, "FD-test")
    evaluator.gaussian = measure_distances(bad, evaluator.real)
    evaluator.thumbnails = Thumbnails(np.arange(0), np.zeros((0, 64), np.uint8), None)
    evaluator._best = bad
    evaluator.features = lambda samples: good  # type: ignore[method-assign]
    assert evaluator.judge(torch.zeros(128, 1, 8, 8)).better
