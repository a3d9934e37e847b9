"""Copies of a network: nobody else's hooks, and the optimizer moves the copy only."""

from __future__ import annotations

import torch
from torch import nn

from safelight.model.copies import copy_with_optimizer, copy_without_hooks


def test_hooks_stay_with_the_original() -> None:
    model, calls = nn.Linear(2, 2), list[int]()
    model.register_forward_hook(lambda *_: calls.append(1))
    model.register_forward_pre_hook(lambda *_: calls.append(2))
    copy = copy_without_hooks(model)
    copy(torch.zeros(1, 2))
    assert calls == []
    model(torch.zeros(1, 2))
    assert calls == [2, 1]
    assert torch.equal(next(copy.parameters()), model.weight)


def test_an_optimizer_is_copied_with_its_state_and_moves_the_copy() -> None:
    model = nn.Linear(2, 2)
    optimizer, steps = torch.optim.AdamW(model.parameters(), lr=0.1), list[int]()
    optimizer.register_step_pre_hook(lambda *_: steps.append(1))
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 0.5)  # puts a `step` of its own on the instance
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    before = [p.detach().clone() for p in model.parameters()]
    copy, twin = copy_with_optimizer(model, optimizer)
    assert twin is not None and twin.param_groups[0]["lr"] == 0.05  # noqa: PT018
    assert len(twin.state) == 2
    copy(torch.ones(1, 2)).sum().backward()
    twin.step()
    assert steps == [1]
    assert all(map(torch.equal, model.parameters(), before))
    assert not torch.equal(next(copy.parameters()), model.weight)
    assert optimizer.state[model.weight]["step"] == 1
    assert copy_with_optimizer(model, None)[1] is None
