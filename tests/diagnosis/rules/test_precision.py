"""Histories for the rules of precision.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import STEPS, checks, flagged, measured, refusals
from rule_rows import Row, check_row, fires_in, parameters, row

from safelight.diagnosis.rules import precision

ROWS = [
    row("a gradient out of nowhere", "precision.transient",
        measured(gradient__norm=(STEPS, np.where(STEPS == 60, 30.0, 0.3)))),
    row("a gradient eight times as large", "", measured(gradient__norm=(STEPS, np.where(STEPS == 60, 2.4, 0.3)))),
    row("halved without end", "precision.scale-halving", measured(update__refused=flagged(range(60, 128))),
        events=(*refusals(range(60, 128), overflow=True),)),
    row("a foreign scaler without end", "precision.scale-halving", measured(update__refused=flagged(range(60, 128)))),
    row("halved half of the time", "precision.scale-halving", measured(update__refused=flagged(range(97, 128, 2))),
        events=(*refusals(range(97, 128, 2), overflow=True),)),
    row("halved a little less", "", measured(update__refused=flagged(range(99, 128, 2))),
        events=(*refusals(range(99, 128, 2), overflow=True),)),
    row("fp16 without a scaler", "precision.no-scaler",
        checks(precision__half=np.ones(128), replay__vanished=np.full(3, 0.2))),
    row("fp16 with a scaler", "", checks(precision__half=np.ones(128), replay__vanished=np.full(3, 0.05),
        precision__scaled=1)),
    row("fp16 that holds all gradients", "", checks(precision__half=np.ones(128), replay__vanished=np.full(3, 0.001))),
    row("weights of 16 bits", "precision.lost-updates",
        checks(optimizer__half_weights=1, update__coarse=np.ones(3), update__lost=np.full(3, 0.8))),
    row("weights of 16 bits that move", "", checks(optimizer__half_weights=1, update__lost=np.full(3, 0.1))),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in precision.RULES}
