"""Histories for the rules of clipping.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import ERROR, STEPS, chance, checks, measured
from rule_rows import Row, case_of, check_row, fires_in, parameters, row

from safelight.diagnosis.doctor import examine
from safelight.diagnosis.rules import clipping

DIVERGING = np.where(STEPS == 60, 90.0, ERROR * np.exp(np.maximum(STEPS - 70, 0) / 8))

ROWS = [
    row("a batch of images that are far out", "clipping.outlier-batches",
        checks(batch__reach=np.where(STEPS == 60, 9.0, 1.0))),
    row("batches of images that differ a little", "", checks(batch__reach=np.where(STEPS == 60, 3.0, 1.0))),
    row("a batch that kicks", "clipping.outlier-batches",
        measured(gradient__norm=(STEPS, np.where(STEPS == 60, 30.0, 0.3)),
                 loss__mean=(STEPS, np.where(STEPS == 60, 90.0, ERROR)))
        | checks(loss__error=np.where(STEPS == 60, 90.0, ERROR), batch__std=np.where(STEPS == 60, 70.0, 0.7))),
    row("a batch with images as usual that kicks", "clipping.outlier-batches",
        measured(gradient__norm=(STEPS, np.where(STEPS == 60, 30.0, 0.3)),
                 loss__mean=(STEPS, np.where(STEPS == 60, 90.0, ERROR)))
        | checks(loss__error=np.where(STEPS == 60, 90.0, ERROR), batch__reach=np.ones(128))),
    row("a jolt that begins a divergence", "loss.diverged",
        measured(gradient__norm=(STEPS, np.where(STEPS == 60, 30.0, 0.3)), loss__mean=(STEPS, DIVERGING))
        | checks(loss__error=DIVERGING, batch__reach=np.ones(128))),
    row("norms that grow", "clipping.large-gradients",
        measured(gradient__norm=(STEPS, 0.3 * np.exp(np.maximum(STEPS - 64, 0) / 12)))),
    row("norms that grow a little", "",
        measured(gradient__norm=(STEPS, 0.3 * np.exp(np.maximum(STEPS - 64, 0) / 30)))),
    row("norms of thousands from the start", "clipping.large-gradients",
        measured(gradient__norm=(STEPS, chance(4900, 73800)), loss__mean=(STEPS, ERROR)), whole=True),
    row("norms of thousands of a loss that is summed", "",
        measured(gradient__norm=(STEPS, 7e3 * ERROR), loss__mean=(STEPS, 1e3 * ERROR)), whole=True),
    row("a hard batch", "", checks(loss__error=np.where(STEPS == 60, 2.0, ERROR))),
    row("clipped before it was unscaled", "clipping.before-unscale", checks(replay__norm=np.full(3, 1.5e-5),
        replay__ratio=np.full(3, 5e-5), precision__scaled=1)
        | measured(precision__scale=(STEPS, np.full(128, 65536.0)))),
    row("clipped after it was unscaled", "", checks(replay__norm=np.full(3, 0.1), replay__ratio=np.full(3, 0.33),
        precision__scaled=1) | measured(precision__scale=(STEPS, np.full(128, 65536.0)))),
    row("micro-batches are added", "accumulation.sum:warning",
        checks(replay__micro_batches=np.full(3, 4.0), replay__ratio=np.full(3, 4.0), accumulation__micro_batches=4)),
    row("micro-batches are added, which Adam does not feel", "accumulation.sum:info",
        checks(replay__micro_batches=np.full(3, 4.0), replay__ratio=np.full(3, 4.0), accumulation__micro_batches=4,
               optimizer__adaptive=1)),
    row("micro-batches are averaged", "",
        checks(replay__micro_batches=np.full(3, 4.0), accumulation__micro_batches=4)),
    row("only the last micro-batch counts", "accumulation.short-window",
        checks(replay__last_cosine=np.ones(3), replay__cosine=np.full(3, 0.5), replay__micro_batches=np.full(3, 4.0))),
    row("one micro-batch is all there is", "", checks(replay__last_cosine=np.ones(3))),
    row("a short last window", "accumulation.short-window",
        checks(accumulation__micro_batches=([0, 30, 31], [4, 2, 4]))),
    row("a short last window of Adam", "accumulation.short-window:info",
        checks(accumulation__micro_batches=([0, 30, 31], [4, 2, 4]), optimizer__adaptive=1)),
    row("always four", "", checks(accumulation__micro_batches=([0], [4]))),
]  # fmt: skip


def test_micro_batches_that_are_cleared_are_to_be_kept() -> None:
    given = next(each for each in ROWS if each.name == "only the last micro-batch counts")
    assert "Clear gradients once per window" in examine(case_of(given))[0].fix.text


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in clipping.RULES}


def test_images_that_are_as_usual_are_not_blamed() -> None:
    odd, usual = (next(each for each in ROWS if each.name == name) for name in (
        "a batch that kicks", "a batch with images as usual that kicks",
    ))  # fmt: skip
    assert "images" in examine(case_of(odd))[0].fix.text
    finding = examine(case_of(usual))[0]
    assert "images" not in finding.fix.text + finding.summary


def test_adam_does_not_feel_the_size() -> None:
    large = measured(gradient__norm=(STEPS, chance(4900, 73800)), loss__mean=(STEPS, ERROR))
    given = row("", "", large | checks(optimizer__adaptive=1), whole=True)
    assert [each.severity for each in examine(case_of(given))] == ["info"]
