"""Histories for the rules of lr.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import ERROR, LOOKS, STEPS, checks, measured
from rule_rows import PARTS_STILL, STILL, Row, check_row, fires_in, parameters, row

from safelight.diagnosis.rules import lr

RATES = np.full(128, 1e-3)

ROWS = [
    row("too high", "lr.too-high", checks(search__1=(LOOKS, [1.0, 1.0, 1.4, 2.0, 3.0, 5.0, 9.0]))),
    row("one update that destroys everything", "lr.too-high", checks(
        search__1=([1], [np.nan]), search__rate=([1], [0.1]), search__10=([1], [np.nan]),
        search__100=([1], [np.nan]), search__start=([1], [0.5]), search__zero=([1], [1.0]))
        | {f"check/search/{length}": ([1], [2.0]) for length in ("0.1", "0.3", "3")}),
    row("too high once", "", checks(search__1=(LOOKS, [1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0]))),
    row("a little too far", "", checks(search__1=(LOOKS, np.full(7, 1.1)))),
    row("too low", "lr.too-low", checks(search__1=(LOOKS, np.full(7, 0.99999)), search__10=(LOOKS, np.full(7, 0.9999)),
        search__100=(LOOKS, np.full(7, 0.998)), search__start=(LOOKS, np.full(7, 0.9)))),
    row("converged", "", checks(search__1=(LOOKS, np.full(7, 0.99999)), search__10=(LOOKS, np.full(7, 0.9999)),
        search__100=(LOOKS, np.full(7, 0.998)), search__start=(LOOKS, np.full(7, 0.2)))),
    row("warm-up", "", checks(search__1=(LOOKS, np.full(7, 0.99999)), search__10=(LOOKS, np.full(7, 0.9999)),
        search__100=(LOOKS, np.full(7, 0.998)), search__start=(LOOKS, np.full(7, 0.9)),
        search__rate=(LOOKS, 1e-6 * 1.5 ** np.arange(7)))),
    row("thrown about while the rate rises", "lr.too-high",
        checks(loss__error=np.where(np.isin(STEPS, [3, 4, 6, 9]), 3.0, ERROR))
        | measured(optimizer__lr=(STEPS, 1e-3 * np.minimum(1, (1 + STEPS) / 16)))),
    row("thrown about at the very first steps", "lr.no-warmup",
        checks(loss__error=np.where(np.isin(STEPS, [1, 2, 3]), 3.0, ERROR))),
    row("worse than nothing at two of the first steps", "",
        checks(loss__error=np.where(np.isin(STEPS, [1, 2]), 3.0, ERROR))),
    row("a network that begins loudly", "", checks(loss__error=4 * ERROR)),
    row("no warm-up", "lr.no-warmup", checks(search__1=(LOOKS, [4.0, 1.0, 0.9, 0.9, 0.9, 0.9, 0.9]))),
    row("a first update that is a little long", "", checks(search__1=(LOOKS, [2.0, 1.0, 0.9, 0.9, 0.9, 0.9, 0.9]))),
    row("a learning rate of zero", "lr.zero", STILL | PARTS_STILL | measured(optimizer__lr=(STEPS, np.zeros(128)))
        | checks(update__expected=np.zeros(3))),
    row("a warm-up from zero", "", measured(optimizer__lr=(STEPS, np.where(STEPS < 1, 0.0, 1e-3)))),
    row("over too early", "lr.ended-early", measured(optimizer__lr=(STEPS, np.where(STEPS < 60, 1e-3, 1e-8)))),
    row("a cosine that ends with the run", "",
        measured(optimizer__lr=(STEPS, 5e-4 * (1 + np.cos(np.pi * STEPS / 128))))),
    row("a jump", "lr.jump", measured(optimizer__lr=(STEPS, np.where(STEPS < 60, 1e-4, 1e-2)))),
    row("restarts", "", measured(optimizer__lr=(STEPS, 5e-4 * (1.01 + np.cos(np.pi * (STEPS % 32) / 32))))),
    row("a linear warm-up", "", measured(optimizer__lr=(STEPS, RATES * np.minimum(1, (1 + STEPS) / 64)))),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in lr.RULES}
