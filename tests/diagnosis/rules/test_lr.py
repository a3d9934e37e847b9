"""Histories for the rules of lr: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import ERROR, LOOKS, STEPS, Series, broken, checks, measured
from rule_rows import PARTS_STILL, STILL, Row, case_of, check_row, fires_in, parameters, row

from safelight.diagnosis.doctor import examine
from safelight.diagnosis.rules import lr

RATES = np.full(128, 1e-3)

OURS = {"train.steps": 128}  # a loop that is not ours has no settings to advise


def wrecked_at(rate: float, ratios: list[float]) -> Series:
    """A constant rate, whose first update has these errors behind it, the last one for ever."""
    after = np.concatenate([[1.0], ratios, np.full(60 - 1 - len(ratios), ratios[-1])])
    steps = STEPS[:60]
    bad = steps[~np.isfinite(after)]
    return (
        checks(loss__error=(steps, after), loss__zero=(steps, np.ones(60)), batch__reach=(steps, np.ones(60)))
        | checks(finite__pred=(steps[np.isnan(after)], np.zeros(np.isnan(after).sum())), finite__loss=(bad, 0 * bad))
        | measured(optimizer__lr=(steps, np.full(60, rate)), loss__mean=(steps, after))
        | {f"check/search/{length}": ([], []) for length in ("1", "0.3", "0.1", "3", "10", "100")}
    )


ROWS = [
    row("too high", "lr.too-high", checks(search__1=(LOOKS, [1.0, 1.0, 1.4, 2.0, 3.0, 5.0, 9.0]))),
    row("one update that destroys everything", "lr.too-high", checks(
        search__1=([1], [np.nan]), search__rate=([1], [0.1]), search__10=([1], [np.nan]),
        search__100=([1], [np.nan]), search__start=([1], [0.5]), search__zero=([1], [1.0]))
        | {f"check/search/{length}": ([1], [2.0]) for length in ("0.1", "0.3", "3")}),
    row("a schedule that is stepped between micro-batches", "lr.every-micro-batch:warning",
        checks(optimizer__rate_between=([3, 4, 5], np.ones(3)))),
    row("a rate that is set by hand between micro-batches, once", "", checks(optimizer__rate_between=([3], [1.0]))),
    row("too high once", "", checks(search__1=(LOOKS, [1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0]))),
    row("a little too far", "", checks(search__1=(LOOKS, np.full(7, 1.1)))),
    row("a rate that the preflight could not take", "lr.too-high",
        checks(trial__rate=0.1, trial__error=56, trial__holds=0.004)
        | measured(optimizer__lr=(STEPS[:20], np.linspace(0, 0.1, 20)))),
    row("a rate for which the preflight found no lower one", "lr.too-high", checks(trial__rate=0.1, trial__error=56)
        | measured(optimizer__lr=(STEPS[:20], np.linspace(0, 0.1, 20)))),
    row("a rate that only a warm-up makes possible", "", checks(trial__rate=0.02, trial__error=2.7, trial__holds=0.004)
        | measured(optimizer__lr=(STEPS[:20], np.linspace(0, 0.02, 20)))),
    row("a rate that the preflight could not take, and the run could", "",
        checks(trial__rate=0.1, trial__error=56, trial__holds=0.004)
        | measured(optimizer__lr=(STEPS, np.minimum(0.1, 0.002 * (1 + STEPS))))),
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
    row("thrown about at the very first steps, and since", "lr.too-high",
        checks(loss__error=np.where(STEPS < 1, ERROR, 40.0))),
    row("wrecked by the first update", "lr.too-high", wrecked_at(1.0, [1.4e6, 3.9e5, 4e3])),
    row("wrecked, to infinity and NaN", "lr.too-high", wrecked_at(1e5, [np.inf, np.nan, np.nan]),
        events=broken(range(1, 60))),
    row("made to overflow by the first update", "lr.too-high", wrecked_at(1e9, [np.nan] * 3),
        events=broken(range(1, 60))),
    row("a network that overflows at a usual rate", "model.nonfinite", wrecked_at(1e-3, [np.nan] * 3),
        events=broken(range(1, 60))),
    row("a first batch that is far out", "", checks(loss__error=np.where(STEPS == 1, 4e3, ERROR))),
    row("a search that meets NaN of the network", "", checks(search__1=([1], [np.nan]), search__rate=([1], [2e-3]))
        | {f"check/search/{length}": ([1], [ratio]) for length, ratio in (("0.1", 0.998), ("0.3", 0.994))}),
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


TRIED = checks(trial__rate=1.0, trial__error=5860, trial__holds=0.004)
OVERSHOT = checks(
    loss__error=np.where(np.isin(STEPS, [1, 2, 3]), 198.0, ERROR), search__1=(LOOKS, np.full(7, 0.95))
) | measured(optimizer__lr=(STEPS, 0.2 * np.minimum(5, 1 + STEPS)))  # no longer at its peak when it overshot
RAISED = checks(search__1=(LOOKS, np.full(7, 9.0)), search__rate=(LOOKS, np.full(7, 1.0)))
HELD_ONLY_SHORT = {f"check/search/{length}": (LOOKS, np.full(7, ratio)) for length, ratio in (
    ("0.3", 4.0), ("0.1", 1.4), ("0.03", 1.1), ("0.01", 1.01), ("0.003", 0.9))}  # fmt: skip


@pytest.mark.parametrize(
    ("series", "rate"),
    [
        (TRIED | measured(optimizer__lr=([0], [0.1])), 0.004),
        (TRIED | OVERSHOT, 0.004),
        (TRIED | RAISED | HELD_ONLY_SHORT, 0.004),
        (OVERSHOT, 0.004),
        (RAISED | HELD_ONLY_SHORT, 0.003),
        (RAISED | HELD_ONLY_SHORT | OVERSHOT | RAISED, 0.003),
        (wrecked_at(1.0, [1.4e6, 3.9e5, 4e3]), 0.0003),
        (wrecked_at(10.0, [9.6e13, 3.8e13, 1e9]), 0.0001),
        (wrecked_at(1e3, [9e29, np.inf, np.nan]), 0.0001),
        (wrecked_at(1e5, [np.inf, np.nan, np.nan]), 0.0001),
        (wrecked_at(1e9, [np.nan, np.nan, np.nan]), 0.0001),
        (wrecked_at(3e-4, [4e3, 4e3, 4e3]), 1e-6),
    ],
)
def test_one_finding_advises_one_rate(series: Series, rate: float) -> None:
    finding = next(
        each for each in examine(case_of(row("too high", "", series, settings=OURS))) if each.cause == "lr.too-high"
    )
    assert finding.fix.set == {"optimizer.lr": rate}
    assert finding.fix.text == f"Lower the learning rate to about {rate:g}."


@pytest.mark.parametrize(
    ("hundred", "far", "rate"),
    [(0.998, 2.0, 1e-5), (0.99, 0.7, 1e-3), (0.9999, 0.9, 1e-3)],  # the rate is 1e-6
)
def test_a_rate_that_is_too_low_is_raised_along_the_line(hundred: float, far: float, rate: float) -> None:
    series = checks(
        search__1=(LOOKS, np.full(7, 0.99999)),
        search__10=(LOOKS, np.full(7, 0.99999)),
        search__100=(LOOKS, np.full(7, hundred)),
        search__10000=(LOOKS, np.full(7, far)),
        search__start=(LOOKS, np.full(7, 0.9)),
        search__rate=(LOOKS, np.full(7, 1e-6)),
    )
    [finding] = examine(case_of(row("too low", "", series, settings=OURS)))
    assert (finding.cause, finding.fix.set) == ("lr.too-low", {"optimizer.lr": rate})


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in lr.RULES}
