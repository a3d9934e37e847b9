"""One number of an evaluation as it is shown: with its interval, what real images would score, and its meaning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    low: float  # 95 % interval of the value
    high: float
    baseline: tuple[float, float]  # range of real images against other real ones, at the same count
    count: int  # images of each kind it was taken from
    sentence: str


def span(values: np.ndarray) -> tuple[float, float]:
    """The middle 95 % of repeated draws; of few draws, all of them."""
    low, high = np.quantile(np.asarray(values, np.float64), (0.025, 0.975))
    return float(low), float(high)


def range_text(low: float, high: float, form: str = ".2f") -> str:
    return f"{low:{form}} to {high:{form}}"


def split(count: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two draws of `size` out of `count` that share none."""
    order = np.random.default_rng(seed).permutation(count)
    return order[:size], order[size : 2 * size]


def thin(features: np.ndarray, size: int, seed: int) -> np.ndarray:
    """`size` rows drawn without repeats, always the same ones; all of them in their order if there are no more."""
    if len(features) <= size:
        return features
    return features[np.sort(np.random.default_rng(seed).permutation(len(features))[:size])]
