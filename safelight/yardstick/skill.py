"""Skill: how good a denoiser is at each noise level, between knowing nothing and the best linear filter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DIFFERENT = 0.01  # of the zero denoiser's loss: levels where the linear filter gains less say nothing


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Losses of the closed-form denoisers, one for each sample of a fixed set, in the target's own scale."""

    zero: np.ndarray
    """Of the mean image: the ceiling."""
    linear: np.ndarray
    """Of the Wiener filter, which any network should beat soon."""
    exact: np.ndarray | None = None
    """Of the posterior mean over the training set: on training images the floor."""


def level_of(log_snr: np.ndarray, t: np.ndarray, levels: int) -> np.ndarray:
    """Of each timestep in `t`: slices of equal probability, 0 the least noise."""
    place = np.empty(len(log_snr), np.int64)
    place[np.argsort(-log_snr, kind="stable")] = np.arange(len(log_snr))
    return place[t] * levels // len(log_snr)


def skill(loss: np.ndarray, yardstick: Yardstick, level: np.ndarray | None = None, levels: int = 1) -> np.ndarray:
    """[levels]: 0 for the mean image, 1 for the linear filter, more for what is better than that. Paired: the same
    samples and noise, so that hardly any noise is left. `level` of each sample; NaN where nothing can be told."""
    level = np.zeros(len(loss), np.int64) if level is None else level
    found = np.full(levels, np.nan)
    for place in range(levels):
        chosen = level == place
        if chosen.any():
            zero, linear, own = (float(each[chosen].mean()) for each in (yardstick.zero, yardstick.linear, loss))
            if zero - linear > DIFFERENT * zero:
                found[place] = (zero - own) / (zero - linear)
    return found


def way_to_floor(loss: np.ndarray, yardstick: Yardstick) -> float:
    """How far from the linear filter (0) to the floor (1) a loss on training images has come; NaN without a floor."""
    if yardstick.exact is None:
        return float("nan")
    linear, floor, own = (float(each.mean()) for each in (yardstick.linear, yardstick.exact, loss))
    return (linear - own) / (linear - floor) if linear > floor else float("nan")
