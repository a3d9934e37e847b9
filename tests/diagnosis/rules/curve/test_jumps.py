"""Histories of losses that spike or drop: sick, healthy and nearly sick."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from histories import Series, chance, checks, measured
from loss_curves import dropped, healthy_curve, spiked
from rule_rows import Row, case_of, check_row, fires_in, parameters, row

from safelight.diagnosis.doctor import examine
from safelight.diagnosis.rules.curve import jumps

CALM = healthy_curve(7, steps=400, batch=64)


def only_loss(losses: np.ndarray, **rest: Any) -> Series:
    return measured(loss__mean=(np.arange(len(losses)), losses), **rest)


def levels(until: int, count: int = 16) -> Series:
    """A reading of each noise level every 64 steps; later than `until` only of the first ones."""
    ends = np.arange(63, 400, 64)
    return {
        f"loss/level/{level:02d}": (kept, np.ones(len(kept)))
        for level in range(16)
        if len(kept := ends[(ends < until) | (level < count)])
    }


def images(after: float) -> Series:
    """The deviation of the images of each batch; another one from step 200 on, 0.7 before."""
    steps = np.arange(400)
    deviations = np.where(steps < 200, 0.7, after) + chance(-0.02, 0.02, 400)
    return checks(batch__std=(steps, deviations), batch__reach=(steps, np.ones(400)))


ROWS = [
    row("from 0.2 to 7 for forty steps", "loss.spike", only_loss(spiked(CALM)), whole=True),
    row("four times the loss for twenty steps", "loss.spike", only_loss(spiked(CALM, 4.0, 20)), whole=True),
    row("the same with images as usual", "loss.spike", only_loss(spiked(CALM, 4.0, 20)) | images(0.7), whole=True),
    row("a high loss for five steps", "", only_loss(spiked(CALM, 35.0, 5)), whole=True),
    row("half as much for twenty steps", "", only_loss(spiked(CALM, 1.5, 20)), whole=True),
    row("a tenth of the loss at once", "loss.drop", only_loss(dropped(CALM)), whole=True),
    row("a tenth of the loss, of few noise levels", "loss.drop",
        only_loss(dropped(CALM, 10.0)) | levels(200, 3), whole=True),
    row("half of the loss at once", "", only_loss(dropped(CALM, 2.0)), whole=True),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in jumps.RULES}


def named(series: Series) -> Any:
    return examine(case_of(row("", "", series, whole=True)))[0]


@pytest.mark.parametrize(
    ("series", "words", "ruled_out"),
    [
        (only_loss(dropped(CALM)) | levels(200, 3), "timesteps have collapsed", ""),
        (only_loss(dropped(CALM)) | levels(200), "has become easier", "all noise levels"),
        (only_loss(dropped(CALM)) | images(0.7), "has become easier", "blank images"),
        (only_loss(spiked(CALM)) | images(0.7), "stayed there for", "bad images"),
        (only_loss(spiked(CALM)), "stayed there for", "hard batch"),
    ],
)
def test_what_is_known_beside_the_loss_is_told(series: Series, words: str, ruled_out: str) -> None:
    finding = named(series)
    assert words in finding.summary
    assert ruled_out in " ".join(finding.ruled_out)


def test_images_that_are_as_usual_are_not_blamed() -> None:
    assert "images" in named(only_loss(spiked(CALM))).fix.text
    assert "images" not in named(only_loss(spiked(CALM)) | images(0.7)).fix.text
