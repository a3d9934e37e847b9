"""Weights that take a known walk, and their averages."""

from __future__ import annotations

import math

import torch
from torch import nn

from safelight.checkpoints.ema_profiles import profile_name
from safelight.config.tree import Ema
from safelight.training.ema import EmaWeights


class Walker(nn.Module):
    """A model whose weights take a random walk around a drift, without an optimizer."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((64,), 100.0, dtype=dtype))  # a start that would be seen in any average
        self.register_buffer("table", torch.ones(3))
        self._random = torch.Generator().manual_seed(0)

    @torch.no_grad()
    def move(self, step: int) -> None:
        drift = 0.5 * (1 - math.exp(-step / 150))
        self.weight.copy_(drift + 0.1 * torch.randn(64, generator=self._random))


def walk(settings: Ema, steps: int, at: tuple[int, ...] = ()) -> tuple[EmaWeights, dict[int, dict[str, torch.Tensor]]]:
    model = Walker()
    averages, kept = EmaWeights(settings, model), {}
    for step in range(1, steps + 1):
        model.move(step)
        averages.update(step)
        if step in at:
            kept[step] = {profile_name(width): averages.profile(width)["weight"].clone() for width in settings.profiles}
    return averages, kept
