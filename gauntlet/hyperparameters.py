"""What a loop is fed with beside the images: timesteps, loss weights, learning rates, optimizers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from gauntlet.options import Options

GAMMA = 5.0  # of min-SNR, as published
CYCLES = 4  # warm restarts in a run


def learning_rate(options: Options, step: int) -> float:
    if step < options.warmup:
        return options.lr * (step + 1) / options.warmup
    if options.rate == "constant":
        return options.lr
    progress = (step - options.warmup) / max(1, options.steps - options.warmup)
    if options.rate == "restarts":
        progress = progress * CYCLES % 1
    return options.lr * (0.02 + 0.98 * (1 + math.cos(math.pi * min(1.0, progress))) / 2)


def draw_timesteps(options: Options, count: int) -> Tensor:
    last = options.timesteps
    if options.sampling == "uniform":
        return torch.randint(0, last, (count,))
    if options.sampling == "shared":
        return torch.randint(0, last, (1,)).expand(count).clone()
    if options.sampling == "stratified":
        return (((torch.randperm(count) + torch.rand(count)) / count) * last).long().clamp(max=last - 1)
    return (torch.sigmoid(torch.randn(count)) * last).long().clamp(max=last - 1)


def loss_weights(options: Options, table: Tensor, t: Tensor) -> Tensor:
    if options.weighting == "none":
        return torch.ones(len(t))
    snr = (table[t] / (1 - table[t])).float()
    capped = snr.clamp(max=GAMMA)
    return {"epsilon": capped / snr.clamp(min=1e-8), "sample": capped, "v_prediction": capped / (snr + 1)}[
        options.prediction
    ]


def make_table(schedule: str, timesteps: int) -> Tensor:
    """alphas_cumprod in float32, as tutorials compute it."""
    if schedule == "linear":
        betas = torch.linspace(1e-4, 0.02, timesteps, dtype=torch.float64)
    else:
        grid = torch.linspace(0, 1, timesteps + 1, dtype=torch.float64)
        curve = torch.cos((grid + 0.008) / 1.008 * math.pi / 2) ** 2
        betas = (1 - curve[1:] / curve[:-1]).clamp(max=0.999)
    return (1 - betas).cumprod(0).float()


def make_optimizer(options: Options, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    if options.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=options.lr, momentum=0.9)
    if options.optimizer == "lion":
        return Lion(parameters, lr=options.lr, weight_decay=options.weight_decay)
    return torch.optim.AdamW(parameters, lr=options.lr, weight_decay=options.weight_decay)


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023: the sign of a momentum. An optimizer that no watch can know by name."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                direction = momentum.lerp(parameter.grad, 0.1).sign()
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(direction, alpha=group["lr"])
                momentum.lerp_(parameter.grad, 0.01)
