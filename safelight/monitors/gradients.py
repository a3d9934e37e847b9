"""Gradients of every step: how large, where, how often they are clipped, and how noisy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from safelight import vocabulary as signals
from safelight.monitors.parameters import ParameterBlocks, SumOverProcesses
from safelight.monitors.reading_buffer import PendingReading, ShardReduction

SMOOTHING_DECAY = 0.98  # of the two parts of the noise scale


class GradientMonitor:
    """Works on the norms of single parameters, which the step needs anyhow."""

    def __init__(self, parts: ParameterBlocks, sum_over_processes: SumOverProcesses | None = None) -> None:
        self._parts, self._sum_over_processes = parts, sum_over_processes
        self.signal = 0.0  # squared length of the true gradient, estimated
        self.noise = 0.0  # variance of one sample's gradient, estimated

    def measure(self, norms: np.ndarray, norm: float, limit: float) -> dict[str, float]:
        """`norms` [parameters] after unscaling and before clipping; `norm` of all of them together."""
        kept = min(1.0, limit / max(norm, 1e-12)) if math.isfinite(norm) else norm
        return {
            signals.GRADIENT_NORM.name: norm,
            signals.CLIP_KEPT.name: kept,
            signals.CLIPPED.name: float(kept < 1),
            signals.NONFINITE_PARAMETERS.name: float(np.count_nonzero(~np.isfinite(norms))),
            **self._parts.by_name(signals.GRADIENT_PART, self._parts.norms(norms)),
            # A loop that does not clip has no limit: an infinite one would be drawn as a number that is not finite.
            **({signals.CLIP_LIMIT.name: limit} if math.isfinite(limit) else {}),
        }

    @torch.no_grad()
    def measure_zeros(self, gradients: Sequence[Tensor]) -> PendingReading:
        """Share of gradients that are exactly zero: reads every number, so not at every step."""
        first = gradients[0].device
        zeros = torch.stack([_zeros(gradient).to(first) for gradient in gradients]).float()
        sizes = torch.tensor([float(gradient.numel()) for gradient in gradients], dtype=torch.float64)
        if self._sum_over_processes is not None:
            zeros, sizes = self._sum_over_processes(torch.stack([zeros.double(), sizes.to(first)]))

        def finish(counts: np.ndarray, sizes: np.ndarray) -> dict[str, float]:
            return self._parts.by_name(signals.GRADIENT_ZERO, self._parts.total(counts) / self._parts.total(sizes))

        return PendingReading((zeros, sizes), finish, ShardReduction("zeros", of_norms=False))

    @torch.no_grad()
    def measure_numbers(self, gradients: Sequence[Tensor]) -> PendingReading:
        """The largest, the mean and the smallest absolute value of all numbers. Zeros, which `measure_zeros` counts,
        are no smallest value: among thousands of numbers there often is one."""
        first = gradients[0].device
        found = torch.stack([_range(gradient).to(first) for gradient in gradients]).double()
        largest, total, smallest = found[:, 0].amax(), found[:, 1].sum(), found[:, 2].amin()
        mean = total / max(1, sum(gradient.numel() for gradient in gradients))

        def finish(numbers: np.ndarray) -> dict[str, float]:
            names = (signals.GRADIENT_LARGEST, signals.GRADIENT_MEAN, signals.GRADIENT_SMALLEST)
            read = {signal.name: number for signal, number in zip(names, numbers.tolist(), strict=True)}
            if read[signals.GRADIENT_SMALLEST.name] == math.inf:  # nothing but zeros
                del read[signals.GRADIENT_SMALLEST.name]
            return read

        return PendingReading((torch.stack([largest, mean, smallest]),), finish)

    def measure_noise_scale(self, small_batch: int, big_batch: int, norms: np.ndarray) -> dict[str, float]:
        """The batch size at which noise and signal of the gradient are equal, from the norms over a part of the batch
        and over all of it (McCandlish et al. 2018, appendix A). Both parts are averaged before they are divided."""
        small, big = (norm * norm for norm in norms.tolist())
        signal = (big_batch * big - small_batch * small) / (big_batch - small_batch)
        noise = (small - big) / (1 / small_batch - 1 / big_batch)
        if math.isfinite(signal) and math.isfinite(noise):
            self.signal = self.signal * SMOOTHING_DECAY + signal * (1 - SMOOTHING_DECAY)
            self.noise = self.noise * SMOOTHING_DECAY + noise * (1 - SMOOTHING_DECAY)
        # The estimates may be negative while they are few; a negative batch size says nothing yet.
        return {signals.GRADIENT_NOISE.name: self.noise / self.signal} if self.signal > 0 and self.noise > 0 else {}

    def state(self) -> dict[str, Tensor]:
        return {"gradient/noise": torch.tensor([self.signal, self.noise], dtype=torch.float64)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.signal, self.noise = tensors["gradient/noise"].tolist()


def _range(gradient: Tensor) -> Tensor:
    """[largest, sum, smallest but for zeros] of the absolute values."""
    sizes = (gradient.coalesce().values() if gradient.is_sparse else gradient).abs().float()
    if not sizes.numel():
        return sizes.new_tensor([0.0, 0.0, math.inf])
    return torch.stack([sizes.amax(), sizes.sum(), sizes.where(sizes != 0, math.inf).amin()])


def _zeros(gradient: Tensor) -> Tensor:
    """How many numbers are exactly zero; of a sparse one, also all that it does not hold."""
    if not gradient.is_sparse:
        return (gradient == 0).sum()
    return gradient.numel() - (gradient.coalesce().values() != 0).sum()
