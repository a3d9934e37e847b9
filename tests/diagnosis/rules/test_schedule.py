"""Histories for the rules of schedule.py: sick, healthy and nearly sick."""

from __future__ import annotations

import pytest
from histories import checks
from rule_rows import Row, check_row, fires_in, parameters, row

from safelight.diagnosis.rules import schedule

ROWS = [
    row("a schedule that rises", "schedule.not-decreasing", checks(schedule__rising=1, schedule__last=0.99)),
    row("betas the wrong way round", "schedule.not-decreasing", checks(schedule__betas_falling=0.99)),
    row("signal is left", "schedule.signal-left", checks(schedule__last=0.2)),
    row("Stable Diffusion's own schedule", "", checks(schedule__last=0.0047)),
    row("alphas that are not cumulated", "schedule.not-cumulated:error",
        checks(schedule__uncumulated=1, schedule__last=0.98)),
    row("no signal at all, epsilon", "schedule.zero-snr-epsilon", checks(schedule__last=0)),
    row("no signal at all, v", "", checks(schedule__last=0, schedule__epsilon=0)),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in schedule.RULES}
