from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from safelight.config.tree import Optimizer
from safelight.monitors.parameters import trainable_parameters
from safelight.training.optimizer import (
    learning_rate,
    load_optimizer,
    make_optimizer,
    make_update,
    may_overflow,
    optimizer_tensors,
    parameter_groups,
    prepare_update,
    rate_scheduler,
    warmup_steps,
)


def update(optimizer: torch.optim.AdamW, lr: float, refused: Tensor) -> None:
    prepare_update(optimizer, lr, refused)
    optimizer.step()


GO, REFUSE = torch.tensor(0.0), torch.tensor(1.0)
PLANS = [(1, None), (2, None), (6, None), (100, None), (1200, None), (100_000, None)]
PLANS += [(1, 0), (2, 0), (2, 1), (10, 0), (10, 9), (1000, 1), (1000, 999), (70_000, 5000)]


class Zoo(nn.Module):
    """One of each layer, with names that lie about what they are."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_proj = nn.Linear(4, 4)
        self.embedding_conv = nn.Conv2d(4, 4, 3)
        self.transposed = nn.ConvTranspose1d(4, 4, 3)
        self.bounded = spectral_norm(nn.Conv2d(4, 4, 3))
        self.attention = nn.MultiheadAttention(4, 2)
        self.linear = nn.GroupNorm(2, 4)
        self.layer_weight = nn.LayerNorm([4, 4])
        self.weight_table = nn.Embedding(5, 4)
        self.scale = nn.Parameter(torch.ones(4, 4))
        self.frozen = nn.Linear(4, 4).requires_grad_(False)


DECAYED = {
    "norm_proj.weight",
    "embedding_conv.weight",
    "transposed.weight",
    "bounded.parametrizations.weight.original",
    "attention.in_proj_weight",
    "attention.out_proj.weight",
}
FREE = {
    "scale",
    "norm_proj.bias",
    "embedding_conv.bias",
    "transposed.bias",
    "bounded.bias",
    "attention.in_proj_bias",
    "attention.out_proj.bias",
    "linear.weight",
    "linear.bias",
    "layer_weight.weight",  # a matrix by its shape, a norm by its module
    "layer_weight.bias",
    "weight_table.weight",
}


def names(model: nn.Module, group: dict) -> set[str]:
    known = {parameter: name for name, parameter in model.named_parameters()}
    return {known[parameter] for parameter in group["params"]}


def test_decay_is_decided_by_the_module() -> None:
    model = Zoo()
    decayed, free = parameter_groups(model, 0.01)
    assert names(model, decayed) == DECAYED
    assert names(model, free) == FREE
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.01, 0.0)


@pytest.mark.parametrize("bounded", [False, True])
def test_every_parameter_of_a_unet_is_in_one_group(bounded: bool) -> None:
    from safelight.config.tree import Model
    from safelight.model.unet import add_spectral_norm, build_unet

    settings = Model(widths=(16, 16), norm_groups=8, layers=1, attention=(4,), head_width=8, conditional=True)
    model = build_unet(settings, image_size=8, channels=1, classes=3, seed=0)
    if bounded:
        add_spectral_norm(model)
    decayed, free = (names(model, group) for group in parameter_groups(model, 0.01))
    assert decayed.isdisjoint(free)
    assert decayed | free == {name for name, _ in model.named_parameters()}
    assert all(dict(model.named_parameters())[name].dim() >= 2 for name in decayed)
    assert "class_embedding.weight" in free
    assert {n for n in free if not n.endswith("bias")} == {"class_embedding.weight"} | {
        n for n in free if "norm" in n and n.endswith("weight")
    }
    suffix = "conv1.parametrizations.weight.original" if bounded else "conv1.weight"
    assert f"down_blocks.0.resnets.0.{suffix}" in decayed


def test_decay_shrinks_matrices_and_nothing_else() -> None:
    """Through AdamW itself: with no gradient, only decay moves a weight."""
    model = Zoo()
    optimizer = make_optimizer(Optimizer(weight_decay=0.5), model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    update(optimizer, 0.1, GO)
    for name, parameter in model.named_parameters():
        wanted = before[name] * (1 - 0.1 * 0.5) if name in DECAYED else before[name]
        assert torch.allclose(parameter, wanted), name


@pytest.mark.parametrize(("steps", "warmup"), PLANS)
def test_the_last_step_is_at_the_floor(steps: int, warmup: int | None) -> None:
    for floor in (0.0, 0.05, 1.0):
        settings = Optimizer(lr=3e-4, warmup=warmup, floor=floor)
        assert learning_rate(settings, steps - 1, steps) == 3e-4 * floor


@pytest.mark.parametrize(("steps", "warmup"), PLANS)
def test_the_plan_rises_to_the_peak_and_falls_from_there(steps: int, warmup: int | None) -> None:
    settings = Optimizer(lr=3e-4, warmup=warmup, floor=0.05)
    length = warmup_steps(settings, steps)
    assert 0 <= length < steps, "warmup is never longer than the run"
    chosen = sorted({*range(min(steps, 300)), *range(max(0, steps - 300), steps), length, max(0, length - 1)})
    rates = {step: learning_rate(settings, step, steps) for step in chosen}
    rising, falling = ([rates[s] for s in chosen if (s < length) == early] for early in (True, False))
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    assert all(0 < rate <= 3e-4 for rate in rates.values())
    if length:
        assert rates[length - 1] == pytest.approx(3e-4)
        assert rates[0] == pytest.approx(3e-4 / length), "not zero: the first step is worth taking"


def test_the_middle_of_the_cosine() -> None:
    settings = Optimizer(lr=1.0, warmup=0, floor=0.2)
    assert learning_rate(settings, 49, 100) == pytest.approx(0.6)


def test_the_plan_is_a_function_of_the_step() -> None:
    """Asked in any order, or past the end: nothing has state."""
    settings = Optimizer()
    forward = [learning_rate(settings, step, 50) for step in range(50)]
    assert [learning_rate(settings, step, 50) for step in reversed(range(50))] == forward[::-1]
    assert learning_rate(settings, 5000, 50) == pytest.approx(settings.lr * settings.floor)


@pytest.mark.parametrize(("steps", "expected"), [(100, 8), (1200, 96), (20_000, 1600), (100_000, 5000), (1, 0), (3, 1)])
def test_unset_warmup_is_a_share_of_the_run(steps: int, expected: int) -> None:
    assert warmup_steps(Optimizer(), steps) == expected


def everything(model: nn.Module, optimizer: torch.optim.AdamW) -> dict[str, bytes]:
    tensors = dict(model.state_dict()) | optimizer_tensors(optimizer, trainable_parameters(model))
    return {name: value.detach().numpy().tobytes() for name, value in tensors.items()}


def put_gradients(model: nn.Module, seed: int, poison: float | None = None) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    if poison is not None:
        model.get_parameter("0.weight").grad[0, 0] = poison  # type: ignore[index]


def small() -> tuple[nn.Module, torch.optim.AdamW]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    return model, make_optimizer(Optimizer(), model)


@pytest.mark.parametrize("poison", [math.nan, math.inf, None], ids=["nan", "inf", "finite"])
@pytest.mark.parametrize("before", [0, 3])
def test_a_refused_update_touches_nothing(poison: float | None, before: int) -> None:
    """Weights, moments and step counters, to the byte; also as the very first update, when there are no moments."""
    model, optimizer = small()
    for step in range(before):
        put_gradients(model, step)
        update(optimizer, 1e-3, GO)
    kept = everything(model, optimizer)
    put_gradients(model, 99, poison)
    update(optimizer, 1e-3, REFUSE)
    after = everything(model, optimizer)
    assert {name: after[name] for name in kept} == kept
    assert all(not any(after[name]) for name in after.keys() - kept.keys()), "new moments are zero"


def test_the_same_update_unrefused_touches_everything() -> None:
    """Negative control: and a NaN that is let through is in the weights for good."""
    model, optimizer = small()
    put_gradients(model, 0)
    update(optimizer, 1e-3, GO)
    kept = everything(model, optimizer)
    put_gradients(model, 99, math.nan)
    update(optimizer, 1e-3, GO)
    after = everything(model, optimizer)
    assert all(after[name] != kept[name] for name in kept)
    assert model.get_parameter("0.weight").isnan().any()


def test_a_refused_update_leaves_no_trace_in_the_run() -> None:
    """A run with refused updates ends where the run without them ends."""
    results = []
    for refusals in (0, 2):
        model, optimizer = small()
        for step in range(4):
            put_gradients(model, step)
            update(optimizer, 1e-2, GO)
            for _ in range(refusals):
                put_gradients(model, 50, math.nan)
                update(optimizer, 1e-2, REFUSE)
        results.append(everything(model, optimizer))
    assert results[0] == results[1]


def test_equals_plain_adamw() -> None:
    """The fused kernel told “not refused” is the AdamW of the textbooks."""
    (ours, optimizer), (theirs, _) = small(), small()
    plain = torch.optim.AdamW(parameter_groups(theirs, 0.01), lr=1.0, betas=(0.9, 0.99), eps=1e-8, foreach=False)
    for step in range(5):
        rate = 1e-2 / (step + 1)
        put_gradients(ours, step)
        put_gradients(theirs, step)
        update(optimizer, rate, GO)
        for group in plain.param_groups:
            group["lr"] = rate
        plain.step()
    assert all(torch.allclose(a, b, rtol=1e-5) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_state_by_name_goes_round() -> None:
    model, optimizer = small()
    for step in range(3):
        put_gradients(model, step)
        update(optimizer, 1e-3, GO)
    kept: dict[str, Tensor] = {
        name: value.clone() for name, value in optimizer_tensors(optimizer, trainable_parameters(model)).items()
    }
    assert {name.rpartition("/")[2] for name in kept} == {"step", "exp_avg", "exp_avg_sq"}
    assert len(kept) == 3 * len(list(model.parameters()))
    twin, other = small()
    twin.load_state_dict(model.state_dict())
    load_optimizer(other, trainable_parameters(twin), kept)
    for each, its in ((model, optimizer), (twin, other)):
        put_gradients(each, 7)
        update(its, 1e-3, GO)
    assert everything(model, optimizer) == everything(twin, other)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("cosine", {9: 1.0, 54: 0.6, 99: 0.2}),
        ("linear", {9: 1.0, 54: 0.6, 99: 0.2}),
        ("constant", {9: 1.0, 54: 1.0, 99: 1.0}),
        ("inverse-sqrt", {9: 1.0, 39: 0.5, 89: 1 / 3}),
        ("edm2", {9: 1.0, 19: 1.0, 79: 0.5}),
        ("wsd", {9: 1.0, 79: 1.0, 90: 0.5, 99: 0.05}),
    ],
)
def test_the_shape_of_every_schedule(schedule: Any, expected: dict[int, float]) -> None:
    settings = Optimizer(lr=1.0, warmup=10, floor=0.2, schedule=schedule, reference=20, decay=0.2)
    assert learning_rate(settings, 0, 100) == pytest.approx(0.1), "all begin with the warmup"
    for step, rate in expected.items():
        assert learning_rate(settings, step, 100) == pytest.approx(rate), step
    for steps, warmup in ((1, 0), (2, None), (3, 1), (7, 0)):
        short = Optimizer(lr=1.0, warmup=warmup, schedule=schedule)
        assert all(0 < learning_rate(short, step, steps) <= 1 for step in range(steps))


def test_the_same_rates_in_a_loop_of_ones_own() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    settings = Optimizer(warmup=2, schedule="linear", floor=0.0)
    scheduler, rates = rate_scheduler(optimizer, 6, settings), []
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([0.25, 0.5, 0.375, 0.25, 0.125, 0.0])


RISKY = [
    {"lr": 1e39}, {"lr": 1e38}, {"lr": 1e300}, {"lr": 1e37, "weight_decay": 1e6},
    {"lr": 1e-3, "eps": 1e-300}, {"lr": 1e30},
    {"lr": 1e-3, "weight_decay": 1e60}, {"lr": 1.0, "beta1": 0.999, "beta2": 0.0, "eps": 1e-44},
]  # fmt: skip


@pytest.mark.parametrize("settings", RISKY, ids=str)
def test_no_update_makes_a_weight_non_finite(settings: dict[str, float]) -> None:
    """Where one would, weights, moments and counters stay as they were, from the first one on."""
    chosen = replace(Optimizer(), **settings)
    assert may_overflow(chosen, chosen.lr)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer, refusals = make_optimizer(chosen, model), 0
    for step in range(4):
        x = torch.randn(8, 4) * (step != 2)  # once a gradient of 0
        model(x).square().mean().backward()
        before = [tensor.clone() for tensor in model.parameters()]
        bad = not all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)
        prepare_update(optimizer, chosen.lr, torch.tensor(float(bad)))
        refused = make_update(optimizer, chosen, chosen.lr, torch.tensor(float(bad)))
        optimizer.zero_grad(set_to_none=True)
        tensors = [*model.parameters(), *(value for state in optimizer.state.values() for value in state.values())]
        assert all(bool(tensor.isfinite().all()) for tensor in tensors)
        if refused:
            refusals += 1
            assert all(map(torch.equal, before, model.parameters()))
            assert step or all(not bool(tensor.any()) for tensor in tensors[len(before) :])
    assert refusals or settings["lr"] < 1e38


def test_usual_settings_are_not_looked_at_twice() -> None:
    assert not may_overflow(Optimizer(), 1e-3)
    assert not may_overflow(replace(Optimizer(), weight_decay=1.0), 1.0)
