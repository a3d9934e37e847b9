"""Gradients of every step: how large, where, how often they are clipped, and how noisy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from safelight.monitors.modules import Parts
from safelight.monitors.pool import Piece
from safelight.vocabulary import (
    CLIP_KEPT,
    CLIP_LIMIT,
    CLIPPED,
    GRADIENT_NOISE,
    GRADIENT_NORM,
    GRADIENT_PART,
    GRADIENT_ZERO,
    NONFINITE_PARAMETERS,
)

MEMORY = 0.98  # of the two parts of the noise scale


class GradientMonitor:
    """Works on the norms of single parameters, which the step needs anyhow."""

    def __init__(self, parts: Parts, device: torch.device) -> None:
        self._parts = parts
        self._names = tuple(f"{GRADIENT_PART.name}/{name}" for name in parts.names)
        self._zero_names = tuple(f"{GRADIENT_ZERO.name}/{name}" for name in parts.names)
        self.signal = torch.zeros((), device=device)  # squared length of the true gradient, estimated
        self.noise = torch.zeros((), device=device)  # variance of one sample's gradient, estimated
        self._sizes: Tensor | None = None

    @torch.no_grad()
    def look(self, norms: Tensor, norm: Tensor, limit: Tensor) -> list[Piece]:
        """`norms` [parameters] after unscaling and before clipping; `norm` of all of them together."""
        kept = (limit / norm.clamp(min=1e-12)).clamp(max=1.0)
        bad = (~norms.isfinite()).sum()
        told = torch.stack([norm, limit, kept, (kept < 1).float(), bad.float()])
        names = (GRADIENT_NORM.name, CLIP_LIMIT.name, CLIP_KEPT.name, CLIPPED.name, NONFINITE_PARAMETERS.name)
        return [Piece(names, told.float()), Piece(self._names, self._parts.total(norms.float().square()).sqrt())]

    @torch.no_grad()
    def look_deeper(self, gradients: Sequence[Tensor]) -> list[Piece]:
        """Share of gradients that are exactly zero: reads every number, so not at every step."""
        zeros = torch.stack([(gradient == 0).sum() for gradient in gradients]).float()
        if self._sizes is None:
            sizes = torch.tensor([float(gradient.numel()) for gradient in gradients], device=zeros.device)
            self._sizes = self._parts.total(sizes)
        return [Piece(self._zero_names, self._parts.total(zeros) / self._sizes)]

    @torch.no_grad()
    def look_at_noise(self, small: Tensor, big: Tensor, small_batch: int, big_batch: int) -> list[Piece]:
        """The batch size at which noise and signal of the gradient are equal, from the norm over a part of the batch
        and over all of it (McCandlish et al. 2018, appendix A). Both parts are averaged before they are divided."""
        small, big = small.float().square(), big.float().square()
        signal = (big_batch * big - small_batch * small) / (big_batch - small_batch)
        noise = (small - big) / (1 / small_batch - 1 / big_batch)
        fine = signal.isfinite() & noise.isfinite()
        self.signal = torch.where(fine, self.signal * MEMORY + signal * (1 - MEMORY), self.signal)
        self.noise = torch.where(fine, self.noise * MEMORY + noise * (1 - MEMORY), self.noise)
        scale = self.noise / self.signal
        return [Piece((GRADIENT_NOISE.name,), scale[None], _only_positive)]

    def state(self) -> dict[str, Tensor]:
        return {"gradient/signal": self.signal, "gradient/noise": self.noise}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.signal.copy_(tensors["gradient/signal"])
        self.noise.copy_(tensors["gradient/noise"])


def _only_positive(scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The estimates may be negative while they are few; a negative batch size says nothing yet."""
    return scale, scale > 0
