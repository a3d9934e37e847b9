"""The limit on the gradient norm: fixed, or following the norm the run usually has; also as a part for any loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from safelight.config.check import clipping_problems
from safelight.config.tree import Clipping
from safelight.errors import UsageError
from safelight.monitors.parameters import norms_of


def global_norm(gradients: list[Tensor]) -> Tensor:
    """L2 norm over all gradients, a device scalar; of half precision, summed in fp32."""
    return torch.linalg.vector_norm(norms_of(gradients))


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
                first = self.settings.highest if self.settings.initial is None else self.settings.initial
                return torch.where(self.running > 0, follow, first)

    def clip(self, gradients: list[Tensor], norm: Tensor) -> Tensor:
        """Scales in place and returns the limit that was used. Call after unscaling. Where the norm is not finite,
        gradients are left as they are: scaled, all of them would be NaN, and none could be told from the cause."""
        limit = self.limit()
        scale = (limit / norm.clamp(min=1e-12)).clamp(max=1.0)
        _scale(gradients, torch.where(norm.isfinite(), scale, 1.0))
        if self.settings.kind == "adaptive":
            seen = torch.minimum(norm, limit)  # a spike enters no larger than the limit; NaN not at all
            moved = torch.where(self.running > 0, self.running.lerp(seen, 1 - self.settings.decay), seen)
            self.running = torch.where(norm.isfinite(), moved, self.running)
        return limit


def _scale(gradients: list[Tensor], scale: Tensor) -> None:
    """In place; gradients of a model that is spread over several devices each on its own."""
    for device in dict.fromkeys(gradient.device for gradient in gradients):
        torch._foreach_mul_([each for each in gradients if each.device == device], scale.to(device))


class AdaptiveClipper:
    """Gradient clipping whose limit follows the norm that the gradients usually have, for any PyTorch loop: call it
    after `backward()`, and after `scaler.unscale_()`. No host sync."""

    def __init__(
        self,
        parameters: nn.Module | Iterable[Tensor],
        *,
        factor: float = 2.0,
        decay: float = 0.99,
        lowest: float = 0.01,
        highest: float = 10.0,
        initial: float | None = None,
    ) -> None:
        """`parameters` of a model, or the model. The limit is `factor` times the running norm, between `lowest` and
        `highest`; `initial` until there is a running norm, or `highest`. `decay`: memory of the running norm."""
        parameters = parameters.parameters() if isinstance(parameters, nn.Module) else parameters
        self._parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        if not self._parameters:
            raise UsageError("AdaptiveClipper was given no parameters. Was their generator used up by something else?")
        settings = Clipping(
            kind="adaptive", factor=factor, decay=decay, lowest=lowest, highest=highest, initial=initial
        )
        for problem in clipping_problems(settings):
            raise UsageError(problem.replace("clipping.", ""))
        self._clipper = Clipper(settings, self._parameters[0].device)
        self.limit = self._clipper.limit()

    def __repr__(self) -> str:
        return f"AdaptiveClipper(limit={float(self.limit):g}, running={float(self.running):g})"

    @property
    def running(self) -> Tensor:
        """The running norm, a number on the device; 0 before there is one."""
        return self._clipper.running

    @torch.no_grad()
    def __call__(self) -> Tensor:
        """Clips in place. The norm before clipping, a number on the device; `limit` is what it was clipped to. A norm
        that is not finite leaves gradients and running norm as they are."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if not gradients:
            raise UsageError("No parameter has a gradient. Call the clipper after loss.backward().")
        norm = global_norm(gradients)
        self._clipper.running = self._clipper.running.to(norm.device)  # a model may be moved after this was made
        self.limit = self._clipper.clip(gradients, norm)
        return norm

    def state_dict(self) -> dict[str, Any]:
        return {"running": self._clipper.running.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        running = state.get("running")
        if not isinstance(running, Tensor) or running.numel() != 1 or not (running >= 0).all():
            raise UsageError(f"This is not the state of an AdaptiveClipper: running is {running!r:.60}.")
        self._clipper.running = running.detach().to(self._parameters[0].device, torch.float32).reshape(()).clone()
        self.limit = self._clipper.limit()
