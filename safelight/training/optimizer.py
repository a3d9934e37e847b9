"""AdamW, its parameter groups, and the learning rate as a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from safelight.config.tree import WARMUP_SHARE, Optimizer
from safelight.monitors.finite import all_finite
from safelight.monitors.parameters import SumOverProcesses, trainable_parameters

DECAYED_LAYERS = (nn.Linear, nn.Bilinear, nn.MultiheadAttention, _ConvNd)
MAX_WARMUP_STEPS = 5000

MAX_SAFE_RATE, MIN_SAFE_EPS = 1e3, 1e-15  # of updates that need no second look
NamedParameters = Sequence[tuple[str, nn.Parameter]]


def warmup_steps(settings: Optimizer, steps: int) -> int:
    if settings.warmup is not None:
        return settings.warmup
    return min(MAX_WARMUP_STEPS, math.ceil(steps * WARMUP_SHARE), steps - 1)  # the last step is the floor's


def learning_rate(settings: Optimizer, step: int, steps: int) -> float:
    """The rate of update number `step` (from 0): linear warmup, then the schedule; the last update's of a cosine or a
    line is exactly the floor."""
    warmup = warmup_steps(settings, steps)
    if step < warmup:
        return settings.lr * (step + 1) / warmup
    progress = min(1.0, (step + 1 - warmup) / max(1, steps - warmup))
    low = settings.lr * settings.floor
    match settings.schedule:
        case "cosine":
            return low + (settings.lr - low) * (1 + math.cos(math.pi * progress)) / 2
        case "linear":
            return settings.lr - (settings.lr - low) * progress
        case "constant":
            return settings.lr
        case "inverse-sqrt":  # Vaswani et al. 2017
            return settings.lr * math.sqrt(max(1, warmup) / max(1, step + 1))
        case "edm2":  # Karras et al. 2024, equation 67
            reference = settings.reference or max(1, warmup, steps // 10)
            return settings.lr / math.sqrt(max(1.0, (step + 1) / reference))
        case "wsd":  # warmup, stable, decay
            falling = max(1, min(steps - warmup, round(steps * settings.decay)))
            return settings.lr * min(1.0, max(0, steps - step) / falling)


def rate_scheduler(
    optimizer: torch.optim.Optimizer, steps: int, settings: Optimizer | None = None
) -> torch.optim.lr_scheduler.LambdaLR:
    """The same rates for a loop of your own, as factors of those that its optimizer was made with: call `step()` after
    every update."""
    plan = replace(settings or Optimizer(), lr=1.0)
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate(plan, step, steps))


def parameter_groups(
    model: nn.Module, weight_decay: float, named_parameters: NamedParameters | None = None
) -> list[dict[str, object]]:
    """Weight matrices and convolutions decay, all else does not; decided by the module that owns the tensor."""
    decayed, free = [], []
    for name, parameter in trainable_parameters(model) if named_parameters is None else named_parameters:
        if parameter.numel():  # of divided weights a process may hold no row
            (decayed if _decays(model, name, parameter) else free).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0}]


def _decays(model: nn.Module, name: str, parameter: nn.Parameter) -> bool:
    path = name.split(".parametrizations.")[0] if ".parametrizations." in name else name.rpartition(".")[0]
    return parameter.dim() >= 2 and isinstance(model.get_submodule(path), DECAYED_LAYERS)


def make_optimizer(
    settings: Optimizer, model: nn.Module, named_parameters: NamedParameters | None = None
) -> torch.optim.AdamW:
    """Fused: one kernel, which a number on the device can make skip the update (see `prepare_update`).
    `named_parameters`: what stands for the trained parameters of the model, where that is not they themselves."""
    return torch.optim.AdamW(
        parameter_groups(model, settings.weight_decay, named_parameters),
        lr=settings.lr,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        fused=True,
    )


def prepare_update(optimizer: torch.optim.AdamW, lr: float, refused: Tensor) -> None:
    """The next `step()` makes one update, or none where `refused` is 1: decided on the device, without a host sync."""
    for group in optimizer.param_groups:
        group["lr"] = lr
    # The fused kernels read `found_inf` (it is how torch's GradScaler skips a step): weights, moments and
    # step counters all stay untouched.
    optimizer.grad_scale, optimizer.found_inf = None, refused  # type: ignore[attr-defined]


def may_overflow(settings: Optimizer, lr: float) -> bool:
    """Whether one update of finite gradients may leave float32. With the usual settings none can: by Cauchy-Schwarz it
    is at most lr times a few hundred, and weights do not grow by their decay."""
    usual = lr <= MAX_SAFE_RATE and lr * settings.weight_decay <= 1 and settings.eps >= MIN_SAFE_EPS
    return not (usual and settings.beta1**2 < settings.beta2)


@torch.no_grad()
def make_update(
    optimizer: torch.optim.AdamW,
    settings: Optimizer,
    lr: float,
    refused: Tensor,
    sum_over_processes: SumOverProcesses | None = None,
) -> Tensor:
    """The update that was prepared, or none if it would make a weight or a moment non-finite; returns whether there
    was none. Usual settings cost nothing; others a copy of the state, and never a host sync. `sum_over_processes`: over
    processes that hold different weights."""
    if not may_overflow(settings, lr):
        optimizer.step()
        return refused
    copies = {id(tensor): tensor.clone() for tensor in _state_of(optimizer)}
    optimizer.step()
    tensors = _state_of(optimizer)
    spoilt = 1 - all_finite(tensors).to(refused)
    spoilt = spoilt if sum_over_processes is None else sum_over_processes(spoilt.reshape(1)).clamp(max=1).reshape(())
    for tensor in tensors:  # moments that were made by this very update were 0
        before = copies.get(id(tensor), torch.zeros_like(tensor))
        tensor.copy_(torch.where(spoilt.to(tensor.device, torch.bool), before, tensor))
    return torch.maximum(refused, spoilt)


def _state_of(optimizer: torch.optim.AdamW) -> list[Tensor]:
    weights = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return [*weights, *(value for state in optimizer.state.values() for value in state.values())]


def optimizer_tensors(optimizer: torch.optim.AdamW, named_parameters: NamedParameters) -> dict[str, Tensor]:
    """The moments and counters, by parameter name."""
    names = {id(parameter): name for name, parameter in named_parameters}  # hashing a tensor is slow
    return {
        f"{names[id(parameter)]}/{part}": value
        for parameter, state in optimizer.state.items()
        for part, value in state.items()
    }


def load_optimizer(
    optimizer: torch.optim.AdamW, named_parameters: NamedParameters, tensors: Mapping[str, Tensor]
) -> None:
    names = dict(named_parameters)
    optimizer.state.clear()  # a run that goes back to its start had none
    for full, value in tensors.items():
        name, _, part = full.rpartition("/")
        parameter = names[name]
        optimizer.state[parameter][part] = value.to(parameter.device)
