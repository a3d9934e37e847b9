"""How the weights of each part are spread: for loggers that draw histograms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from safelight.monitors.modules import ParameterBlocks

BINS = 64


@torch.no_grad()
def weight_histograms(parts: ParameterBlocks, parameters: Sequence[Tensor]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(counts [BINS], edges [BINS + 1]) for each part, over its whole range. Reads every weight and waits for the
    device: only for steps with pictures. Weights that are not finite are left out: signals count them."""
    found = {}
    for index, name in enumerate(parts.names):
        chosen = [parameter for place, parameter in zip(parts.index, parameters, strict=True) if place == index]
        flat = torch.cat([parameter.detach().reshape(-1).float() for parameter in chosen])
        flat = flat[flat.isfinite()]
        if not len(flat):
            continue
        low, high = (float(edge) for edge in flat.aminmax())
        high = high if high > low else low + 1e-6
        counts = torch.histc(flat, BINS, low, high).cpu().numpy()
        found[name] = counts, np.linspace(low, high, BINS + 1)
    return found
