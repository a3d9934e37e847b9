"""Histories for the rules of sampler.py: sick, healthy and nearly sick."""

from __future__ import annotations

import pytest
from histories import checks
from rule_rows import Row, check_row, fires_in, parameters, row, without

from safelight.diagnosis.rules import sampler

ROWS = [
    row("tells other times", "sampler.other-times", checks(sampler__first=0.76, sampler__right_for_time=3)),
    row("forgets c_in", "sampler.other-times", checks(sampler__left=0.3, sampler__right_unscaled=1)),
    row("noise after the last step", "sampler.last-noise", checks(sampler__left=0.1)),
    row("begins late", "sampler.starts-late", checks(sampler__first=0.5, sampler__left=0.4)),
    row("leading spacing", "", checks(sampler__first=0.95)),
    row("cut off", "sampler.clipped", checks(sampler__left=0.2, sampler__largest=0.5, sampler__at_limit=0.4,
        sampler__scale=0.8)),
    row("right for another table", "sampler.other-schedule", checks(sampler__left=0.4, sampler__right_for_table=1)),
    row("right for another type", "sampler.other-type", checks(sampler__left=4.0, sampler__right_for_type=1)),
    row("misses", "sampler.wrong", checks(sampler__left=2.0, sampler__path=3.0)),
    row("never asks the network", "sampler.wrong",
        without("check/sampler") | checks(sampler__finite=1, sampler__calls=0, sampler__left=1.4), whole=True),
    row("samples that are not finite", "sampler.wrong", checks(sampler__finite=0)),
    row("samples in [0, 1]", "", checks(sampler__scale=0.5, sampler__shift=0.5)),
    row("a narrower cloud of few steps", "", checks(sampler__cloud_spread=0.75)),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in sampler.RULES}
