from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from safelight.config.tree import Ema
from safelight.training.ema import (
    MAIN,
    EmaWeights,
    blend,
    exponential_decay,
    power_decay,
    power_exponent,
    profile_name,
    rebuild_weights,
    snapshot_steps,
)


class Walker(nn.Module):
    """A model whose weights take a random walk around a drift, without an optimizer."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((64,), 100.0, dtype=dtype))  # a start that would be seen in any average
        self.register_buffer("table", torch.ones(3))
        self._random = torch.Generator().manual_seed(0)

    @torch.no_grad()
    def move(self, step: int) -> None:
        drift = 0.5 * (1 - math.exp(-step / 150))
        self.weight.copy_(drift + 0.1 * torch.randn(64, generator=self._random))


def walk(settings: Ema, steps: int, at: tuple[int, ...] = ()) -> tuple[EmaWeights, dict[int, dict[str, torch.Tensor]]]:
    model = Walker()
    averages, kept = EmaWeights(settings, model), {}
    for step in range(1, steps + 1):
        model.move(step)
        averages.update(step)
        if step in at:
            kept[step] = {profile_name(width): averages.profile(width)["weight"].clone() for width in settings.profiles}
    return averages, kept


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


@pytest.mark.parametrize("width", [0.05, 0.1, 0.2])
def test_weights_of_past_steps_follow_the_power_function(width: float) -> None:
    """What each past step contributes after 1,000 updates, from the decays alone."""
    steps = 1000
    decays = np.array([power_decay(width, step) for step in range(1, steps + 1)])
    share = (1 - decays) * np.append(np.cumprod(decays[:0:-1])[::-1], 1)
    assert share.sum() == pytest.approx(1, abs=1e-12)
    places = np.arange(1, steps + 1) / steps
    mean = (share * places).sum()
    assert math.sqrt((share * (places - mean) ** 2).sum()) == pytest.approx(width, rel=0.01)


@pytest.mark.parametrize("settings", [Ema(), Ema(width=0.2), Ema(kind="exponential"), Ema(snapshots=0)], ids=str)
def test_average_of_a_constant_is_the_constant(settings: Ema) -> None:
    model = nn.Linear(3, 2)
    before = [p.detach().clone() for p in model.parameters()]
    averages = EmaWeights(settings, model)
    for step in range(1, 200):
        averages.update(step)
    for shadow in averages.shadows.values():
        assert all(torch.allclose(a, b, rtol=1e-5) for a, b in zip(shadow, before, strict=True))


def test_power_average_forgets_the_start_at_once() -> None:
    model = nn.Linear(3, 2)
    averages = EmaWeights(Ema(), model)
    with torch.no_grad():
        model.weight.fill_(5.0)
    averages.update(1)
    assert power_decay(0.1, 1) == 0
    assert all(torch.equal(averages.tensors(track)["weight"], model.weight) for track in averages.shadows)


@pytest.mark.parametrize(
    ("settings", "steps", "most"),
    [
        (Ema(kind="exponential", decay=0.9999), 30, 0.003),
        (Ema(kind="exponential", decay=0.9999), 1200, 1e-8),
        (Ema(kind="power"), 2, 1e-12),
    ],
    ids=str,
)
def test_warm_up_leaves_no_initialisation(settings: Ema, steps: int, most: float) -> None:
    averages = EmaWeights(settings, nn.Linear(1, 1))
    assert math.prod(averages.decay(MAIN, step) for step in range(1, steps + 1)) < most


def test_without_warm_up_a_short_run_is_mostly_initialisation() -> None:
    """Negative control, and the arithmetic behind the warning: 0.9999^10,000 = 36.8 %."""
    averages = EmaWeights(Ema(kind="exponential", warmup=False), nn.Linear(1, 1))
    left = math.prod(averages.decay(MAIN, step) for step in range(1, 10_001))
    assert left == pytest.approx(0.368, abs=0.001)


def test_warm_up_ends_in_the_decay_asked_for() -> None:
    assert exponential_decay(0.999, 10) < 0.9
    assert exponential_decay(0.999, 100_000) == 0.999
    decays = [exponential_decay(0.999, step) for step in range(1, 20_000, 7)]
    assert decays == sorted(decays)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_shadows_are_fp32_whatever_the_model_is(dtype: torch.dtype) -> None:
    model = Walker(dtype)
    averages = EmaWeights(Ema(kind="exponential", decay=0.9999, warmup=False), model)
    with torch.no_grad():
        model.weight.fill_(101.0)
    for step in range(1, 101):
        averages.update(step)
    assert {t.dtype for shadow in averages.shadows.values() for t in shadow} == {torch.float32}
    moved = float(averages.tensors()["weight"][0])
    assert moved == pytest.approx(101 - 0.9999**100, abs=1e-4)


def test_a_bf16_average_would_never_move() -> None:
    """Negative control: one step of 1e-4 is below the spacing of bf16 at 100, so it is rounded away for ever."""
    shadow, live = torch.full((1,), 100.0, dtype=torch.bfloat16), torch.full((1,), 101.0, dtype=torch.bfloat16)
    for _ in range(100):
        shadow.lerp_(live, 1e-4)
    assert float(shadow) == 100.0


def test_only_trained_parameters_are_averaged() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Linear(2, 2))
    model[2].bias.requires_grad_(False)
    averages = EmaWeights(Ema(), model)
    assert set(averages.tensors()) == {"0.weight", "0.bias", "1.weight", "1.bias", "2.weight"}


def test_shadows_never_alias_the_weights() -> None:
    model = nn.Linear(3, 2)
    averages = EmaWeights(Ema(), model)
    averages.update(1)
    copies = {track: [t.clone() for t in shadow] for track, shadow in averages.shadows.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    for track, shadow in averages.shadows.items():
        assert all(torch.equal(a, b) for a, b in zip(shadow, copies[track], strict=True))
    live = model.weight.detach().clone()
    averages.tensors()["weight"].zero_()
    assert torch.equal(model.weight, live)


@pytest.mark.parametrize(
    ("settings", "tracks"),
    [
        (Ema(), {MAIN, "0.05"}),  # 0.1 is the main one: not kept twice
        (Ema(width=0.15), {MAIN, "0.05", "0.1"}),
        (Ema(kind="exponential"), {MAIN, "0.05", "0.1"}),
        (Ema(snapshots=0), {MAIN}),
    ],
    ids=["power", "other width", "exponential", "no snapshots"],
)
def test_tracks(settings: Ema, tracks: set[str]) -> None:
    averages, _ = walk(settings, 20)
    assert set(averages.shadows) == tracks
    if settings.snapshots:
        narrow, wide = (averages.profile(width)["weight"] for width in settings.profiles)
        assert not torch.equal(narrow, wide)


@pytest.mark.parametrize(
    ("count", "steps", "expected"),
    [(4, 100, [25, 50, 75, 100]), (2, 6, [3, 6]), (16, 6, [1, 2, 3, 4, 5, 6]), (0, 100, []), (1, 7, [7])],
)
def test_snapshots_are_spread_and_end_with_the_run(count: int, steps: int, expected: list[int]) -> None:
    assert snapshot_steps(count, steps) == expected


def test_load_is_the_inverse_of_tensors() -> None:
    averages, _ = walk(Ema(), 10)
    other = EmaWeights(Ema(), Walker())
    for track in averages.shadows:
        other.load(track, averages.tensors(track))
        assert torch.equal(other.tensors(track)["weight"], averages.tensors(track)["weight"])
        assert other.tensors(track)["weight"].data_ptr() != averages.tensors(track)["weight"].data_ptr()
