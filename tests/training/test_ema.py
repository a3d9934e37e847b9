from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from averages import Walker, walk
from torch import nn

from safelight.config.tree import Ema
from safelight.errors import UsageError
from safelight.training.ema import EMA, MAIN_EMA, EmaWeights, exponential_decay, power_decay


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
    assert all(torch.equal(averages.tensors(ema_name)["weight"], model.weight) for ema_name in averages.shadows)


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
    assert math.prod(averages.decay(MAIN_EMA, step) for step in range(1, steps + 1)) < most


def test_without_warm_up_a_short_run_is_mostly_initialisation() -> None:
    """Negative control, and the arithmetic behind the warning: 0.9999^10,000 = 36.8 %."""
    averages = EmaWeights(Ema(kind="exponential", warmup=False), nn.Linear(1, 1))
    left = math.prod(averages.decay(MAIN_EMA, step) for step in range(1, 10_001))
    assert left == pytest.approx(0.368, abs=0.001)


def test_warm_up_ends_in_the_decay_asked_for() -> None:
    assert exponential_decay(0.999, 10) < 0.9
    assert exponential_decay(0.999, 100_000) == 0.999
    decays = [exponential_decay(0.999, step) for step in range(1, 20_000, 7)]
    assert decays == sorted(decays)


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
    copies = {ema_name: [t.clone() for t in shadow] for ema_name, shadow in averages.shadows.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    for ema_name, shadow in averages.shadows.items():
        assert all(torch.equal(a, b) for a, b in zip(shadow, copies[ema_name], strict=True))
    live = model.weight.detach().clone()
    averages.tensors()["weight"].zero_()
    assert torch.equal(model.weight, live)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (Ema(), {MAIN_EMA, "0.05"}),  # 0.1 is the main one: not kept twice
        (Ema(width=0.15), {MAIN_EMA, "0.05", "0.1"}),
        (Ema(kind="exponential"), {MAIN_EMA, "0.05", "0.1"}),
        (Ema(snapshots=0), {MAIN_EMA}),
    ],
    ids=["power", "other width", "exponential", "no snapshots"],
)
def test_names_of_the_averages(settings: Ema, names: set[str]) -> None:
    averages, _ = walk(settings, 20)
    assert set(averages.shadows) == names
    if settings.snapshots:
        narrow, wide = (averages.profile(width)["weight"] for width in settings.profiles)
        assert not torch.equal(narrow, wide)


def test_load_is_the_inverse_of_tensors() -> None:
    averages, _ = walk(Ema(), 10)
    other = EmaWeights(Ema(), Walker())
    for ema_name in averages.shadows:
        other.load(ema_name, averages.tensors(ema_name))
        assert torch.equal(other.tensors(ema_name)["weight"], averages.tensors(ema_name)["weight"])
        assert other.tensors(ema_name)["weight"].data_ptr() != averages.tensors(ema_name)["weight"].data_ptr()


# The part: EMA in a loop of one's own


