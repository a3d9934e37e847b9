"""An update once more: the twin of an optimizer makes its step, and what else moves the weights shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from micro_batches import after_backward, named_parameters, network
from torch import nn

from safelight.probes.update import copy_state, measure_update

Optimizers = Callable[[Any], torch.optim.Optimizer]
pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # as the inspection does

OPTIMIZERS: dict[str, Optimizers] = {
    "Adam": lambda p: torch.optim.Adam(p, 1e-2),
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1),
    "AdamW fused": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, 1e-2, foreach=True),
    "SGD with momentum": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
    "SGD with Nesterov and decay": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, nesterov=True, weight_decay=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 1e-3),
    "Adam, AMSGrad": lambda p: torch.optim.Adam(p, 1e-2, amsgrad=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_twin_makes_the_step_that_the_optimizer_makes(name: str) -> None:
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    for seed in range(4):
        before, _ = after_backward(model, seeds=(seed,), optimizer=optimizer)
        state = {id(p): {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in optimizer.state[p].items()}
                 for p in model.parameters() if p in optimizer.state}  # fmt: skip
        optimizer.step()
        expected = [p.detach().clone() for p in model.parameters()]
        readings = measure_update(before, named_parameters(model))
        assert readings["update/error"] < 1e-6
        assert readings["update/moved"] == pytest.approx(readings["update/expected"], rel=1e-5)
        assert readings["update/lost"] < 0.01
        assert (readings["update/coarse"], readings["update/alignment"] > 0) == (0, True)
        assert all(map(torch.equal, expected, model.parameters())), "the twin must not move the model"
        assert seed == 0 or state, "from the second step on there are moments"
        optimizer.zero_grad()


@pytest.mark.parametrize("name", ["Adam", "AdamW fused", "SGD with momentum"])
def test_an_optimizer_is_as_it_would_be_without_its_twin(name: str) -> None:
    def weights(look: bool) -> list[bytes]:
        model = network()
        optimizer = OPTIMIZERS[name](model.parameters())
        for seed in range(4):
            before, _ = after_backward(model, seeds=(seed,), optimizer=optimizer if look else None)
            optimizer.step()
            if look:
                measure_update(before, named_parameters(model))
            optimizer.zero_grad()
        moments = [v for entry in optimizer.state.values() for v in entry.values() if isinstance(v, torch.Tensor)]
        return [value.detach().numpy().tobytes() for value in (*model.parameters(), *moments)]

    assert weights(look=True) == weights(look=False)


def test_hooks_of_the_optimizer_are_not_called_by_the_twin() -> None:
    model, calls = network(), list[int]()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    optimizer.register_step_pre_hook(lambda *_: calls.append(1))
    before, _ = after_backward(model, optimizer=optimizer)
    optimizer.step()
    measure_update(before, named_parameters(model))
    assert len(calls) == 2


@torch.no_grad()
def _meddle(model: nn.Module, factor: float) -> None:
    for parameter in model.parameters():
        parameter.mul_(factor)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_weights_that_something_else_moved(factor: float) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    before, _ = after_backward(model, optimizer=optimizer)
    optimizer.step()
    _meddle(model, factor)
    assert measure_update(before, named_parameters(model))["update/error"] > 0.5


@pytest.mark.parametrize(
    ("name", "make", "aligned"),
    [("down", {}, True), ("up", {"maximize": True}, False)],
)
def test_the_direction_of_an_update(name: str, make: dict[str, bool], aligned: bool) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, **make)
    before, _ = after_backward(model, optimizer=optimizer)
    optimizer.step()
    assert measure_update(before, named_parameters(model))["update/alignment"] == pytest.approx(
        1 if aligned else -1, abs=1e-4
    )


def test_weights_that_stand_still_and_updates_that_are_rounded_away() -> None:
    model = network()
    before, _ = after_backward(model, optimizer=torch.optim.Adam(model.parameters(), 1e-3))
    readings = measure_update(before, named_parameters(model))
    assert (readings["update/moved"], readings["update/lost"]) == (0, 1)
    assert readings["update/expected"] > 0
    half = network().bfloat16()
    optimizer = torch.optim.SGD(half.parameters(), 1e-6)
    for parameter in half.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = copy_state(named_parameters(half), optimizer)
    optimizer.step()
    readings = measure_update(before, named_parameters(half))
    assert readings["update/coarse"] == 1
    assert readings["update/lost"] > 0.9
    assert readings["update/error"] == 0, "the twin rounds as the optimizer does"


def test_an_optimizer_that_wants_a_closure_is_not_compared() -> None:
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters())
    before, _ = after_backward(model, optimizer=optimizer)
    assert "update/error" not in measure_update(before, named_parameters(model))
