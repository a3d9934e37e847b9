"""Spikes, divergence and overflows against the past of the run: sick, healthy and near misses."""

from __future__ import annotations

import math
import random

import pytest

from safelight.diagnosis.definitions import STORM
from safelight.healing.alarms import (
    MIN_HISTORY_STEPS,
    SUSTAINED_STEPS,
    DivergenceDetector,
    RecentRange,
    is_good,
    is_lost,
)


def history(count: int, spread: float = 0.1) -> RecentRange:
    usual, draw = RecentRange(), random.Random(0)
    for _ in range(count):
        usual.remember(0.4 * math.exp(draw.gauss(0, spread)), math.exp(draw.gauss(0, spread)))
    return usual


@pytest.mark.parametrize(
    ("usual", "loss", "norm", "odd"),
    [
        (history(64), 0.4, 1e5, True),
        (history(64), 4000.0, 1.0, True),
        (history(64), 0.4, 1e-6, True),
        (history(64), 0.4, 3.0, True),
        (history(64), 0.6, 1.6, False),  # a hard batch
        (history(64, spread=0.6), 0.4, 8.0, False),  # in a run that is like that
        (history(MIN_HISTORY_STEPS - 1), 0.4, 1e5, False),  # too early to say
        (history(64), 0.0, 1.0, True),
    ],
)
def test_a_spike_is_judged_by_the_run_s_own_past(usual: RecentRange, loss: float, norm: float, odd: bool) -> None:
    assert usual.is_odd(loss, norm) == odd


def losses_of(*parts: tuple[int, float]) -> list[float]:
    return [loss for count, loss in parts for _ in range(count)]


@pytest.mark.parametrize(
    ("losses", "alarm"),
    [
        (losses_of((100, 0.4), (60, 2.0)), True),
        (losses_of((100, 0.4), (60, 0.98)), True),  # back where it knew nothing
        (losses_of((20, 1.0), (60, 20.0)), True),  # it never learnt
        (losses_of((300, 0.4)), False),
        (losses_of((100, 0.4), (60, 0.8)), False),  # worse, but still something
        (losses_of((100, 0.4), (3, 5.0), (100, 0.4)), False),  # a spike
        (losses_of((100, 1.0), (100, 1.2)), False),  # data that cannot be learnt
        (losses_of((100, 100.0), (100, 1.0)), False),  # bad initial weights that heal by themselves
        (losses_of((100, 0.4), (60, math.nan)), False),  # refused updates are counted elsewhere
    ],
)
def test_divergence_is_sustained_and_worse_than_knowing_nothing(losses: list[float], alarm: bool) -> None:
    watch = DivergenceDetector()
    alarms = [watch.add_loss(loss, 1.0) for loss in losses]
    assert any(alarms) == alarm


def test_the_alarm_comes_at_the_same_step_after_a_resume() -> None:
    losses, whole = losses_of((40, 0.4), (60, 2.0)), DivergenceDetector()
    first = next(step for step, loss in enumerate(losses) if whole.add_loss(loss, 1.0))
    assert first >= 40 + SUSTAINED_STEPS - 1
    for cut in (10, 45, first - 1):
        broken = DivergenceDetector()
        assert not any(broken.add_loss(loss, 1.0) for loss in losses[:cut])
        broken = DivergenceDetector(**broken.to_json())
        assert next(step for step, loss in enumerate(losses[cut:], cut) if broken.add_loss(loss, 1.0)) == first


@pytest.mark.parametrize(
    ("loss", "lowest", "lost"),
    [(2.0, 0.4, True), (math.nan, 0.4, True), (0.97, 0.4, True), (0.9, 0.4, False), (1.2, 0.9, False)],
)
def test_the_probe_has_the_last_word(loss: float, lowest: float, lost: bool) -> None:
    assert is_lost(loss, lowest, 1.0) == lost


@pytest.mark.parametrize(
    ("loss", "good"), [(0.4, True), (0.43, True), (0.45, False), (math.nan, False), (math.inf, False), (0.1, True)]
)
def test_good_weights_are_near_the_best(loss: float, good: bool) -> None:
    assert is_good(loss, 0.4) == good


@pytest.mark.parametrize(
    ("steps", "storm"),
    [
        (range(100), True),
        (range(0, 100, 2), True),
        (range(10), False),  # the search for a scale at the start
        (range(0, 1000, 3), False),
        ([*range(8), *range(2000, 2008)], False),
        (range(STORM), True),
        (range(STORM - 1), False),
    ],
)
def test_a_storm_of_overflows_is_half_of_the_steps(steps: range, storm: bool) -> None:
    watch = DivergenceDetector()
    storms = [watch.add_overflow(step) for step in steps]
    assert any(storms) == storm
