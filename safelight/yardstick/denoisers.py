"""The closed-form denoisers of a set of images, fitted when they are first needed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

from safelight.diffusion.process import per_sample
from safelight.yardstick.cache import cached_linear
from safelight.yardstick.exact import denoise_exactly
from safelight.yardstick.linear import LinearDenoiser, fit_linear
from safelight.yardstick.skill import Yardstick

AT_ONCE = 512  # images of a batch that is read

Loss = Callable[[Tensor, Tensor], Tensor]
"""The loss of clean images and noise as a denoiser sees them: one number for each sample."""


class ClosedFormDenoisers:
    """Reads batches of the training images; nothing of them is kept but the linear filter."""

    def __init__(self, batches: Iterable[Tensor], kept: Path | None = None) -> None:
        """`batches` of images as a network is shown them; read three times, so no iterator. `kept`: where the linear
        filter of these very images is kept between runs."""
        self._batches, self._kept = batches, kept

    @functools.cached_property
    def linear(self) -> LinearDenoiser:
        return cached_linear(self._kept, lambda: fit_linear(self._batches))

    @torch.no_grad()
    def measure(self, x_t: Tensor, a: Tensor, s: Tensor, loss: Loss) -> Yardstick:
        """On samples x_t = a · x0 + s · noise, on the host."""
        x_t, a, s = x_t.double().cpu(), a.double().cpu(), s.double().cpu()
        scale, width = per_sample(a, x_t), per_sample(s, x_t).clamp(min=1e-12)

        def loss_of(x0: Tensor) -> Tensor:
            return loss(x0, (x_t - scale * x0) / width).double().cpu()

        linear = self.linear
        blind, filtered = (loss_of(each.denoise(x_t, a, s)).numpy() for each in (linear.isotropic(), linear))
        return Yardstick(blind, filtered, loss_of(denoise_exactly(x_t, a, s, self._batches)).numpy())
