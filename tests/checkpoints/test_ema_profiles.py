from __future__ import annotations

import math

import numpy as np
import pytest
from averages import walk

from safelight.checkpoints.ema_profiles import blend, power_exponent, rebuild_weights, snapshot_steps
from safelight.config.tree import Ema


@pytest.mark.parametrize(("width", "exponent"), [(0.05, 16.97), (0.10, 6.94), (0.25, 0.72), (0.2886, 0.0)])
def test_exponent_of_a_relative_width(width: float, exponent: float) -> None:
    """16.97 and 6.94 stand in Karras et al. 2024; a width of 1/√12 is the plain mean of everything."""
    assert power_exponent(width) == pytest.approx(exponent, abs=0.006)


@pytest.mark.parametrize("width", [0.01, 0.05, 0.1, 0.2, 0.28])
def test_exponent_gives_back_its_width(width: float) -> None:
    """The definition itself: the standard deviation of the profile p(τ) ~ τ^γ on [0, 1]."""
    gamma = power_exponent(width)
    mean, square = (gamma + 1) / (gamma + 2), (gamma + 1) / (gamma + 3)
    assert math.sqrt(square - mean**2) == pytest.approx(width, rel=1e-6)


def test_any_width_can_be_rebuilt_after_training() -> None:
    """Snapshots of 0.05 and 0.10 give averages that were never tracked, close to those that were."""
    steps = 800
    at = tuple(snapshot_steps(16, steps))
    _, kept = walk(Ema(snapshots=16), steps, at)
    available = [(step, float(width)) for step in at for width in kept[step]]
    tensors = [{"weight": kept[step][width]} for step in at for width in kept[step]]
    raw = walk(Ema(), steps)[0]._parameters[0].detach()
    for width, within in ((0.05, 1e-5), (0.07, 0.002), (0.1, 1e-5), (0.15, 0.01), (0.2, 0.02)):
        truth = walk(Ema(width=width, snapshots=0), steps)[0].tensors()["weight"]
        rebuilt = blend(tensors, rebuild_weights(available, steps, width))["weight"]
        error = float((rebuilt - truth).norm() / truth.norm())
        print(f"width {width}: relative error {error:.1e}")
        assert error < within, width
        assert float((raw - truth).norm() / truth.norm()) > 10 * error, "control: the raw weights are far away"


def test_rebuilding_at_an_earlier_step() -> None:
    at = tuple(snapshot_steps(16, 800))[:8]
    _, kept = walk(Ema(snapshots=16), at[-1], at)
    available = [(step, float(width)) for step in at for width in kept[step]]
    tensors = [{"weight": kept[step][width]} for step in at for width in kept[step]]
    truth = walk(Ema(width=0.07, snapshots=0), at[-1])[0].tensors()["weight"]
    rebuilt = blend(tensors, rebuild_weights(available, at[-1], 0.07))["weight"]
    assert float((rebuilt - truth).norm() / truth.norm()) < 0.005


def test_a_snapshot_is_rebuilt_as_itself() -> None:
    available = [(step, width) for step in (100, 200, 300) for width in (0.05, 0.1)]
    for index, (step, width) in enumerate(available):
        weights = rebuild_weights(available, step, width)
        assert weights.sum() == pytest.approx(1)
        assert weights[index] == pytest.approx(1, abs=1e-6)
        assert np.abs(np.delete(weights, index)).max() < 1e-6


@pytest.mark.parametrize(
    ("count", "steps", "expected"),
    [(4, 100, [25, 50, 75, 100]), (2, 6, [3, 6]), (16, 6, [1, 2, 3, 4, 5, 6]), (0, 100, []), (1, 7, [7])],
)
def test_snapshots_are_spread_and_end_with_the_run(count: int, steps: int, expected: list[int]) -> None:
    assert snapshot_steps(count, steps) == expected
