"""Updates that are not finite never reach the weights of a plain loop, and the first bad module is named."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from safelight.errors import Stopped, UsageError
from safelight.healing.finite_guard import FiniteGuard


class Net(nn.Module):
    """Bad in a chosen way at chosen calls."""

    def __init__(self, bad: str = "", at: tuple[int, ...] = ()) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.norm = nn.Linear(4, 8), nn.BatchNorm1d(8)
        self.middle, self.leave = nn.Identity(), nn.Linear(8, 1)
        self.bad, self.at, self.step = bad, at, 0
        self.middle.register_forward_hook(self._spoil)

    def _spoil(self, _: nn.Module, __: Any, output: Tensor) -> Tensor | None:
        if self.step not in self.at:
            return None
        if self.bad == "output":
            return output * math.nan
        if self.bad == "gradient":
            return output + torch.sqrt((output * 0).square())
        return None

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.middle(self.norm(self.enter(x))))


def inputs(steps: int) -> Tensor:
    return torch.randn(steps, 16, 4, generator=torch.Generator().manual_seed(3))


def train(model: Net, steps: int = 8, make: Callable[..., FiniteGuard] = FiniteGuard, **given: Any) -> FiniteGuard:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    guard = make(model, optimizer, **({"say": lambda _: None} | given))
    for model.step, x in enumerate(inputs(steps)):
        loss = model(x).square().mean()
        if model.bad == "loss" and model.step in model.at:
            loss = loss + math.inf
        loss.backward()
        if guard.step(loss):
            optimizer.zero_grad()
        assert all(p.isfinite().all() for p in model.parameters())
        assert all(p.grad is None for p in model.parameters()), "gradients are dropped either way"
    return guard


def test_a_healthy_loop_has_the_same_bytes_as_a_plain_one() -> None:
    guarded, plain = Net(), Net()
    guard = train(guarded)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
    for x in inputs(8):
        plain(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all(
        torch.equal(a, b) for a, b in zip(guarded.state_dict().values(), plain.state_dict().values(), strict=True)
    )
    assert (guard.refused, guard.refused_in_row, guard.first_nonfinite) == (0, 0, None)


@pytest.mark.parametrize(
    ("bad", "where"),
    [("output", "the output of middle"), ("gradient", "the gradient of norm.bias (and 3 more: those before it)"),
     ("loss", "the loss: every output of the model was finite")],
)  # fmt: skip
def test_a_bad_update_is_refused_counted_and_named(bad: str, where: str) -> None:
    said: list[str] = []
    guard = train(Net(bad, at=(2, 5)), say=said.append)
    assert (guard.refused, guard.refused_in_row) == (2, 0)
    assert (guard.first_nonfinite or "").startswith(where)
    assert len(said) == 2
    assert where in said[0]


def test_a_refused_update_leaves_everything_as_it_was() -> None:
    """Weights, moments, counters and random numbers; buffers moved once, by the loop and not by the replay."""
    model = Net("output", at=(0,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    guard = FiniteGuard(model, optimizer, say=lambda _: None)
    before = [p.detach().clone() for p in model.parameters()]
    loss = model(inputs(1)[0]).mean()
    loss.backward()
    buffers, random = [b.clone() for b in model.buffers()], torch.get_rng_state()
    assert not guard.step(loss)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(buffers, model.buffers(), strict=True))
    assert torch.equal(random, torch.get_rng_state())
    assert not optimizer.state


def test_weights_and_inputs_that_are_bad_are_named() -> None:
    model = Net()
    guard = FiniteGuard(model, torch.optim.SGD(model.parameters(), lr=0.1), say=lambda _: None)
    loss = model(inputs(1)[0] * math.inf).mean()
    loss.backward()
    assert not guard.step(loss)
    assert guard.first_nonfinite == "the input of the model"
    with torch.no_grad():
        model.leave.weight[0, 0] = math.nan
    model(inputs(1)[0]).mean().backward()
    assert not guard.step(1.0)
    assert guard.first_nonfinite == "the weights of leave.weight"


def test_too_many_in_a_row_raise_with_the_place() -> None:
    with pytest.raises(
        Stopped, match=r"3 updates in a row .* in the output of middle\. The weights are those"
    ) as stopped:
        train(Net("output", at=(1, 3, 4, 5)), max_refused=3)
    assert stopped.value.finding == "non-finite: the output of middle"
    assert train(Net("output", at=(1, 2, 4, 5, 7)), max_refused=3).refused == 5, "near miss: never three in a row"


def test_calls_without_gradients_are_not_kept() -> None:
    model = Net()
    guard = FiniteGuard(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with torch.no_grad():
        model(inputs(1)[0])
    assert len(guard._calls) == 0
    for _ in range(200):
        model(inputs(1)[0])
    assert len(guard._calls) == 64
    del guard
    assert not model._forward_pre_hooks, "the hook goes with the guard"


class Scale:
    """What the scale of a plain fp16 loop does over the steps: grows, and halves after an overflow."""

    def __init__(self, guarded: bool, *, unscale: bool) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
        self.model, self.scales = Net(), list[float]()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.guard = FiniteGuard(self.model, self.optimizer, scaler=self.scaler, say=pytest.fail) if guarded else None
        self.unscale = unscale

    def run(self, overflows: tuple[int, ...]) -> None:
        for number, x in enumerate(inputs(10)):
            loss = self.model(x).square().mean()
            self.scaler.scale(loss).backward()
            if number in overflows:
                self.model.enter.weight.grad[0, 0] = math.inf  # type: ignore[index]
            if self.unscale:
                self.scaler.unscale_(self.optimizer)
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            if self.guard is not None:
                self.guard.step(loss)
            else:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            self.optimizer.zero_grad()
            self.scales.append(self.scaler.get_scale())


@pytest.mark.parametrize("unscale", [False, True])
def test_with_a_grad_scaler_it_is_the_plain_loop_to_the_bit(unscale: bool) -> None:
    guarded, plain = (Scale(guarded, unscale=unscale) for guarded in (True, False))
    for each in (guarded, plain):
        each.run(overflows=(2, 6))
    assert guarded.scales == plain.scales
    assert len(set(guarded.scales)) == 2
    pairs = zip(guarded.model.parameters(), plain.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert guarded.guard is not None
    assert (guarded.guard.refused, guarded.guard.refused_in_row) == (2, 0), "an overflow is no fault"


@pytest.mark.parametrize("unscale", [False, True])
def test_with_a_grad_scaler_a_bad_loss_is_a_fault(unscale: bool) -> None:
    loop = Scale(True, unscale=unscale)
    assert loop.guard is not None
    loop.guard._say = lambda _: None
    loss = loop.model(inputs(1)[0]).mean()
    loop.scaler.scale(loss).backward()
    before = [p.detach().clone() for p in loop.model.parameters()]
    if unscale:
        loop.scaler.unscale_(loop.optimizer)
    assert not loop.guard.step(loss * math.nan)
    assert all(torch.equal(a, b) for a, b in zip(before, loop.model.parameters(), strict=True))
    assert loop.guard.refused_in_row == 1
    loop.run(overflows=())
    assert loop.guard.refused_in_row == 0


def test_the_precision_of_the_loop_is_that_of_the_replay() -> None:
    """65,504 is the largest number of fp16: the replay must overflow where the loop did."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    nn.init.constant_(model[0].weight, 1e3)
    guard = FiniteGuard(model, torch.optim.SGD(model.parameters(), lr=0.1), say=lambda _: None)
    with torch.autocast("cpu", torch.float16):
        loss = model(torch.full((2, 4), 1e2)).float().mean()
    loss.backward()
    assert not guard.step(loss)
    assert guard.first_nonfinite == "the output of 0"


def test_a_model_that_cannot_be_called_again_costs_only_the_name() -> None:
    model, said = Net("output", at=(0,)), list[str]()
    guard = FiniteGuard(model, torch.optim.SGD(model.parameters(), lr=0.1), say=said.append)
    loss = model(inputs(1)[0]).mean()
    loss.backward()
    model.forward = None  # type: ignore[assignment, method-assign]
    assert not guard.step(loss)
    assert "could not be called again" in said[0]


def test_state_and_misuse() -> None:
    guard, other = train(Net("output", at=(7,))), train(Net(), 1)
    other.load_state_dict(guard.state_dict())
    assert (other.refused, other.refused_in_row) == (1, 1)
    with pytest.raises(UsageError, match="not the state of a FiniteGuard"):
        other.load_state_dict({"refused": "many"})
    with pytest.raises(UsageError, match=r"after loss.backward"):
        other.step(torch.tensor(1.0))
    with pytest.raises(UsageError, match="at least 1"):
        train(Net(), max_refused=0)
