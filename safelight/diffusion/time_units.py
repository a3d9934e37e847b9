"""Processes in the time units of a user's loop, with the time input that its network expects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from safelight.diffusion.process import Process, TimeFunction
from safelight.diffusion.time_mappings import TINY, TimeMapping

FAMILIES = {
    "flow": (lambda share: 1 - share, lambda share: share),
    "vp": (lambda share: (1 - share) / _length(share), lambda share: share / _length(share)),
    "ve": (torch.ones_like, lambda share: share / (1 - share).clamp(min=TINY)),
}
"""(a, s) of a share of noise. EDM is `ve` whose network sees c_in · x_t."""


def _length(share: Tensor) -> Tensor:
    return torch.hypot(share, 1 - share)


def timed(
    family: str,
    clock: TimeMapping,
    told: TimeMapping | None = None,
    *,
    sigma_data: float | None = None,
    ends: tuple[float, float],
) -> Process:
    """A process whose t is that of a loop. `told`: what its network is told; None: t itself. `ends`: the least and the
    largest share of noise."""
    signal_scale, noise_scale = FAMILIES[family]
    first, last = clock.at(np.array(ends)).tolist()
    process = Process(
        lambda t: signal_scale(clock.share(t)), lambda t: noise_scale(clock.share(t)), first=first, last=last
    )
    if sigma_data is not None:
        process = replace(process, c_in=lambda t: (noise_scale(clock.share(t)).square() + sigma_data**2).rsqrt())
    if told is None or told is clock:
        return process
    return replace(
        process,
        c_noise=lambda t: told.time(clock.share(t)),
        time_from_c_noise=lambda said: clock.time(told.share(said)),
    )


def retold(process: Process, told: TimeMapping) -> Process:
    """The same process and time; the network is told something else."""
    by_share = _inverse(process)
    return replace(
        process,
        c_noise=lambda t: told.time(share_of(process, t)),
        time_from_c_noise=lambda said: by_share(told.share(said)),
    )


def share_of(process: Process, t: Tensor) -> Tensor:
    a, s = process.at(t)
    return s / (a + s).clamp(min=TINY)


GRID = 4096


def _inverse(process: Process) -> TimeFunction:
    """The time at a share of noise, by interpolation on a fine grid: of functions that a user gave."""
    times = torch.linspace(process.first, process.last, GRID, dtype=torch.float64)
    shares = share_of(process, times).numpy()
    order = np.argsort(shares, kind="stable")

    def time(share: Tensor) -> Tensor:
        found = np.interp(share.detach().cpu().numpy(), shares[order], times.numpy()[order])
        return torch.as_tensor(found, dtype=torch.float64, device=share.device)

    return time
