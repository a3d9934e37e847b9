"""Histories for the rules of generalisation.py: sick, healthy and nearly sick."""

from __future__ import annotations

import pytest
from histories import LABELS, Series, checks, measured
from rule_rows import Row, check_row, fires_in, parameters, row

from safelight.diagnosis.rules import generalisation


def probed(trained: list[float], held: list[float], gap: list[float]) -> Series:
    """Losses of the two probe sets at four checkpoints."""
    steps = [31, 63, 95, 127]
    return measured(probe__raw=(steps, trained), probe__held_raw=(steps, held), probe__held_gap=(steps, gap))


def known(floor: list[float], trained: list[float], held: list[float] | None = None) -> Series:
    """The way to the floor and the skills at four checkpoints."""
    steps = [31, 63, 95, 127]
    found = measured(skill__floor=(steps, floor), skill__ema=(steps, trained))
    return found if held is None else found | measured(skill__held=(steps, held))


ROWS = [
    row("known by heart", "generalisation.memorised", known([.5, .9, .95, .96], [1, 2, 2.4, 2.5])),
    row("known by heart, unlike others", "generalisation.memorised",
        known([.5, .9, .95, .96], [1, 2, 2.4, 2.5], [1, 1.6, 1.7, 1.6])),
    row("near the floor, and others as well", "", known([.5, .9, .95, .96], [1, 2, 2.4, 2.5], [1, 2, 2.4, 2.45])),
    row("below the floor, as a model that is given labels may be", "", known([.5, 1.2, 1.6, 2.2], [1, 2, 2.4, 2.5])),
    row("near a floor of data without a skill", "", measured(skill__floor=([31, 63, 95, 127], [.5, .9, .95, .96]))),
    row("near a floor that knows no labels", "", known([.5, .9, .95, .96], [1, 2, 2.4, 2.5]),
        settings={"model.conditional": True}),
    row("halfway to the floor", "", known([.2, .4, .6, .7], [1, 2, 2.4, 2.5])),
    row("near the floor once", "", known([.2, .95, .6, .7], [1, 2, 2.4, 2.5])),
    row("copies", "generalisation.copies", measured(copies__share=([31, 127], [0, 0.08]),
        copies__chance=([31, 127], [1, 1e-6]))),
    row("a chance that many looks make likely", "", measured(copies__share=([31, 63, 127], [0, 0, 0.02]),
        copies__chance=([31, 63, 127], [1, 1, 0.002]))),
    row("eight images", "generalisation.overfitting", checks(stream__different=([0, 127], [8, 8]))),
    row("forty images", "", checks(stream__different=([0, 127], [8, 40]))),
    row("too early to say that there are few", "",
        checks(stream__different=([0, 16], [8, 8]), stream__drawn=([0, 16], [8, 128]))),
    row("held-out images become worse", "generalisation.held-out", probed([.5, .3, .2, .1], [.5, .32, .3, .36],
        [0, 2, 6, 12])),
    row("held-out images that are harder", "", probed([.5, .3, .2, .1], [.6, .45, .35, .3], [9, 9, 9, 9])),
    row("both become worse", "", probed([.5, .3, .2, .3], [.5, .32, .3, .44], [0, 2, 6, 9])),
    row("a rise that chance could have made", "", probed([.5, .3, .2, .1], [.5, .32, .3, .36], [0, 1, 2, 3.5])),
    row("worse, and then better", "generalisation.held-out", probed([.5, .2, .1, .2], [.5, .25, .3, .21],
        [0, 4, 12, 1])),
    row("classes never come", "generalisation.missing-modes", LABELS | checks(stream__shown_kinds=7)),
    row("classes have not come yet", "", LABELS | checks(stream__shown_kinds=7, stream__labels_drawn=400)),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in generalisation.RULES}
