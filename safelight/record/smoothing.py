"""Averages over noisy signals, the same at every zoom; what is not finite is left out of them and marked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BLOCK = 400  # half-lives: 2**400 times the largest float32 is far from the largest float64


@dataclass(frozen=True, slots=True)
class Smooth:
    """An entry of each array per reading; NaN where nothing finite came yet."""

    mean: np.ndarray
    deviation: np.ndarray
    marks: np.ndarray  # true where the reading is not finite


def exponential(steps: np.ndarray, numbers: np.ndarray, half_life: float, weights: np.ndarray | None = None) -> Smooth:
    """Mean in which a reading weighs half as much after `half_life` steps, debiased: it does not begin near 0.

    The past fades by steps and not by readings. Spans of a zoom may stand for readings if their counts are `weights`.
    """
    numbers, marks = _known(numbers)
    fade = 0.5 ** (np.diff(np.asarray(steps, np.float64), prepend=steps[:1]) / half_life)
    added = np.where(marks, 0.0, 1.0 if weights is None else weights)
    means, deviations = np.full(len(numbers), np.nan), np.full(len(numbers), np.nan)
    weight = mean = variance = 0.0
    for i, (number, faded, new) in enumerate(zip(numbers.tolist(), fade.tolist(), added.tolist(), strict=True)):
        weight *= faded
        if new > 0:
            weight += new
            share, change = new / weight, number - mean
            mean += share * change  # as Welford: sums of squares would lose small deviations of large numbers
            variance = (1 - share) * (variance + share * change * change)
        if weight > 0:
            means[i], deviations[i] = mean, variance**0.5
    return Smooth(means, deviations, marks)


def exponential_mean(
    steps: np.ndarray, numbers: np.ndarray, half_life: float, weights: np.ndarray | None = None
) -> np.ndarray:
    """The mean of `exponential` without its deviation, a hundred times as fast: for pages that draw a million steps."""
    numbers, marks = _known(numbers)
    added = np.where(marks, 0.0, 1.0 if weights is None else np.asarray(weights, np.float64))
    known, places = np.where(marks, 0.0, numbers), np.asarray(steps, np.float64)
    means, start, total, weight = np.full(len(numbers), np.nan), 0, 0.0, 0.0
    while start < len(numbers):  # a block in which powers of two stay far from overflow
        end = int(np.searchsorted(places, places[start] + BLOCK * half_life, side="right"))
        grown = np.exp2((places[start:end] - places[start]) / half_life)
        totals = total + np.cumsum(known[start:end] * added[start:end] * grown)
        sums = weight + np.cumsum(added[start:end] * grown)
        with np.errstate(invalid="ignore", divide="ignore"):
            means[start:end] = np.where(sums > 0, totals / sums, np.nan)
        if end < len(numbers):
            fade = 2.0 ** max(-1000.0, -(places[end] - places[start]) / half_life)
            total, weight = float(totals[-1]) * fade, float(sums[-1]) * fade
        start = end
    return means


def windowed(numbers: np.ndarray, readings: int) -> Smooth:
    """Mean and deviation of the last `readings` readings up to each one; fewer at the beginning."""
    numbers, marks = _known(numbers)
    if not len(numbers):
        return Smooth(numbers, numbers, marks)
    padded = np.concatenate([np.full(readings - 1, np.nan), np.where(marks, np.nan, numbers)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, readings)
    kept = (~np.isnan(windows)).sum(1)
    count = np.maximum(kept, 1)
    mean = np.nansum(windows, 1) / count
    deviation = np.sqrt(np.nansum((windows - mean[:, None]) ** 2, 1) / count)
    return Smooth(np.where(kept > 0, mean, np.nan), np.where(kept > 0, deviation, np.nan), marks)


def _known(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = np.asarray(numbers, np.float64)
    return wide, ~np.isfinite(wide)
