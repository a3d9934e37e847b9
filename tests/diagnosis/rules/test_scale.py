"""Histories for the rules of scale.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import checks
from rule_rows import Row, check_row, fires_in, parameters, row

from safelight.diagnosis.rules import scale

ROWS = [
    row("sigma_data of another set", "scale.sigma-data", checks(mixture__sigma_data=3.0)),
    row("the usual sigma_data", "", checks(mixture__sigma_data=0.5)),
    row("[0, 1]", "scale.range-0-1", checks(batch__lowest=np.zeros(128), batch__std=np.full(128, 0.3))),
    row("dark pictures in [-1, 1]", "", checks(batch__highest=np.full(128, 0.2))),
    row("[0, 1] in vectors", "", checks(batch__lowest=np.zeros(128), batch__dimensions=2, data__lowest=0)),
    row("[0, 255]", "scale.range-0-255", checks(batch__lowest=np.zeros(128), batch__highest=np.full(128, 255.0),
        batch__std=np.full(128, 80.0))),
    row("whole numbers", "scale.integer", checks(batch__integer=1)),
    row("latents without their factor", "scale.wrong-std", checks(batch__lowest=np.full(128, -19.0),
        batch__highest=np.full(128, 18.0), batch__std=np.full(128, 5.0), batch__dimensions=2)),
    row("latents with their factor", "", checks(batch__lowest=np.full(128, -4.0), batch__highest=np.full(128, 4.0),
        batch__std=np.full(128, 1.0), batch__dimensions=2)),
    row("normalised as for a classifier", "scale.outside", checks(batch__lowest=np.full(128, -2.1),
        batch__highest=np.full(128, 2.6))),
    row("a little beyond 1", "", checks(batch__highest=np.full(128, 1.05))),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in scale.RULES}
