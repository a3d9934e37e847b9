"""Histories for the rules of system.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import checks, measured
from rule_rows import Row, check_row, fires_in, parameters, row

from safelight.diagnosis.rules import system

WAITS = np.arange(0, 128, 16)

ROWS = [
    row("with gradients", "system.sampling-with-gradients", checks(sampler__with_gradients=1)),
    row("starved", "system.starved-loader", measured(speed__data_wait=(WAITS,
        [0.01, 0.01, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6]))),
    row("a slow start", "", measured(speed__data_wait=(WAITS, [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.1, 0.1]))),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in system.RULES}
