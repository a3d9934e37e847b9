"""Histories for the rules of target.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import checks
from rule_rows import Row, check_row, fires_in, parameters, row, without

from safelight.diagnosis.rules import target

ROWS = [
    row("another type", "target.other-type", checks(target__epsilon=np.full(16, 1.5), target__sample=np.zeros(16))),
    row("declared as v, and is v", "", checks(target__declared=2, target__epsilon=np.full(16, 1.5),
        target__v_prediction=np.zeros(16))),
    row("nothing was declared", "", without("target/declared") | checks(target__epsilon=np.full(16, 1.5)), whole=True),
    row("fresh noise", "target.fresh-noise", checks(target__epsilon=np.full(16, 1.4),
        target__epsilon_cosine=np.zeros(16), target__v_prediction_cosine=np.zeros(16))),
    row("a scaled target", "target.wrong", checks(target__epsilon=np.full(16, 0.5))),
    row("a target in bf16", "", checks(target__epsilon=np.full(16, 0.004))),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in target.RULES}
