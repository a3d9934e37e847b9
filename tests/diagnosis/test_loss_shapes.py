from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from loss_curves import dropped, healthy_curve, rising, spiked, waving

from safelight.diagnosis import loss_shapes as shapes

Test = Callable[[np.ndarray], object | None]
TESTS: dict[str, Test] = {
    "jumps up": lambda losses: shapes.jumps_up(losses, 1.0),
    "jumps down": lambda losses: shapes.jumps_down(losses, 3.0, 2.0),
    "rises": lambda losses: shapes.rises(losses, 1.0),
    "oscillates": lambda losses: shapes.oscillates(losses, 1.0),
}


@pytest.mark.parametrize("name", TESTS)
def test_no_healthy_curve_has_a_shape(name: str) -> None:
    """Of lengths of 60 to 3,000 steps, batches of 1 to 256 images, four kinds of targets; some are trained on."""
    assert [seed for seed in range(300) if TESTS[name](healthy_curve(seed)) is not None] == []


@pytest.mark.parametrize(
    ("make", "name", "least"),
    [
        (spiked, "jumps up", 20),
        (lambda losses: spiked(losses, 4.0), "jumps up", 18),
        (dropped, "jumps down", 18),
        (rising, "rises", 18),
        (waving, "oscillates", 19),
    ],
)
def test_sick_curves_have_it(make: Callable[[np.ndarray], np.ndarray], name: str, least: int) -> None:
    found = [TESTS[name](make(healthy_curve(seed, steps=400, batch=64))) for seed in range(20)]
    assert sum(each is not None for each in found) >= least


def test_a_jump_has_its_places_and_its_size() -> None:
    calm = healthy_curve(3, steps=200, batch=128) * 0 + np.random.default_rng(0).uniform(0.9, 1.1, 200)
    up, down = shapes.jumps_up(spiked(calm, 5.0, 30), 2.0), shapes.jumps_down(dropped(calm, 5.0), 3.0, 2.0)
    assert up is not None
    assert down is not None
    assert (up.first, down.first, down.ended_at) == (100, 100, None)
    assert up.ended_at is not None
    assert 122 <= up.ended_at <= 130
    assert (up.factor, down.factor) == (pytest.approx(5, rel=0.1), pytest.approx(0.2, rel=0.1))


def test_the_way_back_from_a_spike_is_no_drop() -> None:
    spike = spiked(healthy_curve(3, 400, 16), 35.0, 150)
    up = shapes.jumps_up(spike, 2.0)
    assert up is not None
    assert up.ended_at is not None
    assert (198 <= up.first <= 208, 345 <= up.ended_at <= 356) == (True, True)
    assert shapes.jumps_down(spike, 3.0, 2.0) is None
    assert shapes.jumps_down(dropped(healthy_curve(3, 400, 16)), 3.0, 2.0) is not None


@pytest.mark.parametrize("length", [1, 3, 7])
def test_what_is_over_at_once_is_no_jump(length: int) -> None:
    assert shapes.jumps_up(spiked(healthy_curve(1, steps=300, batch=64), 35.0, length), 2.0) is None


def test_a_fall_that_takes_its_time_is_no_drop() -> None:
    steps = np.arange(200)
    for pace in (2, 4, 16):
        falls = 0.05 + np.where(steps < 80, 1.0, np.exp(-(steps - 79) / pace))
        assert shapes.jumps_down(falls, 3.0, 2.0) is None


@pytest.mark.parametrize("learnt", [True, False])
def test_a_drop_to_a_task_that_is_learnt_on_is_one_in_a_curve_that_had_learnt(learnt: bool) -> None:
    """As where the noise becomes 0: the loss falls by four at once, and by a seventh with each step from there on. A
    first fall may look like that."""
    noise, steps = np.random.default_rng(0).uniform(0.8, 1.25, 300), np.arange(300)
    before = 0.15 + (0.4 * np.exp(-steps / 20) if learnt else 0)
    losses = noise * np.where(steps < 200, before, 0.04 * np.exp(-(steps - 200).clip(0, 20) / 7))
    found = shapes.jumps_down(losses, 3.0, 2.0)
    assert (found.first if found is not None else None) == (200 if learnt else None)


@pytest.mark.parametrize("pace", [2, 4, 16])
def test_a_second_fall_that_takes_its_time_is_no_drop(pace: int) -> None:
    steps = np.arange(300)
    falls = 0.02 + 0.4 * np.exp(-steps / 20) + 0.2 * np.where(steps < 200, 1.0, np.exp(-(steps - 199) / pace))
    assert shapes.jumps_down(falls, 3.0, 2.0) is None


@pytest.mark.parametrize(
    ("losses", "is_judged"),
    [(np.ones(33), True), (np.ones(32), False), (np.append(np.ones(40), np.nan), False), (-np.ones(40), False)],
)
def test_only_errors_are_judged(losses: np.ndarray, is_judged: bool) -> None:
    assert shapes.is_judged(losses) == is_judged
