"""Kinds of real images, found by k-means among real ones, and how many samples fall into each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from safelight.errors import UsageError
from safelight.evaluate.figures import Figure, against_real, range_text, split
from safelight.evaluate.moments import check_pair
from safelight.evaluate.statistics.chances import holm, normal_cdf

PER_MODE = 20  # real images that a mode is made of, on average
MAX_MODES = 100
ERROR_RATE = 0.05


@dataclass(frozen=True, slots=True)
class Modes:
    coverage: Figure  # share of modes that samples fall into
    largest: Figure  # share of the most frequent mode
    different: Figure  # number of modes that are clearly too frequent or too rare
    shares: np.ndarray  # [modes, 2], of samples and of real images


def modes(features: np.ndarray, reference: np.ndarray, *, count: int | None = None) -> Modes:
    """One half of the real images makes the modes, the other half is compared with the samples: neither of these two
    was used to fit them. Modes fitted on samples would all have some, whatever is missing.
    """
    from sklearn.cluster import KMeans

    samples, real = check_pair(features, reference)
    half = len(real) // 2
    number = count if count is not None else min(MAX_MODES, half // PER_MODE)
    if not 2 <= number <= half:
        raise UsageError(
            f"Expected at least 2 modes of {PER_MODE} real images each in one half of them, came {len(real)} real "
            f"images and {number} modes. Add real images, or use 2 to {half} modes."
        )
    first, second = split(len(real), half, 0)
    means = KMeans(number, random_state=0).fit(real[first])

    def counts_of(points: np.ndarray) -> np.ndarray:
        return np.bincount(means.predict(points), minlength=number)

    counts, usual = counts_of(samples), counts_of(real[second])
    one, other = (counts_of(real[part]) for part in np.array_split(second, 2))
    clear, null = count_different(counts, usual), count_different(one, other)
    return Modes(
        _coverage(counts, usual),
        _largest(counts, usual),
        _different(clear, null, number, len(samples)),
        np.stack([counts / counts.sum(), usual / usual.sum()], 1),
    )


def count_different(counts: np.ndarray, others: np.ndarray) -> int:
    """Modes whose share differs between two sets, with at most `ERROR_RATE` chance of any false one (Holm)."""
    n, m = int(counts.sum()), int(others.sum())
    pooled = (counts + others) / (n + m)
    error = np.sqrt(np.maximum(pooled * (1 - pooled), 1e-300) * (1 / n + 1 / m))
    # Yates: without it, modes with a handful of samples would be found too often.
    gap = np.maximum(np.abs(counts / n - others / m) - 0.5 * (1 / n + 1 / m), 0)
    return int(holm(np.array([2 * normal_cdf(-z) for z in gap / error]), ERROR_RATE).sum())


def _coverage(counts: np.ndarray, usual: np.ndarray) -> Figure:
    """Thinned by chance to as many samples as there are real ones, in expectation: more would reach more modes."""
    size, number = min(int(counts.sum()), int(usual.sum())), len(counts)
    value, base = (float(_expected(each, size).mean()) for each in (counts, usual))
    half = 1.96 * math.sqrt(max(value * (1 - value), 0) / number)
    low, high = max(0.0, value - half), min(1.0, value + half)
    words = f"Samples visit {value:.0%} of {number} kinds of real images (other real images: {base:.0%})"
    words += ": kinds are missing." if value < base - 0.5 / number and high < base else ": as real images do."
    return Figure("modes", value, low, high, (base, base), size, words)


def _expected(counts: np.ndarray, size: int) -> np.ndarray:
    """Probability that a mode has any of `size` of these, drawn without repeats."""
    total = int(counts.sum())
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, total + 1)))])
    missed = np.zeros(len(counts))
    can = total - counts >= size
    rest = total - counts[can]
    missed[can] = np.exp(logs[rest] - logs[rest - size] - logs[total] + logs[total - size])
    return 1 - missed


def _largest(counts: np.ndarray, usual: np.ndarray) -> Figure:
    size = int(counts.sum())
    value, base = float(counts.max() / size), (usual / usual.sum()).max()
    half = 1.96 * math.sqrt(value * (1 - value) / size)
    noise = 1.96 * math.sqrt(base * (1 - base) / usual.sum())
    baseline = float(max(0, base - noise)), float(base + noise)
    real = range_text(*baseline, form=".1%")
    text = f"The most frequent kind makes up {value:.1%} of the samples (of real images: {real})"
    crowded = "the samples crowd there"
    return against_real("largest mode", value, half, baseline, size, text, excess=crowded, usual="no crowding")


def _different(clear: int, null: int, number: int, size: int) -> Figure:
    words = f"{clear} of {number} kinds are clearly too frequent or too rare (real against real: {null})"
    words += ": the mixture is not that of real images." if clear > null else ": the mixture is as in real images."
    return Figure("different modes", float(clear), float(clear), float(clear), (0.0, float(null)), size, words)
