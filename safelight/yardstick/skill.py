"""Skill: how good a denoiser is at each noise level, between knowing nothing and the best linear filter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Gain of a level: at much noise the isotropic loss of epsilon is so small that one level would decide all.
WORST_GAIN = -1.0
MIN_LINEAR_GAIN = 0.01  # of the isotropic filter's loss: levels where the linear filter gains less say nothing


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Losses of the closed-form denoisers, one for each sample of a fixed set, in the target's own scale."""

    isotropic: np.ndarray
    """Losses of the filter that knows the mean image and one variance: what a network is worth that has learnt no
    shape. Predicting the mean alone is not a ceiling at little noise, where returning the input is a thousand times
    better."""
    linear: np.ndarray
    """Losses of the Wiener filter, which any network should beat soon."""
    exact: np.ndarray
    """Losses of the posterior mean over the training set: on training images the floor; on others none, as it knows
    these alone."""


def skill_by_level(loss: np.ndarray, yardstick: Yardstick, level: np.ndarray, levels: int) -> np.ndarray:
    """[levels]: 0 for the isotropic filter, 1 for the linear one, more for what is better than that. Paired: the same
    samples and noise, so that hardly any noise is left. NaN if nothing can be said."""
    own, linear = _gains(loss, yardstick, level, levels)
    return np.divide(own, linear, out=np.full(levels, np.nan), where=linear > MIN_LINEAR_GAIN)


def skill(loss: np.ndarray, yardstick: Yardstick, level: np.ndarray, levels: int) -> float:
    """Over all levels, each as important as the others; NaN if nothing can be said."""
    own, linear = _gains(loss, yardstick, level, levels)
    is_telling = linear > MIN_LINEAR_GAIN
    return float(own[is_telling].sum() / linear[is_telling].sum()) if is_telling.any() else float("nan")


def _gains(loss: np.ndarray, yardstick: Yardstick, level: np.ndarray, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """By level, of a denoiser and of the linear filter: the share of the isotropic loss that they save."""
    ceiling, linear, own = (np.bincount(level, each, levels) for each in (yardstick.isotropic, yardstick.linear, loss))
    ceiling = np.where(ceiling > 0, ceiling, np.inf)  # nothing is gained where no sample is
    own = np.maximum(1 - own / ceiling, WORST_GAIN)
    return own, np.where(np.isfinite(ceiling), 1 - linear / ceiling, 0.0)


def way_to_floor(loss: np.ndarray, yardstick: Yardstick) -> float:
    """How far from the linear filter (0) to the floor (1) a loss on training images has come; NaN where
    these are one."""
    linear, floor, own = (float(each.mean()) for each in (yardstick.linear, yardstick.exact, loss))
    return (linear - own) / (linear - floor) if linear > floor else float("nan")
