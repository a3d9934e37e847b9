"""The kernel distance (KID) over all pairs of features, with a standard error that is one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from safelight.evaluate.moments import check_dimension, check_features
from safelight.evaluate.statistics.chances import student_quantile

_CHUNK = 1024  # rows of the kernel matrix at a time: memory 8 kB per reference image


@dataclass(frozen=True, slots=True)
class KernelReference:
    """Real features and all that depends on them alone, so that a checkpoint pays only for its own pairs."""

    features: np.ndarray
    likeness: np.ndarray  # [m], mean kernel of each with the others
    spread: float  # variance of the kernel within pairs that the means do not explain


@dataclass(frozen=True, slots=True)
class KernelDistance:
    value: float  # unbiased, so below 0 by chance when there is hardly any distance
    error: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        half = student_quantile(confidence, math.inf) * self.error
        return self.value - half, self.value + half

    @property
    def sentence(self) -> str:
        low, high = self.interval()
        far = "clearly more than" if low > 0 else "not clearly different from"
        return f"The kernel distance is {self.value:.4g} ({low:.4g} to {high:.4g}), {far} 0."


def fit_kernel_reference(features: np.ndarray) -> KernelReference:
    wide = check_features(features, "reference features")
    return KernelReference(wide, *_within(wide))


def kernel_distance(
    features: np.ndarray, reference: np.ndarray | KernelReference, *, finite_reference: bool | None = None
) -> KernelDistance:
    """The distance of features [n, d] from a reference [m, d], with the kernel (x.y / d + 1)^3. Time n (n + m) d.

    `finite_reference` as in `frechet`: whether the chance in the choice of the real images is part of the error.
    The error comes from the projections of the statistic on single samples (Hoeffding); the usual deviation over
    random subsets is none, as its size depends on the size of the subsets.
    """
    fitted = reference if isinstance(reference, KernelReference) else fit_kernel_reference(reference)
    value, slopes, across_reference, spread, cross_spread = measure_kernel(features, fitted)
    n, m = len(slopes), len(fitted.features)
    # A variance of estimated means counts the noise within pairs twice; without it, two sets of one kind would get an
    # error that is too large by a factor 1.4. Half is kept at least.
    first = float(slopes.var(ddof=1)) / n
    second = 2 * spread / n**2
    if finite_reference if finite_reference is not None else not isinstance(reference, KernelReference):
        first += 4 * float((fitted.likeness - across_reference).var(ddof=1)) / m
        second += 2 * fitted.spread / m**2 + 4 * cross_spread / (n * m)
    return KernelDistance(value, math.sqrt(max(first - second, first / 2)))


def measure_kernel(
    features: np.ndarray, reference: KernelReference
) -> tuple[float, np.ndarray, np.ndarray, float, float]:
    """The distance, how it depends on each sample [n], the mean kernel of each real image with all samples [m], and
    the variances of the kernel that the means do not explain: within samples, and between them and real images."""
    own = check_features(features)
    likeness, spread = _within(own)
    across, across_reference, cross_spread = _across(own, reference.features)
    value = float(likeness.mean() + reference.likeness.mean() - 2 * across.mean())
    return value, 2 * (likeness - across), across_reference, spread, cross_spread


def _kernel(left: np.ndarray, right: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """(rows of `left`, block [rows, len(right)])."""
    for start in range(0, len(left), _CHUNK):
        rows = slice(start, start + _CHUNK)
        yield rows, (left[rows] @ right.T / left.shape[1] + 1) ** 3


def _within(features: np.ndarray) -> tuple[np.ndarray, float]:
    """Mean kernel of each row with all others, and the variance of the kernel of a pair beyond these means."""
    count = len(features)
    means, squares = np.empty(count), 0.0
    for rows, block in _kernel(features, features):
        block[np.arange(len(block)), np.arange(rows.start, rows.start + len(block))] = 0
        means[rows] = block.sum(1) / (count - 1)
        squares += float((block**2).sum())
    return means, _leftover(squares / (count * (count - 1)), means, means)


def _across(features: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean kernel of each row with all of the other set, of each of the other set with all rows, and what is left."""
    check_dimension(features.shape[1], other.shape[1])
    means, sums, squares = np.empty(len(features)), np.zeros(len(other)), 0.0
    for rows, block in _kernel(features, other):
        means[rows] = block.mean(1)
        sums += block.sum(0)
        squares += float((block**2).sum())
    others = sums / len(features)
    return means, others, _leftover(squares / (len(features) * len(other)), means, others)


def _leftover(mean_square: float, means: np.ndarray, others: np.ndarray) -> float:
    return max(0.0, mean_square - float(means.var()) - float(others.var()) - float(means.mean()) ** 2)
