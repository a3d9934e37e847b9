"""Histories for the rules of loss: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import ERROR, STEPS, broken, chance, checks, flagged, measured, refusals
from rule_rows import NO_GRADIENT, PARTS_STILL, STILL, Row, case_of, check_row, fires_in, only_monitors, parameters, row

from safelight.diagnosis.doctor import examine
from safelight.diagnosis.rules import loss

WEIGHTED = checks(replay__told=0.5 * ERROR[:3])  # a loss that is not the squared error itself
GROWING = np.exp(np.maximum(STEPS - 40, 0) / 20)  # to 77 times
RUNAWAY = np.where(STEPS < 60, ERROR, 5.0)
BROKEN = np.where(STEPS < 100, ERROR, np.nan)  # errors, from an update on that was not finite

ROWS = [
    row("one refused update", "loss.nonfinite", measured(update__refused=flagged([40])), events=(*refusals([40]),)),
    row("stopped", "loss.nonfinite", measured(update__refused=flagged([120, 121])),
        events=(*refusals([120, 121]), (121, "stopped", {"first_nonfinite": "the output of mid_block"}))),
    row("a foreign loop", "loss.nonfinite", events=((9, "nonfinite", {"parameters": ["body.bias"], "count": 1}),)),
    row("fp16 looks for its scale", "", measured(update__refused=flagged(range(12))),
        events=(*refusals(range(12), overflow=True),)),
    row("no gradient at all, without probes", "loss.detached", only_monitors(NO_GRADIENT | PARTS_STILL), whole=True),
    row("no gradient at all", "loss.detached", NO_GRADIENT | STILL | PARTS_STILL | checks(replay__norm=np.zeros(3),
        replay__came=np.full(3, -1.0), replay__cosine=np.zeros(3), sentinel__gradient=np.zeros(128),
        update__expected=np.zeros(3), update__alignment=np.zeros(3), update__lost=np.zeros(3))),
    row("the sign is turned", "loss.sign", checks(replay__cosine=np.full(3, -1.0))),
    row("L1", "", WEIGHTED | checks(replay__cosine=np.full(3, 0.8), replay__ratio=np.full(3, 0.6))),
    row("another gradient of the plain error", "loss.not-of-prediction", checks(replay__cosine=np.full(3, 0.6))),
    row("its numbers are clipped one by one", "", checks(replay__cosine=np.full(3, 0.85))),
    row("bf16 turns the gradient a little", "", checks(replay__cosine=np.full(3, 0.98))),
    row("the weight is not finite", "loss.weight-nonfinite",
        checks(finite__loss=([7, 9], [0, 0]), finite__loss_number=([7, 9], [0, 0]))),
    row("a loss that is NaN by itself", "loss.weight-nonfinite", checks(finite__loss=([7, 30], [0, 0]))),
    row("a loss that was NaN just now", "loss.weight-nonfinite", checks(finite__loss=([120], [0]))),
    row("a loss that was NaN once", "loss.nonfinite",
        checks(finite__loss=([7], [0])) | measured(loss__mean=(STEPS, np.where(STEPS == 7, np.nan, ERROR))),
        events=(*refusals([7]),)),
    row("a loss that was NaN once, and no gradient", "loss.weight-nonfinite", checks(finite__loss=([7], [0]))),
    row("prediction and loss are not finite", "model.nonfinite",
        checks(finite__loss=([7], [0]), finite__pred=([7], [0]))),
    row("broadcast", "loss.shape", checks(loss__same_shape=0)),
    row("a gradient of something else", "loss.not-of-prediction", checks(replay__cosine=[0.02, -0.1, 0.05])),
    row("a gradient that has half of its signs", "loss.not-of-prediction",
        checks(replay__cosine=np.full(3, 0.5), replay__signs=np.full(3, 0.7))),
    row("numbers that are clipped one by one", "",
        checks(replay__cosine=np.full(3, 0.5), replay__signs=np.full(3, 1.0))),
    row("one tensor goes the other way", "loss.not-of-prediction",
        checks(replay__cosine=np.full(3, 0.9), replay__worst=np.full(3, -0.9))),
    row("one tensor is hardly of the same mind", "", checks(replay__worst=np.full(3, 0.2))),
    row("below zero and on, only the loss is told", "loss.sign",
        measured(loss__mean=(STEPS, -1.0 - STEPS / 4)), whole=True),
    row("below zero and at rest, only the loss is told", "",
        measured(loss__mean=(STEPS, -1.0 - STEPS / 400)), whole=True),
    row("only the loss is told, and it runs away", "loss.diverged",
        measured(loss__mean=(STEPS, np.where(STEPS < 60, 1.0, STEPS - 40.0))), whole=True),
    row("only the loss is told, and it rises a little", "loss.spike",
        measured(loss__mean=(STEPS, np.where(STEPS < 60, 1.0, 4.0))), whole=True),
    row("the loss and the targets grow together", "loss.diverged",
        measured(loss__mean=(STEPS, GROWING)) | checks(loss__error=GROWING, loss__told=GROWING, loss__zero=GROWING)),
    row("the targets become twice as large", "", measured(loss__mean=(STEPS, np.where(STEPS < 60, 0.3, 0.35)))
        | checks(loss__zero=np.where(STEPS < 60, 1.0, 2.0))),
    row("a gradient of something else, once", "", checks(replay__cosine=[0.05, 0.9, 0.9])),
    row("a gradient of exactly nothing", "loss.not-of-prediction", checks(replay__norm=np.zeros(3),
        replay__came=np.zeros(3))),
    row("weights that swing", "loss.weighting", WEIGHTED | checks(loss__told=ERROR * np.exp(3 * chance(-1, 1)))),
    row("a few samples decide", "loss.weighting", WEIGHTED | checks(replay__cosine=np.full(3, 0.3))),
    row("half of the samples weigh nothing", "loss.weighting", checks(answer__unheard=np.full(16, 0.5))),
    row("a sample weighs nothing now and then", "", checks(answer__unheard=(STEPS, (STEPS % 9 == 0) * 0.2))),
    row("few timesteps weigh nothing", "", checks(answer__unheard=np.full(16, 0.01))),
    row("min-SNR", "",
        WEIGHTED | checks(replay__cosine=np.full(3, 0.6), loss__told=ERROR * np.exp(0.5 * chance(-1, 1)))),
    row("diverged", "loss.diverged", checks(loss__error=RUNAWAY, loss__told=RUNAWAY)),
    row("diverged until no error is a number", "loss.diverged",
        checks(loss__error=np.where(STEPS < 100, RUNAWAY, np.nan)), events=broken(range(100, 128))),
    row("errors that are no numbers any more", "loss.nonfinite:error",
        measured(loss__mean=(STEPS, BROKEN)) | checks(loss__error=BROKEN, loss__told=BROKEN),
        events=broken(range(100, 128))),
    row("one error that is no number", "loss.nonfinite:warning",
        checks(loss__error=np.where(STEPS == 125, np.nan, ERROR)), events=broken([90])),
    row("only the loss is told, and it is no number any more", "loss.nonfinite",
        measured(loss__mean=(STEPS, BROKEN)), whole=True, events=broken(range(100, 128))),
    row("only the loss is told, and it runs away until it is no number", "loss.diverged",
        measured(loss__mean=(STEPS, np.where(STEPS < 100, 1.0 + np.maximum(STEPS - 60, 0), np.nan))), whole=True,
        events=broken(range(100, 128))),
    row("back to the zero predictor", "", checks(loss__error=np.where(STEPS < 60, ERROR, 1.0))),
    row("a spike that is over", "", checks(loss__error=np.where((STEPS >= 60) & (STEPS < 64), 5.0, ERROR))),
    row("errors that stay where a kick brought them", "loss.diverged",
        measured(gradient__norm=(STEPS, np.where(STEPS == 60, 30.0, 0.3)), loss__mean=(STEPS, RUNAWAY))
        | checks(loss__error=RUNAWAY, loss__told=RUNAWAY)),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in loss.RULES}


@pytest.mark.parametrize(("steps", "words"), [([40], "1 update had"), ([40, 41], "2 updates had")])
def test_refused_updates_are_counted_in_grammatical_words(steps: list[int], words: str) -> None:
    given = row("refused", "loss.nonfinite", measured(update__refused=flagged(steps)), events=(*refusals(steps),))
    [found] = [each for each in examine(case_of(given)) if each.code == "LOS001"]
    assert found.summary.startswith(words)
    assert (", and was refused" in found.summary) == (len(steps) == 1)
    assert (", and were refused" in found.summary) == (len(steps) > 1)
