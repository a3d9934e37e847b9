"""Gradients as they come: how many, what was there before, and what was cleared without an update."""

from __future__ import annotations

import torch
from torch import nn

from safelight.monitors.parameters import trainable_parameters
from safelight.probes.call_hooks import CallHooks


def make() -> tuple[nn.Module, CallHooks]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    return model, CallHooks(model, trainable_parameters(model), lambda: True, lambda: True, lambda: True)


def backward(model: nn.Module) -> None:
    model(torch.ones(2, 4)).square().mean().backward()


def test_backward_passes_are_counted() -> None:
    model, hooks = make()
    for _ in range(3):
        backward(model)
    assert hooks.take_backwards() == 3
    assert hooks.take_backwards() == 0


def test_a_gradient_that_was_there_before() -> None:
    model, hooks = make()
    backward(model)
    assert float(hooks.take_readings()["sentinel/carried"]) == 0
    backward(model)  # accumulation: of one window only the first counts
    assert hooks.take_readings() == {}
    hooks.take_backwards()  # an update
    backward(model)
    assert float(hooks.take_readings()["sentinel/carried"]) == 1
    hooks.take_backwards()
    model.zero_grad(set_to_none=False)
    backward(model)
    assert float(hooks.take_readings()["sentinel/carried"]) == 0


def test_gradients_that_are_cleared_without_an_update() -> None:
    model, hooks = make()
    for number in range(4):
        model.zero_grad()
        backward(model)
        assert hooks.cleared == number
    hooks.take_backwards()
    assert hooks.cleared == 0
    for _ in range(4):
        backward(model)  # accumulation
    assert hooks.cleared == 0


def test_the_norm_of_what_came() -> None:
    model, hooks = make()
    assert float(hooks.take_norm()) == -1
    backward(model)
    model.zero_grad()
    assert float(hooks.take_norm()) > 0


def test_nothing_is_heard_of_the_probes_own_passes() -> None:
    model, hooks = make()
    hooks.paused = True
    backward(model)
    assert (hooks.take_backwards(), hooks.cleared, hooks.take_readings()) == (0, 0, {})


def test_hooks_come_off() -> None:
    model, hooks = make()
    hooks.attach(lambda: None, lambda *_: None)
    hooks.close()
    backward(model)
    assert hooks.take_backwards() == 0
    assert hooks.pop_call() is None


def test_a_call_that_nobody_asks_for_is_not_kept() -> None:
    wanted, heard = [True, False], []
    model = nn.Linear(4, 4)
    hooks = CallHooks(model, trainable_parameters(model), lambda: wanted.pop(0), lambda: True, lambda: False)
    hooks.attach(lambda: None, lambda training, half: heard.append((training, half)))
    backward(model)
    assert hooks.pop_call() is not None
    model.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        backward(model)
    assert hooks.pop_call() is None
    assert heard == [(True, None), (False, torch.bfloat16)], "its mode is heard all the same"


def test_samples_to_whose_answer_no_gradient_comes() -> None:
    model, hooks = make()
    hooks.attach(lambda: None, lambda *_: None)
    weight = torch.tensor([1.0, 0.0, 0.0, 2.0])
    for weights in (weight, torch.ones(4)):  # micro-batches
        (model(torch.ones(4, 4)).square().mean(1) * weights).mean().backward()
    assert float(hooks.take_readings()["answer/unheard"]) == 0.25
    assert hooks.take_readings() == {}
    hooks.paused = True
    (model(torch.ones(4, 4)).square().mean(1) * weight).mean().backward()
    assert hooks.take_readings() == {}, "the probes' own passes"
