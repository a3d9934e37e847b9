"""Exponential means of noisy signals, the same at every zoom; what is not finite is left out of them."""

from __future__ import annotations

import numpy as np

BLOCK = 400  # half-lives: 2**400 times the largest float32 is far from the largest float64


def exponential_mean(
    steps: np.ndarray, numbers: np.ndarray, half_life: float, weights: np.ndarray | None = None
) -> np.ndarray:
    """Mean in which a reading weighs half as much after `half_life` steps, debiased: it does not begin near 0. NaN
    where nothing finite came yet.

    The past fades by steps and not by readings. Spans of a zoom may stand for readings if their counts are `weights`.
    """
    values, positions = np.asarray(numbers, np.float64), np.asarray(steps, np.float64)
    finite = np.isfinite(values)
    added = np.where(finite, 1.0 if weights is None else np.asarray(weights, np.float64), 0.0)
    filled = np.where(finite, values, 0.0)
    means, start, total, weight = np.full(len(values), np.nan), 0, 0.0, 0.0
    while start < len(values):  # a block in which powers of two stay far from overflow
        end = int(np.searchsorted(positions, positions[start] + BLOCK * half_life, side="right"))
        grown = np.exp2((positions[start:end] - positions[start]) / half_life)
        totals = total + np.cumsum(filled[start:end] * added[start:end] * grown)
        sums = weight + np.cumsum(added[start:end] * grown)
        with np.errstate(invalid="ignore", divide="ignore"):
            means[start:end] = np.where(sums > 0, totals / sums, np.nan)
        if end < len(values):
            fade = 2.0 ** max(-1000.0, -(positions[end] - positions[start]) / half_life)
            total, weight = float(totals[-1]) * fade, float(sums[-1]) * fade
        start = end
    return means


def moving_mean(steps: np.ndarray, numbers: np.ndarray, window: int) -> np.ndarray:
    """The mean of the finite readings of the last `window` steps, at each; NaN if there are none."""
    values, positions = np.asarray(numbers, np.float64), np.asarray(steps, np.float64)
    finite = np.isfinite(values)
    totals = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(finite)])
    first = np.searchsorted(positions, positions - window, side="right")
    last = np.arange(1, len(values) + 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (totals[last] - totals[first]) / (counts[last] - counts[first])
