"""Images that a network is not trained on, with the noise and times of the fixed samples."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from safelight.vocabulary import (
    FIXED_SET_LOSS_EMA,
    FIXED_SET_LOSS_RAW,
    HELD_OUT_GAP,
    HELD_OUT_LOSS_EMA,
    HELD_OUT_LOSS_RAW,
)
from safelight.yardstick.denoisers import ClosedFormDenoisers
from safelight.yardstick.fixed_samples import FixedSamples
from safelight.yardstick.skill import Yardstick

MIN_IMAGES = 32  # images whose mean is near enough to a normal one


@dataclass(frozen=True)
class HeldOutSamples:
    samples: FixedSamples
    ids: np.ndarray
    """Which image each sample is of: they come again if they are fewer than the fixed samples."""
    yardstick: Yardstick
    """What closed-form denoisers of the training images lose on these samples."""

    def measure(self, fixed: tuple[Tensor, Tensor | None], held_out: tuple[Tensor, Tensor | None]) -> dict[str, float]:
        """By signal, of the losses of raw weights and EMA on both sets."""
        (raw, ema), (held_raw, held_ema) = fixed, held_out
        found = {FIXED_SET_LOSS_RAW.name: float(raw.mean()), HELD_OUT_LOSS_RAW.name: float(held_raw.mean())}
        if ema is not None and held_ema is not None:
            found |= {FIXED_SET_LOSS_EMA.name: float(ema.mean()), HELD_OUT_LOSS_EMA.name: float(held_ema.mean())}
        if (apart := gap(raw, held_raw, self.ids)) is not None:
            found[HELD_OUT_GAP.name] = apart
        judged = held_raw if held_ema is None else held_ema
        return found | self.samples.held_out_skill(self.yardstick, judged)


def hold_out(images: Tensor, fixed: FixedSamples, denoisers: ClosedFormDenoisers) -> HeldOutSamples:
    """`images` [n, channels, height, width] as the fixed samples are; `denoisers` of the training images."""
    count = len(fixed)
    spread = np.linspace(0, len(images) - 1, count).round() if len(images) >= count else np.arange(count) % len(images)
    ids = spread.astype(np.int64)
    samples = replace(fixed, x0=images[torch.from_numpy(ids)].to(fixed.x0))
    return HeldOutSamples(samples, ids, samples.compare(denoisers))


def gap(lower: Tensor, higher: Tensor, ids: np.ndarray) -> float | None:
    """By how much losses are above others with the same noise, in standard errors. `ids`: of the images of the higher
    ones; samples of one image hang together, and count as one. None if there are too few images."""
    _, image = np.unique(ids, return_inverse=True)
    count = int(image.max()) + 1
    if count < MIN_IMAGES:
        return None
    apart = (higher - lower).double().cpu().numpy()
    mean = apart.mean()
    sums = np.bincount(image, apart - mean, count)
    error = float(np.sqrt(np.square(sums).sum() * count / (count - 1))) / len(apart)
    return float(mean / max(error, 1e-12))