class Small(nn.Module):
    """With a buffer that moves, a buffer that is a number, and a frozen parameter."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.enter, self.norm, self.leave = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)
        self.leave.bias.requires_grad_(False)
        self.to(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.leave(self.norm(self.enter(x)))


def trained(model: nn.Module, after: Callable[[], object], steps: int = 12) -> None:
    """A plain loop; `after` each update."""
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dtype = next(model.parameters()).dtype
    for _ in range(steps):
        model(torch.randn(8, 3, generator=generator).to(dtype)).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        after()


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("decay", [0.5, 0.9999])
def test_part_equals_a_plain_loop_to_the_bit(dtype: torch.dtype, decay: float) -> None:
    torch.manual_seed(0)
    model = Small(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    average = {name: p.detach().to(wide).clone() for name, p in model.named_parameters() if p.requires_grad}
    ema, step = EMA(model, decay), 0

    def after() -> None:
        nonlocal step
        step += 1
        ema.update()
        weight = 1 - min(decay, 1 - (1 + step) ** -0.75)
        for name, parameter in model.named_parameters():
            if name in average:
                average[name].lerp_(parameter.detach().to(wide), weight)

    trained(model, after)
    assert ema.updates == 12
    assert same(ema.state_dict()["weights"], average)
    assert {value.dtype for value in average.values()} == {wide}
    assert same(ema.state_dict()["buffers"], dict(model.named_buffers())), "copied, not averaged"


def test_part_equals_the_trainers_average_to_the_bit() -> None:
    for given, settings in (
        ({"decay": 0.99}, Ema(kind="exponential", decay=0.99)),
        ({"width": 0.05}, Ema(width=0.05)),
        ({"decay": 0.9, "warmup": False}, Ema(kind="exponential", decay=0.9, warmup=False)),
    ):
        torch.manual_seed(0)
        model = Small()
        ema, ours = EMA(model, **given), EmaWeights(settings, model)

        def after(ema: EMA = ema, ours: EmaWeights = ours) -> None:
            ema.update()
            ours.update(ema.updates)

        trained(model, after)
        assert same(ema.state_dict()["weights"], ours.tensors())


def test_swapped_gives_the_average_and_then_every_bit_back() -> None:
    model = Small()
    ema = EMA(model, 0.9)
    trained(model, ema.update)
    before, shadows = state(model), {name: t.clone() for name, t in ema.state_dict()["weights"].items()}
    with ema.swapped(model):
        inside = state(model)
        assert all(torch.equal(inside[name], shadow) for name, shadow in shadows.items())
        assert torch.equal(inside["leave.bias"], before["leave.bias"]), "frozen: as it is"
        model(torch.randn(8, 3))  # moves the running statistics
        with ema.swapped():
            assert torch.equal(model.enter.weight, shadows["enter.weight"])
    assert same(state(model), before)
    with pytest.raises(RuntimeError, match="mine"), ema.swapped(model):
        raise RuntimeError("mine")
    assert same(state(model), before), "also after an error"
    assert same(ema.state_dict()["weights"], shadows)


def test_update_inside_swapped_is_refused() -> None:
    ema = EMA(Small())
    with pytest.raises(UsageError, match="would follow itself"), ema.swapped():
        ema.update()
    ema.update()


class DistributedDataParallel(nn.Module):
    """Stands for torch's, which needs a process group."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


@pytest.mark.parametrize("wrap", [DistributedDataParallel, torch.compile], ids=["DDP", "compiled"])
def test_names_are_those_of_the_module_inside(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = Small()
    ema = EMA(wrap(model))
    ema.update()
    assert set(ema.state_dict()["weights"]) == {n for n, p in model.named_parameters() if p.requires_grad}
    other = Small()
    EMA(other).load_state_dict(ema.state_dict())
    ema.copy_to(wrap(other))
    assert torch.equal(other.enter.weight, model.enter.weight)
    with ema.swapped(wrap(model)):
        pass


def test_state_goes_on_as_if_nothing_had_happened() -> None:
    torch.manual_seed(0)
    model, resumed = Small(), Small()
    ema = EMA(model, 0.99)
    trained(model, ema.update, 5)
    other = EMA(resumed, 0.99)
    other.load_state_dict(ema.state_dict())
    resumed.load_state_dict(model.state_dict())
    assert other.updates == 5
    assert other.decay == ema.decay
    trained(model, ema.update, 5)
    trained(resumed, other.update, 5)
    assert same(other.state_dict()["weights"], ema.state_dict()["weights"])
    assert other.shadow_params[0].data_ptr() != ema.shadow_params[0].data_ptr()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({}, "not the state of an EMA"),
        ({"updates": 3, "weights": {}, "buffers": {}}, "5 of 5 parameters are missing"),
        ({"updates": 3, "weights": "x", "buffers": {}}, "not the state of an EMA"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_in_words(bad: dict[str, object], words: str) -> None:
    ema = EMA(Small())
    with pytest.raises(UsageError, match=words):
        ema.load_state_dict(bad)
    assert ema.updates == 0
    with pytest.raises(UsageError, match="does not fit the EMA"):
        ema.copy_to(nn.Linear(2, 2))


@pytest.mark.parametrize(("decay", "width"), [(1.0, None), (-0.1, None), (float("nan"), None), (0.9, 0.5), (0.9, 0.0)])
def test_numbers_that_cannot_be_are_refused(decay: float, width: float | None) -> None:
    with pytest.raises(UsageError, match="cannot be made"):
        EMA(Small(), decay, width=width)


def test_a_model_without_trained_parameters_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing to average"):
        EMA(Small().requires_grad_(False))


def test_weights_that_are_replaced_are_followed() -> None:
    """`model.to` on some devices and `load_state_dict(assign=True)` leave other parameters than those of the start."""
    model = Small()
    ema = EMA(model, 0.0, warmup=False)
    model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()}, assign=True)
    ema.update()
    assert torch.equal(ema.shadow_params[0], model.enter.weight)
