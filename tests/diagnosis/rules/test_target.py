"""Histories for the rules of target.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import checks
from rule_rows import Row, check_row, fires_in, parameters, row, without

from safelight.diagnosis.rules import target

ROWS = [
    row("the noise for a velocity", "target.not-a-velocity", checks(mixture__process=1, mixture__row=0)),
    row("x0 under a flow", "", checks(mixture__process=1, mixture__row=1)),
    row("the opposite of the noise", "target.scaled", checks(mixture__process=0, mixture__row=6)),
    row("half of the noise", "target.scaled", checks(mixture__process=1, mixture__row=-1, mixture__target_scale=0.5)),
    row("the factors of v swapped", "target.scaled:error",
        checks(mixture__process=0, mixture__row=-1, mixture__target_swapped=0)),
    row("x_t as the target", "target.scaled:error",
        checks(mixture__process=1, mixture__row=-1, mixture__target_swapped=3)),
    row("a target without a name", "", checks(mixture__process=1, mixture__row=-1)),
    row("the opposite of v, as EDM's F is", "", checks(mixture__process=0, mixture__row=8)),
    row("two values of sigma_data", "target.other-sigma-data",
        checks(mixture__sigma_data=0.5, mixture__target_sigma_data=1.0)),
    row("one sigma_data", "", checks(mixture__sigma_data=0.5, mixture__target_sigma_data=0.501)),
    row("another type", "target.other-type", checks(target__epsilon=np.full(16, 1.5), target__sample=np.zeros(16))),
    row("another type than the scheduler's", "target.other-type:warning",
        checks(target__of_scheduler=0, mixture__process=0, mixture__row=2)),
    row("the scheduler's type", "", checks(target__of_scheduler=2, mixture__process=0, mixture__row=2)),
    row("a scheduler beside a target without a name", "",
        checks(target__of_scheduler=0, mixture__process=0, mixture__row=-1)),
    row("a target with gradients", "target.with-gradient:warning", checks(target__with_gradient=1)),
    row("a target without", "", checks(target__with_gradient=0)),
    row("declared as v, and is v", "", checks(target__declared=2, target__epsilon=np.full(16, 1.5),
        target__v_prediction=np.zeros(16))),
    row("nothing was declared", "", without("target/declared") | checks(target__epsilon=np.full(16, 1.5)), whole=True),
    row("fresh noise", "target.fresh-noise", checks(target__epsilon=np.full(16, 1.4),
        target__epsilon_cosine=np.zeros(16), target__v_prediction_cosine=np.zeros(16))),
    row("a scaled target", "target.wrong", checks(target__epsilon=np.full(16, 0.5))),
    row("a target in bf16", "", checks(target__epsilon=np.full(16, 0.004))),
    row("other noise in the target", "target.other-noise", checks(mixture__input=0, mixture__target=0.8,
        mixture__target_kurtosis=2.9, mixture__target_neighbours=0.01)),
    row("other noise in x_t", "target.other-noise", checks(mixture__input=0.7, mixture__target=0,
        mixture__input_kurtosis=3.1, mixture__input_neighbours=0.01)),
    row("a teacher's answer is smooth", "", checks(mixture__input=0, mixture__target=0.8,
        mixture__target_kurtosis=3.0, mixture__target_neighbours=0.6)),
    row("x0 is not the one that was noised", "", checks(mixture__input=0.7, mixture__target=0,
        mixture__input_kurtosis=1.8, mixture__input_neighbours=0.9)),
    row("input perturbation", "", checks(mixture__input=0.1, mixture__target=0,
        mixture__input_kurtosis=3.0, mixture__input_neighbours=0.0)),
    row("neither is a mixture", "", checks(mixture__input=0.7, mixture__target=0.8, mixture__input_kurtosis=3.0,
        mixture__input_neighbours=0.0, mixture__target_kurtosis=3.0, mixture__target_neighbours=0.0)),
    row("a flow against its time", "target.against-time",
        checks(mixture__process=1, mixture__row=9, mixture__time=1)),
    row("a flow's ends swapped", "target.against-time",
        checks(mixture__process=1, mixture__row=3, mixture__time=-1)),
    row("a flow", "", checks(mixture__process=1, mixture__row=3, mixture__time=1)),
    row("a flow towards images", "", checks(mixture__process=1, mixture__row=9, mixture__time=-1)),
    row("x0 under a flow, towards images", "", checks(mixture__process=1, mixture__row=1, mixture__time=-1)),
    row("nothing is known of the flow's target", "", checks(mixture__process=1, mixture__row=-1, mixture__time=-1)),
    row("a flow's target in DDPM", "target.of-another-process",
        checks(mixture__process=0, mixture__row=3, mixture__time=1)),
    row("v in DDPM", "", checks(mixture__process=0, mixture__row=2, mixture__time=1)),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in target.RULES}
