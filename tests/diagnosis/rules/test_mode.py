"""Histories for the rules of mode.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import checks
from rule_rows import Row, check_row, fires_in, parameters, row

from safelight.diagnosis.rules import mode

ROWS = [
    row("trained in evaluation mode", "mode.eval-in-training", checks(mode__training=np.zeros(128))),
    row("evaluation mode, where it does not matter", "",
        checks(mode__training=np.zeros(128), network__depends_on_mode=0)),
    row("sampled in training mode", "mode.train-in-sampling", checks(sampler__in_training=1)),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in mode.RULES}
