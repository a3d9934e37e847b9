"""Which times are trained on: inverse distribution functions, from uniform numbers to times."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from safelight.config.tree import Diffusion
from safelight.diffusion.process import HIGHEST_SIGMA, LOWEST_SIGMA, shifted

TimeQuantile = Callable[[Tensor], Tensor]
"""Turns numbers in [0, 1), float64 on the host, into as many times. It never falls, so that even numbers give times
that are spread evenly over the density."""

USUAL_MEAN_AND_STD = {"logit-normal": (0.0, 1.0), "log-normal": (-1.2, 1.2)}  # Esser et al. 2024, Karras et al. 2022
EDGE = 2.0**-53  # in place of 0, whose normal quantile is infinite


def make_time_quantile(settings: Diffusion, timesteps: int | None = None) -> TimeQuantile:
    """The density that the settings name, of the times of their process. `timesteps`: of a table that is not theirs."""
    usual = USUAL_MEAN_AND_STD.get(settings.density, (0.0, 1.0))
    mean = usual[0] if settings.density_mean is None else settings.density_mean
    std = usual[1] if settings.density_std is None else settings.density_std
    count = settings.timesteps if timesteps is None else timesteps

    def place(u: Tensor) -> Tensor:
        return u if settings.density == "uniform" else torch.sigmoid(normal_quantile(u, mean, std))

    def timestep(u: Tensor) -> Tensor:
        return (place(u) * count).long().clamp(max=count - 1)

    def noise_of_flow(u: Tensor) -> Tensor:
        return shifted(place(u), settings.shift).float()

    def sigma(u: Tensor) -> Tensor:
        if settings.density == "log-normal":
            logarithm = normal_quantile(u, mean, std)
        else:
            low, high = math.log(LOWEST_SIGMA), math.log(HIGHEST_SIGMA)
            logarithm = low + (high - low) * place(u)
        return logarithm.exp().clamp(LOWEST_SIGMA, HIGHEST_SIGMA).float()

    return {"vp": timestep, "flow": noise_of_flow, "edm": sigma}[settings.process]


def time_quantile_of_draws(draws: Tensor) -> TimeQuantile:
    """The quantile function of times that were drawn, in ascending order: between two of them as if they were drawn
    evenly."""
    draws = draws.double()

    def time(u: Tensor) -> Tensor:
        place = u.clamp(0, 1) * (len(draws) - 1)
        left = place.floor().long().clamp(max=len(draws) - 2)
        return torch.lerp(draws[left], draws[left + 1], place - left)

    return time


def normal_quantile(u: Tensor, mean: float, std: float) -> Tensor:
    return mean + std * torch.special.ndtri(u.clamp(EDGE, 1 - EDGE))
