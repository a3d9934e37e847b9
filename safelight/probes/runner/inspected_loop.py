"""What is inspected of a loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from safelight.probes.sampler import Sampler


@dataclass(frozen=True, slots=True)
class InspectedLoop:
    """Only the model is required."""

    model: nn.Module
    optimizer: torch.optim.Optimizer | None = None
    ema: Callable[[], list[Tensor] | None] | None = None
    sampler: Sampler | None = None
    data: Any = None
    scaled: bool = False
    """Whether a gradient scaler is in use."""
    sharded: bool = False
    """Whether this process holds but pieces of the weights: then it cannot copy the model, nor call it alone."""
    space: str | None = None
    """One of SPACES, where the data is declared to be in it."""
    also_held: frozenset[int] = frozenset()
    """Ids of parameters that other optimizers of the loop hold."""

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def read_ema(self) -> list[Tensor] | None:
        return None if self.ema is None else self.ema()
