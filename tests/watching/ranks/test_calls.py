"""Steps of optimizers, counted from the first on."""

from __future__ import annotations

import gc

import torch
from torch import nn

from safelight.watching.ranks.calls import OptimizerStepCounts


def optimizer(size: int = 1, kind: type = torch.optim.SGD) -> torch.optim.Optimizer:
    return kind([nn.Parameter(torch.zeros(2)) for _ in range(size)], lr=0.1)


def test_steps_are_counted_and_the_first_is_told_of() -> None:
    first: list[torch.optim.Optimizer] = []
    calls, one, two = OptimizerStepCounts(first.append), optimizer(), optimizer(2)
    for _ in range(3):
        one.step()
    two.step()
    assert [calls.made_before(each) for each in (one, two)] == [2, 0]
    assert first == [one, two]
    calls.close()
    one.step()
    assert calls.made_before(one) == 2
    first.clear()


def test_names_are_those_of_every_process() -> None:
    """By what is trained and by the order, not by what an object is called."""
    names = []
    for _ in range(2):
        calls, given = OptimizerStepCounts(), [optimizer(), optimizer(), optimizer(2), optimizer(kind=torch.optim.Adam)]
        for each in given:
            each.step()
        names.append([calls.name_of(each) for each in given])
        calls.close()
    assert names[0] == names[1]
    assert len(set(names[0])) == 4


def test_no_optimizer_is_kept_alive() -> None:
    calls, one = OptimizerStepCounts(), optimizer()
    one.step()
    del one
    gc.collect()
    assert len(calls._counts) == 0
    calls.close()
