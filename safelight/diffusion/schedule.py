"""Noise schedules: how much signal is left at each timestep, as float64 tables."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from safelight.config.tree import Diffusion, Schedule
from safelight.diffusion.process import Process, edm, linear_flow, vp

LARGEST_BETA = 0.999
REFERENCE_STEPS = 1000  # the published betas of `linear` and `scaled-linear` are for this many steps


@dataclass(frozen=True, slots=True)
class AlphasCumprod:
    """x_t = signal_scale[t] · x0 + noise_scale[t] · ε; the sum of their squares is 1 at every t."""

    alphas_cumprod: Tensor  # [T] float64, on the CPU: the one table everything else follows from

    def __len__(self) -> int:
        return len(self.alphas_cumprod)

    @property
    def signal_scale(self) -> Tensor:
        return self.alphas_cumprod.sqrt()

    @property
    def noise_scale(self) -> Tensor:
        return (1 - self.alphas_cumprod).sqrt()

    @property
    def snr(self) -> Tensor:
        return self.alphas_cumprod / (1 - self.alphas_cumprod)

    @property
    def betas(self) -> Tensor:
        before = torch.cat([torch.ones(1, dtype=torch.float64), self.alphas_cumprod[:-1]])
        return 1 - self.alphas_cumprod / before


def make_process(settings: Diffusion) -> Process:
    """The process that the settings name."""
    match settings.process:
        case "vp":
            return vp(make_schedule(settings).alphas_cumprod)
        case "flow":
            return linear_flow()  # t is the noise: the shift is one of the times that are drawn
        case "edm":
            return edm(settings.sigma_data)


def make_schedule(settings: Diffusion) -> AlphasCumprod:
    """The schedule that the settings name, at their number of timesteps."""
    table = _capped(_alphas_cumprod(settings.schedule, settings.timesteps))
    return AlphasCumprod(_with_zero_terminal_snr(table) if settings.zero_terminal_snr else table)


def _alphas_cumprod(name: Schedule, timesteps: int) -> Tensor:
    u = torch.arange(1, timesteps + 1, dtype=torch.float64) / timesteps
    match name:
        case "cosine":  # Nichol & Dhariwal 2021, eq. 17
            return _cosine(u) / _cosine(torch.zeros(1, dtype=torch.float64))
        case "sigmoid":  # Jabri et al. 2022, with start -3, end 3, τ 1
            low, high = torch.sigmoid(torch.tensor([-3.0, 3.0], dtype=torch.float64))
            return (high - torch.sigmoid(u * 6 - 3)) / (high - low)
        case "linear":  # Ho et al. 2020
            return _rescaled(torch.linspace(1e-4, 0.02, REFERENCE_STEPS, dtype=torch.float64), u)
        case "scaled-linear":  # Rombach et al. 2022
            roots = torch.linspace(0.00085**0.5, 0.012**0.5, REFERENCE_STEPS, dtype=torch.float64)
            return _rescaled(roots.square(), u)


def _cosine(u: Tensor) -> Tensor:
    return torch.cos((u + 0.008) / 1.008 * math.pi / 2).square()


def _rescaled(reference_betas: Tensor, u: Tensor) -> Tensor:
    """Reads the published curve of log ᾱ at other places, so any T ends at the same signal-to-noise ratio."""
    curve = torch.cat([torch.zeros(1, dtype=torch.float64), torch.log1p(-reference_betas).cumsum(0)])
    place = u * REFERENCE_STEPS
    left = place.floor().long().clamp(max=REFERENCE_STEPS - 1)
    return torch.lerp(curve[left], curve[left + 1], place - left).exp()


def _capped(alphas_cumprod: Tensor) -> Tensor:
    """Keeps every β at or below 0.999: the last steps of cosine and sigmoid would otherwise lose all signal."""
    betas = AlphasCumprod(alphas_cumprod).betas.clamp(max=LARGEST_BETA)
    return torch.log1p(-betas).cumsum(0).exp()


def _with_zero_terminal_snr(alphas_cumprod: Tensor) -> Tensor:
    """Shifts and scales √ᾱ so that it ends at exactly zero and begins where it began (Lin et al. 2024)."""
    root = alphas_cumprod.sqrt()
    return ((root - root[-1]) * root[0] / (root[0] - root[-1])).square()
