"""Copies of a network that nobody else sees: without the hooks that a watch or a user put on it."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def copy_without_hooks(model: nn.Module) -> nn.Module:
    """Hooks of a watch would observe the copy."""
    return copy.deepcopy(model, _without_hooks(model))


def copy_with_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer | None
) -> tuple[nn.Module, torch.optim.Optimizer | None]:
    """Both, the copy of the optimizer with its state, for the weights of the copy."""
    memo = _without_hooks(model)
    copied = copy.deepcopy(model, memo)
    if optimizer is None:
        return copied, None
    # Its state holds groups and moments only: neither hooks nor the `step` that a scheduler put on the instance.
    return copied, copy.deepcopy(optimizer, memo)


def _without_hooks(model: nn.Module) -> dict[int, Any]:
    """A memo for deepcopy in which every dictionary of hooks is empty."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for hooks in (getattr(module, name) for name in HOOKS):
            memo[id(hooks)] = OrderedDict()  # whatever kind of table a watch has put there
    return memo
