"""The random draws of a step: timesteps, noise and dropped labels, each a function of (seed, step, global row).

Drawn on the CPU: a seeded CUDA draw differs between GPU models, a CPU draw does not.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from safelight.config.tree import TimestepSampling
from safelight.diffusion.densities import TimeQuantile
from safelight.keys import derive_seed


def draw_times(
    sampling: TimestepSampling, time_quantile: TimeQuantile, *, seed: int, step: int, batch_size: int
) -> Tensor:
    """[batch_size] for the whole global batch; ranks and micro-batches take their rows of it."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "timestep", step))
    jitter = torch.rand(batch_size, generator=generator, dtype=torch.float64)
    if sampling == "stratified":
        jitter = (_interleaved(batch_size) + jitter) / batch_size
    return time_quantile(jitter)


@functools.lru_cache(maxsize=8)
def _interleaved(count: int) -> Tensor:
    """0..count-1 in golden-ratio strides, so that any run of rows (one micro-batch) spans all noise levels. The same
    tensor at every step: nobody writes to it."""
    stride = max(1, round(count * 0.6180339887))
    while math.gcd(stride, count) != 1:
        stride += 1
    return torch.arange(count) * stride % count


def draw_noise(seed: int, step: int, start: int, stop: int, shape: tuple[int, ...]) -> Tensor:
    """Standard normal [stop - start, *shape]; row i depends on (seed, step, i) and on nothing else."""
    noise, generator = torch.empty(stop - start, *shape), torch.Generator()
    for row, values in enumerate(noise, start):  # 4 µs a row at 8 px: cheaper than it would be to lose one draw
        values.normal_(generator=generator.manual_seed(derive_seed(seed, "noise", step, row)))
    return noise


def sample_generators(seed: int, start: int, stop: int) -> list[torch.Generator]:
    """One generator per image: image i of a seed is the same in every stage and every batch size."""
    return [torch.Generator().manual_seed(derive_seed(seed, "sample", index)) for index in range(start, stop)]


def draw_label_drop(seed: int, step: int, batch_size: int, share: float) -> Tensor:
    """[batch_size] bool: whose label is hidden in this step."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "label_drop", step))
    return torch.rand(batch_size, generator=generator) < share
