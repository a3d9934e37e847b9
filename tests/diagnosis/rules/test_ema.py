"""Histories for the rules of ema.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import STEPS, Series, checks, flagged, measured, refusals
from rule_rows import Row, check_row, fires_in, only_monitors, parameters, row

from safelight.diagnosis.rules import ema


def compared(raw: list[float], ema: list[float], gain: list[float]) -> Series:
    """Weights and EMA on the fixed set, at four checkpoints of a run of 128 steps."""
    steps = [31, 63, 95, 127]
    return measured(probe__raw=(steps, raw), probe__ema=(steps, ema), probe__ema_gain=(steps, gain))


def decay(*decays: float) -> Series:
    return checks(average__decay=([1, 2, 3, 16], decays), average__moved=([1, 2, 3, 16], np.subtract(1, decays)))


LONG = {"ema.kind": "exponential", "ema.warmup": False, "ema.decay": 0.9999}

EARLY = [0, 1, 2, 64]
TOO_LONG = checks(
    average__decay=([1, 2, 3, 16, 96], np.full(5, 0.9999)), average__moved=([1, 2, 3, 16, 96], np.full(5, 1e-4))
)
EARLY_LONG = checks(
    average__decay=([1, 2, 3, 16], np.full(4, 0.9999)), average__moved=([1, 2, 3, 16], np.full(4, 1e-4))
)
COPIES = checks(
    average__decay=([1, 2, 3, 64, 128, 192], np.zeros(6)), average__moved=([1, 2, 3, 64, 128, 192], np.ones(6))
)

ROWS = [
    row("an average that lags at the end", "ema.lags", compared([.5, .4, .3, .3], [.7, .6, .5, .4], [-9, -9, -9, -9]),
        settings={"train.steps": 128}),
    row("an average that lags halfway", "", compared([.5, .4, .3, .3], [.7, .6, .5, .4], [-9, -9, -9, -9]),
        settings={"train.steps": 256}),
    row("an average that may lag by chance", "", compared([.5, .4, .3, .3], [.7, .6, .5, .4], [-9, -9, -3, -3]),
        settings={"train.steps": 128}),
    row("an average that lags by a hair", "", compared([.5, .4, .3, .3], [.7, .6, .302, .302], [-9, -9, -9, -9]),
        settings={"train.steps": 128}),
    row("an average longer than the run", "ema.too-long", settings=LONG | {"train.steps": 2000}),
    row("long enough", settings=LONG | {"train.steps": 60_000}),
    row("warmed up", settings=LONG | {"train.steps": 2000, "ema.warmup": True}),
    row("a foreign average that is too long so far", "ema.too-long:info", TOO_LONG),
    row("a foreign average that is too long for what is planned", "ema.too-long:error", TOO_LONG, planned=2000),
    row("a foreign average that will have its time", "", TOO_LONG, planned=60_000),
    row("a foreign average that samples are drawn from", "ema.too-long:warning", TOO_LONG
        | checks(pictures__apart=([63], [0.1]), pictures__distance=([63], [0.05]))),
    row("a foreign average of a hundred steps", "", checks(
        average__decay=([1, 2, 3, 16, 96], np.full(5, 0.99)), average__moved=([1, 2, 3, 16, 96], np.full(5, 1e-2)))),
    row("an average that stands still", "ema.frozen", checks(average__moved=([1, 2, 3, 16, 32], np.zeros(5)),
        average__decay=([1, 2, 3, 16, 32], np.ones(5)), average__same=(STEPS[:40], np.ones(40)))),
    row("a copy that is named as an average and stands", "ema.frozen:info",
        only_monitors(checks(average__still=([8, 16], [8, 16]))), whole=True),
    row("a copy that stands, and is sampled", "ema.frozen:warning",
        only_monitors(checks(average__still=([8, 16], [8, 16]), average__called=([9], [1]))), whole=True),
    row("a copy that stands for long, and is sampled", "ema.frozen:error",
        only_monitors(checks(average__still=([8, 2048], [8, 2048]), average__called=([9], [1]))), whole=True),
    row("a copy that stood for few updates", "", only_monitors(checks(average__still=([8, 9], [7, 0]))), whole=True),
    row("a long average, early", "ema.too-long:info", EARLY_LONG),
    row("a long average that is sampled early", "ema.too-long:warning",
        EARLY_LONG | checks(average__called=([9], [1]))),
    row("a shorter average, early", "", checks(average__decay=([1, 2, 3, 16], np.full(4, 0.999)),
        average__moved=([1, 2, 3, 16], np.full(4, 1e-3)))),
    row("an average that is moved at every tenth update", "", checks(
        average__moved=([1, 2, 3, 16, 32], np.zeros(5)), average__decay=([1, 2, 3, 16, 32], np.ones(5)),
        average__same=(STEPS[:64], (STEPS[:64] % 10 != 0) * 1.0))),
    row("an average that stops later", "ema.frozen", checks(
        average__same=([*range(64), 64, 65, 96, 97, 128, 129, 160], [*[0] * 64, 0, 0, 0, 1, 1, 1, 1]))),
    row("an average that begins late", "", checks(average__moved=([1, 2, 3, 16, 32], [0, 0, 0.01, 0.01, 0.01]))),
    row("an average in half precision", "ema.low-precision", checks(average__coarse=([1, 2, 3, 16, 32], np.ones(5)),
        average__moved=([1, 2, 3, 16, 32], np.zeros(5)))),
    row("moved between micro-batches", "ema.every-micro-batch", checks(average__between=([1, 2], [1, 1]))),
    row("not an average", "ema.not-an-average", checks(average__left=([1, 2, 3, 16, 32], np.full(5, 0.5)))),
    row("a copy until it begins", "ema.not-an-average:info", COPIES),
    row("a copy, and the run is half over", "ema.not-an-average:warning", COPIES, planned=200),
    row("a copy, and most of the run is to come", "ema.not-an-average:info", COPIES, planned=100_000),
    row("a copy at first", "", checks(average__decay=([1, 2, 3, 64, 128, 192], [0, 0, 0, 0, 0.9, 0.99]),
        average__moved=([1, 2, 3, 64, 128, 192], np.full(6, 0.5)))),
    row("an average with swapped factors", "ema.not-an-average:error", decay(0.005, 0.005, 0.005, 0.005)),
    row("an average of two updates", "ema.not-an-average:warning", decay(0.45, 0.45, 0.45, 0.45)),
    row("a short average", "", decay(0.6, 0.6, 0.6, 0.6)),
    row("a decay that warms up", "", decay(0.18, 0.25, 0.31, 0.67)),
    row("a decay that warms up slowly", "", decay(0.06, 0.12, 0.17, 0.49)),
    row("a decay that grows by a thousandth with every step", "", decay(0.002, 0.003, 0.004, 0.017)),
    row("swapped factors, seen twice", "ema.not-an-average:error", checks(average__decay=([3, 17], [0.005, 0.005]))),
    row("a copy until it begins, so far", "", decay(0, 0, 0, 0)),
    row("a copy in half precision", "", decay(0.004, 0.003, 0.002, 0.002)
        | checks(average__rounding=([1, 2, 3, 16], np.full(4, 0.02)))),
    row("the weights themselves", "ema.not-an-average:error", checks(average__shared=(EARLY, np.ones(4)))),
    row("one tensor that is shared", "", checks(average__shared=(EARLY, np.full(4, 0.02)))),
    row("another network", "ema.unrelated:error", checks(average__cosine=(EARLY, np.full(4, 0.02)))),
    row("another network, forgotten soon", "", checks(average__cosine=(EARLY, [0.02, 0.1, 0.2, 0.95]))),
    row("an average that lags far behind", "", checks(average__cosine=(EARLY, [1, 0.99, 0.9, 0.4]))),
    row("not an average, once", "", checks(average__left=([1, 2, 3, 16, 32], [0, 0, 0.5, 0, 0]))),
    row("our own average stands still", "ema.frozen",
        checks(average__moved=([1, 2, 3, 16, 32], [0.01, 0.01, 0.01, 0, 0])), settings={"train.steps": 2000}),
    row("our own average, while updates are refused", "loss.nonfinite",
        checks(average__moved=([1, 2, 3, 16, 32], [0.01, 0, 0, 0.01, 0.01]))
        | measured(update__refused=flagged([1, 2])), events=(*refusals([1, 2]),), settings={"train.steps": 2000}),
    row("an average that is never drawn from", "ema.not-sampled",
        checks(pictures__apart=([63, 127], [0, 0]), pictures__distance=([63, 127], [0.05, 0.05]))),
    row("an average that has caught up", "",
        checks(pictures__apart=([63, 127], [0, 0]), pictures__distance=([63, 127], [1e-5, 1e-5]))),
    row("pictures of an average", "",
        checks(pictures__apart=([63, 127], [0.1, 0.1]), pictures__distance=([63, 127], [0.05, 0.05]))),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in ema.RULES}
