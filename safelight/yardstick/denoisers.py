"""The closed-form denoisers of the images that a run trains on, fitted when they are first needed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from safelight.data.batches import Batches
from safelight.diffusion.objective import per_sample
from safelight.yardstick.exact import denoise_exactly
from safelight.yardstick.linear import LinearDenoiser, fit_linear
from safelight.yardstick.skill import Yardstick

MOST = 20_000  # images that are read: more of them move the filter by less than a percent
AT_ONCE = 512

Loss = Callable[[Tensor, Tensor], Tensor]
"""Of clean images and noise as a denoiser sees them: one number for each sample."""


class DatasetDenoisers:
    """Reads the first rows of a batch of the training images; nothing of them is kept but the linear filter."""

    def __init__(self, batches: Batches, count: int) -> None:
        """`count` rows of step 0 are read."""
        self._batches, self._count = batches, count

    def __iter__(self) -> Iterator[Tensor]:
        for start in range(0, self._count, AT_ONCE):
            yield self._batches.rows(0, start, min(self._count, start + AT_ONCE)).images

    @functools.cached_property
    def linear(self) -> LinearDenoiser:
        return fit_linear(self)

    @torch.no_grad()
    def measure(self, x_t: Tensor, a: Tensor, s: Tensor, loss: Loss, *, trained_on: bool) -> Yardstick:
        """On samples x_t = a · x0 + s · noise, on the host. `trained_on`: of images that are read here, so there is
        a floor."""
        x_t, a, s = x_t.double().cpu(), a.double().cpu(), s.double().cpu()
        scale, width = per_sample(a, x_t), per_sample(s, x_t).clamp(min=1e-12)

        def loss_of(x0: Tensor) -> Tensor:
            return loss(x0, (x_t - scale * x0) / width).double().cpu()

        linear = self.linear
        blind, filtered = (loss_of(each.denoise(x_t, a, s)).numpy() for each in (linear.isotropic(), linear))
        floor = loss_of(denoise_exactly(x_t, a, s, self)).numpy() if trained_on else None
        return Yardstick(blind, filtered, floor)
