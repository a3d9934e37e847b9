"""How much each noise level counts in the loss: weights of the error of x0, turned into those of any target."""

from __future__ import annotations

import torch
from torch import Tensor

from safelight.config.tree import Weighting
from safelight.diffusion.process import SIGMA_DATA
from safelight.diffusion.targets import TargetCoefficients, error_of_x0

NEARLY_NONE = 1e-100  # in place of no signal or no noise at all: 0 / 0 becomes the limit that it has there


def weights_of(
    weighting: Weighting,
    target: str | TargetCoefficients,
    a: Tensor,
    s: Tensor,
    *,
    gamma: float = 5.0,
    sigma_data: float = SIGMA_DATA,
) -> Tensor:
    """One for each pair of a and s, in float64. An error of the answer is squared, so what weighs that of x0 by w
    weighs it by w · (dx0 / dy)²: min-SNR of epsilon is divided by the SNR, that of v by SNR + 1."""
    if weighting == "none":
        return torch.ones_like(a)
    a, s = a.double().clamp(min=NEARLY_NONE), s.double().clamp(min=NEARLY_NONE)
    snr = (a / s).square()
    of_x0 = snr.clamp(max=gamma) if weighting == "min-snr" else snr + sigma_data**-2
    return of_x0 * error_of_x0(target, a, s).square()
