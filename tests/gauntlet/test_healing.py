"""The ward: who counts as mended, and what is written of it."""

from __future__ import annotations

import math

import pytest

from gauntlet.healing import ILLNESSES, Outcome, healthy, ill, is_mended, letter
from safelight.config.resolve import resolve


@pytest.mark.parametrize(
    ("acts", "twin_acts", "probe", "mended"),
    [
        (("redo",), (), 1.0, True),
        (("redo",), (), 1.019, True),
        (("redo",), (), 1.021, False),
        ((), (), 1.0, False),  # it was not noticed
        (("redo",), ("redo",), 1.0, False),  # the twin was touched
        (("redo",), (), math.nan, False),
    ],
)
def test_mended_is_near_the_twin_and_done_by_an_act(
    acts: tuple[str, ...], twin_acts: tuple[str, ...], probe: float, mended: bool
) -> None:
    assert is_mended(Outcome("x", 0, twin_acts, 1.0), Outcome("x", 0, acts, probe)) is mended


def test_the_letter_names_what_should_not_have_been_touched() -> None:
    name = ILLNESSES[0].name
    sick = [Outcome(name, 0, (), 1.0), Outcome(name, 0, ("quarantine",), 1.5)]
    text = letter(sick, [Outcome("odd recipe", 7, ("redo",), 1.0), Outcome("fine", 8, (), 1.0)], "command")
    assert "**0 of 1**" in text
    assert "+50.00%" in text
    assert "**1 of 2**" in text
    assert "odd recipe (seed 7)" in text


def test_every_ill_run_follows_its_twin_and_healthy_recipes_are_allowed() -> None:
    stays = ill(2)
    assert len(stays) == 4 * len(ILLNESSES)
    for twin, run in zip(stays[::2], stays[1::2], strict=True):
        assert (twin.illness is None, twin.name, twin.seed, twin.settings) == (True, run.name, run.seed, run.settings)
    recipes = healthy(300)
    assert len({recipe.name for recipe in recipes}) > 290
    for recipe in recipes:
        resolve(preset="digits", settings=recipe.settings)
