"""Which times and which noise each of the noise levels stands for, as pages show it beside their charts."""

from __future__ import annotations

import numpy as np
import torch

from safelight.config.tree import Diffusion
from safelight.diffusion.densities import make_time_quantile
from safelight.diffusion.process import Process
from safelight.monitors.loss import LEVELS, noise_levels
from safelight.words import round_number

LEVELS_EVENT = "noise_levels"
FINE = 64 * LEVELS  # times that continuous time is looked at in


def levels_of_settings(settings: Diffusion, process: Process) -> dict[str, object]:
    """Those of our own runs."""
    if process.timesteps is not None:
        times = torch.arange(process.timesteps)
    else:
        times = make_time_quantile(settings)((torch.arange(FINE, dtype=torch.float64) + 0.5) / FINE)
    return describe_levels(times.double().numpy(), process.log_snr(times).double().numpy(), settings.process == "edm")


def describe_levels(times: np.ndarray, log_snr: np.ndarray, is_sigma: bool = False) -> dict[str, object]:
    """{"time": what times are called, "t": [from, to] of each level, "log_snr": the same}, the least noise first.
    `times`: drawn as the loop draws them."""
    level = noise_levels(log_snr, LEVELS)
    slices = [level == each for each in range(LEVELS)] if len(times) >= LEVELS else []
    return {
        "time": "σ" if is_sigma else "t",
        "t": [_ends(times[places]) for places in slices],
        "log_snr": [_ends(log_snr[places]) for places in slices],
    }


def _ends(values: np.ndarray) -> list[float]:
    return [round_number(float(values.min())), round_number(float(values.max()))]
