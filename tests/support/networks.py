"""Pictures and weights that tests of feature networks are made with."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def photographs(count: int, side: int = 32, channels: int = 3) -> np.ndarray:
    """Smooth colours with some grain."""
    numbers = np.random.default_rng(7)
    coarse = torch.from_numpy(numbers.uniform(0, 255, (count, channels, 4, 4)))
    smooth = nn.functional.interpolate(coarse, (side, side), mode="bicubic").numpy()
    return np.clip(np.rint(smooth + numbers.normal(0, 9, smooth.shape)), 0, 255).astype(np.uint8)


def shuffled(network: nn.Module) -> nn.Module:
    """Random weights under which normalisations differ from the identity, and no layer vanishes or explodes."""
    numbers = torch.Generator().manual_seed(3)
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            for tensor, low in (
                (part.weight, 0.5),
                (part.running_var, 0.5),
                (part.bias, -0.2),
                (part.running_mean, -0.2),
            ):
                assert tensor is not None
                tensor.data.uniform_(low, low + 1, generator=numbers)
    return network.eval().requires_grad_(False)
