"""Histories for the rules of optimizer: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import LOOKS, STEPS, checks, flagged, measured, refusals
from rule_rows import NO_GRADIENT, PARTS_STILL, STILL, Row, check_row, fires_in, only_monitors, parameters, row

from safelight.diagnosis.rules import optimizer

ROWS = [
    row("weights stand still, without probes", "optimizer.no-update", only_monitors(PARTS_STILL), whole=True),
    row("one of two updates, without probes", "",
        only_monitors(PARTS_STILL | measured(update__ratio__conv_out=([0, 64], [0, 1e-7]))), whole=True),
    row("weights stand still", "optimizer.no-update", STILL),
    row("trained beside its adapters", "optimizer.base-trained", checks(adapter__base_trained=1, adapter__dead=0)),
    row("norms trained beside adapters", "", checks(adapter__base_trained=0.01, adapter__dead=0)),
    row("adapters that came after the optimizer", "optimizer.adapters-missing:error",
        checks(adapter__missing=1, optimizer__missing=1, optimizer__foreign=0)),
    row("adapters that the optimizer holds", "", checks(adapter__missing=0)),
    row("an optimizer of what was frozen later", "optimizer.other-parameters",
        checks(optimizer__missing=1, optimizer__foreign=0)),
    row("adapters of zeros", "optimizer.adapter-dead:error", checks(adapter__base_trained=0, adapter__dead=0.25)),
    row("frozen weights that changed", "optimizer.frozen-changed", checks(optimizer__frozen_changed=([16], [1.0]))),
    row("the optimizer is never called", "optimizer.no-update", events=((0, "no_update", {"batches": 3}),)),
    row("a sentinel that stands still late", "optimizer.no-update",
        checks(sentinel__moved=np.where(STEPS < 90, 1.0, 0.0))),
    row("a sentinel that stood still twice", "", checks(sentinel__moved=np.where(np.isin(STEPS, [90, 91]), 0.0, 1.0))),
    row("refused when it was looked at", "loss.nonfinite",
        only_monitors(measured(update__ratio__conv_in=([64], [0]), update__ratio__conv_out=([64], [0]),
                               update__refused=flagged([64]))), whole=True, events=(*refusals([64]),)),
    row("a gradient is there before the first one comes", "optimizer.no-zero-grad",
        checks(sentinel__carried=np.ones(128))),
    row("gradients that were not cleared twice", "",
        checks(sentinel__carried=np.where(np.isin(STEPS, [60, 61]), 1.0, 0.0))),
    row("gradients are never cleared", "optimizer.no-zero-grad",
        checks(replay__carried=([1, 2], [1.0, 1.0]), replay__cosine=[1, 0.7, 0.6], replay__ratio=[1, 1.4, 1.8])),
    row("a part of the gradient before", "", checks(replay__carried=([1, 2], [0.2, 0.2]))),
    row("carried, and not explained", "", checks(replay__carried=([1, 2], [1.0, 1.0]),
        replay__explained=([1, 2], [0.4, 0.4]))),
    row("another model", "optimizer.other-parameters", checks(optimizer__missing=1, optimizer__foreign=1)),
    row("a layer was replaced", "optimizer.other-parameters", checks(optimizer__missing=0.1, optimizer__foreign=0.1)),
    row("parameters are missing", "optimizer.missing-parameters", checks(optimizer__missing=0.1),
        events=((0, "parameters", {"missing": ["time.weight", "time.bias"]}),)),
    row("other parameters are there as well", "", checks(optimizer__foreign=0.3)),
    row("maximize", "optimizer.maximize", checks(optimizer__maximize=1, update__alignment=np.full(3, -0.8))),
    row("up the gradient, late", "optimizer.maximize",
        checks(update__alignment=([0, 1, 2, 64, 65], [0.8, 0.8, 0.8, -0.4, -0.4]),
               search__1=(LOOKS, np.full(7, 1.01))) | {"check/search/0.1": ([64], [1.01])}
        | measured(loss__mean=(STEPS, np.where(STEPS < 64, 0.3, 0.3 * 1.02 ** (STEPS - 63))))),
    row("momentum up the gradient, and the loss as before", "",
        checks(update__alignment=([0, 1, 2, 64, 65], [0.8, 0.8, 0.8, -0.4, -0.4]),
               search__1=(LOOKS, np.full(7, 1.01))) | {"check/search/0.1": ([64], [1.01])}
        | measured(loss__mean=(STEPS, np.full(128, 0.3)))),
    row("momentum that leads the other way for a while", "",
        checks(update__alignment=([0, 1, 2, 64, 65], [0.8, 0.8, 0.8, -0.4, -0.4]))),
    row("a negative rate", "optimizer.maximize", checks(update__alignment=np.full(3, -0.8))),
    row("momentum that leads the other way", "", checks(update__alignment=([0, 1, 2, 64], [0.8, 0.8, 0.6, -0.5]))),
    row("too much decay", "optimizer.weight-decay",
        checks(update__decay_share=np.full(3, 0.6), optimizer__weight_decay=1.0)),
    row("much decay at a small rate", "", checks(update__decay_share=np.full(3, 0.6))),
    row("too much decay later", "optimizer.weight-decay",
        checks(update__decay_share=([0, 1, 2, 64, 96], [0.01, 0.01, 0.01, 0.6, 0.6]),
               update__decay=([0, 1, 2, 64, 96], [0.01, 0.01, 0.01, 1, 1]))),
    row("too much decay at one look", "",
        checks(update__decay_share=([0, 1, 2, 64, 96], [0.01, 0.01, 0.01, 0.6, 0.01]),
               update__decay=([0, 1, 2, 64, 96], [0.01, 0.01, 0.01, 1, 0.01]))),
    row("cleared before the update", "optimizer.zeroed-gradients", NO_GRADIENT | STILL | checks(
        replay__norm=np.zeros(3), replay__cosine=np.zeros(3), sentinel__gradient=np.zeros(128),
        sentinel__came=np.full(128, 0.1), update__expected=np.zeros(3), update__alignment=np.zeros(3),
        update__lost=np.zeros(3))),
    row("something else wrote into the weights", "optimizer.not-its-update", checks(sentinel__changed=([60], [1.0]))),
    row("weights that are normalised after every update", "", checks(sentinel__changed=np.ones(128))),
    row("a decay that is added to the gradient", "optimizer.weight-decay", checks(update__decay_pull=np.full(3, 9.0))),
    row("a little decay that is added", "", checks(update__decay_pull=np.full(3, 0.5))),
    row("weights move otherwise", "optimizer.not-its-update", checks(update__error=[0.5, 0.5, 0.5])),
    row("weights move a little otherwise", "", checks(update__error=[0.01, 0.01, 0.01])),
    row("weights only decay", "optimizer.zeroed-gradients",
        checks(update__error=np.ones(3), update__decay_share=np.ones(3))),
    row("the optimizer forgets", "optimizer.not-its-update",
        checks(optimizer__forgotten=(np.arange(1, 16), np.ones(15)))),
    row("the optimizer was made anew once", "checkpoint.optimizer-lost",
        checks(optimizer__forgotten=(np.arange(1, 16), np.arange(15) == 5))),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in optimizer.RULES}
