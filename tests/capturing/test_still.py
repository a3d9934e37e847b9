"""Copies that are named as an EMA: by whatever holds them, and whether they stand still."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from safelight.capturing.still import NAMED_AS_EMA, StillCopies, names_of


class ModelEMA:
    def __init__(self, module: nn.Module) -> None:
        self.module = module


class Averaged(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inner = module


def held_by_a_variable(made: list[nn.Module]) -> Any:
    ema_net = made[0]
    return NAMED_AS_EMA.search(" ".join(names_of(ema_net)).lower())


def test_a_variable_of_a_function_that_is_running_names_it() -> None:
    assert held_by_a_variable([nn.Linear(2, 2)])


@pytest.mark.parametrize(
    "hold",
    [
        lambda copy: SimpleNamespace(ema=copy),
        lambda copy: {"ema_model": copy},
        ModelEMA,
        Averaged,
        lambda copy: nn.ModuleDict({"ema": copy}),
    ],
)
def test_an_attribute_a_key_or_the_class_of_its_holder_names_it(hold: Any) -> None:
    held = hold(nn.Linear(2, 2))
    inner = next(
        each for each in (getattr(held, "module", None), getattr(held, "inner", None), getattr(held, "ema", None),
                          held.get("ema_model") if isinstance(held, dict) else None,
                          held["ema"] if isinstance(held, nn.ModuleDict) else None) if isinstance(each, nn.Module)
    )  # fmt: skip
    assert any(NAMED_AS_EMA.search(name.lower()) for name in names_of(inner))


def test_another_copy_is_not_taken_for_one() -> None:
    teacher = SimpleNamespace(teacher=nn.Linear(2, 2), schema=None)
    assert not any(NAMED_AS_EMA.search(name.lower()) for name in names_of(teacher.teacher))
    assert not [word for word in ("schema", "remaining", "cinemas") if NAMED_AS_EMA.search(word)]
    assert [
        word for word in ("ema", "model_ema", "modelema", "emamodel", "shadow") if not NAMED_AS_EMA.search(word)
    ] == []


def weights(module: nn.Module) -> list[Tensor]:
    return [p.detach() for p in module.parameters()]


def test_it_is_still_until_it_moves() -> None:
    holder = SimpleNamespace(ema=nn.Linear(2, 2))
    copies = StillCopies(weights)
    assert copies.add([holder.ema, nn.Linear(2, 2)], 1) == [holder.ema]
    assert copies.add([holder.ema], 8) == []
    copies.look(9)
    assert copies.longest == 8
    with torch.no_grad():
        holder.ema.weight.add_(1e-3)
    copies.look(10)
    assert copies.longest == 0


def test_it_is_held_weakly() -> None:
    holder = SimpleNamespace(ema=nn.Linear(2, 2))
    copies = StillCopies(weights)
    copies.add([holder.ema], 1)
    del holder.ema
    copies.look(9)
    assert copies.longest == 0
