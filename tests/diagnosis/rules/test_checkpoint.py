"""Histories for the rules of checkpoint.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import checks
from rule_rows import Row, check_row, fires_in, parameters, row

from safelight.diagnosis.rules import checkpoint

ROWS = [
    row("moments are lost", "checkpoint.optimizer-lost", checks(checkpoint__optimizer=1, checkpoint__step=1)),
    row("resumed without moments", "checkpoint.optimizer-lost:warning",
        checks(resume__step=5000, resume__optimizer=0, resume__copied=0)),
    row("resumed with all", "", checks(resume__step=5000, resume__optimizer=5000, resume__copied=0)),
    row("resumed with an average made anew", "checkpoint.average-lost:warning",
        checks(resume__step=5000, resume__optimizer=5000, resume__copied=1)),
    row("the average is lost", "checkpoint.average-lost", checks(checkpoint__average=1)),
    row("weights are rounded", "checkpoint.not-exact", checks(checkpoint__model=0.5, checkpoint__step=1)),
    row("something else is missing", "checkpoint.not-exact", checks(checkpoint__step=1)),
    row("gradients that are carried over are in no checkpoint", "optimizer.no-zero-grad",
        checks(checkpoint__step=1, sentinel__carried=np.ones(128))),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in checkpoint.RULES}
