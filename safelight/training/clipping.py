"""The limit on the gradient norm: fixed, or following the norm the run usually has."""

from __future__ import annotations

import torch
from torch import Tensor

from safelight.config.tree import Clipping


def global_norm(gradients: list[Tensor]) -> Tensor:
    """L2 norm over all gradients, a device scalar."""
    return torch.nn.utils.get_total_norm(gradients, foreach=True)


class Clipper:
    """Scales gradients down to the limit. The running norm is its only state; everything stays on the device."""

    def __init__(self, settings: Clipping, device: torch.device) -> None:
        self.settings = settings
        self.running = torch.zeros((), device=device)  # 0: no norm seen yet

    def limit(self) -> Tensor:
        match self.settings.kind:
            case "none":
                return torch.full_like(self.running, torch.inf)
            case "fixed":
                return torch.full_like(self.running, self.settings.limit)
            case "adaptive":
                follow = (self.running * self.settings.factor).clamp(self.settings.lowest, self.settings.highest)
                return torch.where(self.running > 0, follow, self.settings.highest)

    def clip(self, gradients: list[Tensor], norm: Tensor) -> Tensor:
        """Scales in place and returns the limit that was used. Call after unscaling."""
        limit = self.limit()
        torch._foreach_mul_(gradients, (limit / norm.clamp(min=1e-12)).clamp(max=1.0))
        if self.settings.kind == "adaptive":
            seen = torch.minimum(norm, limit)  # a spike enters no larger than the limit; NaN not at all
            moved = torch.where(self.running > 0, self.running.lerp(seen, 1 - self.settings.decay), seen)
            self.running = torch.where(norm.isfinite(), moved, self.running)
        return limit
