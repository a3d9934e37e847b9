"""The Fréchet distance between generated and real features: freed of its bias, with its standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from safelight.evaluate.moments import Moments
from safelight.evaluate.reference import Reference, fit_reference
from safelight.evaluate.statistics.chances import student_quantile
from safelight.evaluate.statistics.jackknife import jackknife, plain_value
from safelight.words import with_error

# From so many samples per dimension on, the 95 % interval holds the truth in 90 to 98 % of trials, also with heavy
# tails: bench/results/calibration.md. From moments alone the fourth moments are taken as those of a Gaussian.
MIN_SAMPLES_PER_DIMENSION, MIN_SAMPLES_OF_MOMENTS = 4, 64
# Of the jackknife's excess, taken off; the rest makes room for the bias that is left. Chosen among 0, 1/4, 1/2 and 1 by
# the coverage of intervals; the bench tests it on other seeds.
CROSSED_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class FrechetDistance:
    value: float  # the plain estimator, which others call FD or FID: too high by about 1 / count
    corrected: float  # without that bias; below 0 by chance when there is hardly any distance
    error: float  # standard error of `corrected`
    count: int
    reference_count: int
    dimension: int
    degrees: float  # of freedom of `error`
    trusted: bool  # whether there are enough samples for `corrected` and `error` to be taken at their word

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Where the distance of the model itself lies; never below 0, as no distance is."""
        half = student_quantile(confidence, self.degrees) * self.error
        return max(0.0, self.corrected - half), max(0.0, self.corrected + half)

    @property
    def sentence(self) -> str:
        low, high = self.interval()
        words = f"The Fréchet distance is {max(self.corrected, 0):.4g} ({low:.4g} to {high:.4g})"
        if self.trusted:
            return f"{words}, from {self.count:,} samples."
        return (
            f"{words}, but {self.count:,} samples are too few for {self.dimension} dimensions: neither the number nor "
            f"its interval can be trusted. Use more samples, or a reference with fewer components."
        )


@dataclass(frozen=True, slots=True)
class PlainDistance:
    """The headline: mean and covariance of all features, no bias taken off. Over Inception features this is FID."""

    value: float
    error: float  # standard error
    count: int
    real: float | None = None  # what other real images have: few images are far from the rest, however good they are
    real_count: int = 0

    @property
    def words(self) -> str:
        return with_error(self.value, self.error)

    @property
    def sentence(self) -> str:
        known = "The usual number: all features, and no bias taken off"
        if self.real is None:
            return f"{known}. Compare it at equal numbers of images only."
        return (
            f"{known}. {self.real_count:,} other real images have {self.real:.4g}: no model can be expected below it."
        )

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "error": self.error, "real": self.real, "real_count": self.real_count}


def real_against_real(features: np.ndarray, count: int) -> tuple[float, int]:
    """(plain distance, images) of `count` real images, or half of them, from the others: as low as it can get."""
    count = min(count, len(features) // 2)
    order = np.random.default_rng(0).permutation(len(features))  # drawn, and always alike
    return plain_value(features[order[:count]], fit_reference(features[order[count:]])), count


def frechet(
    features: np.ndarray | Moments, reference: np.ndarray | Moments | Reference, *, finite_reference: bool | None = None
) -> FrechetDistance:
    """The distance of features [n, d], or of their moments, from a reference.

    `finite_reference`: whether the bias and error of the reference count too. Within a run it is the same for every
    checkpoint and cancels; between two folders it does not. By default it counts unless a `Reference` is given.
    Moments are enough for `value`; for bias and error they make the features Gaussian, which real ones are not:
    such a distance is only trusted with many samples. Two sets that share images come out nearer than they are.
    """
    fitted = reference if isinstance(reference, Reference) else fit_reference(reference)
    found = _one_sided(features, fitted)
    if not (finite_reference if finite_reference is not None else not isinstance(reference, Reference)):
        return found
    # The distance is symmetric: the other side is the same with the roles exchanged.
    own = features if isinstance(features, Moments) else Moments.of(features)
    turned = _one_sided(
        fitted.moments() if isinstance(reference, Reference) else reference, fit_reference(fitted.project_moments(own))
    )
    return replace(
        found,
        corrected=found.corrected + (turned.corrected - found.value),
        error=math.hypot(found.error, turned.error),
        degrees=min(found.degrees, turned.degrees),
        trusted=found.trusted and turned.trusted,
    )


def _one_sided(features: np.ndarray | Moments, reference: Reference) -> FrechetDistance:
    """The reference taken as it is."""
    if isinstance(features, Moments):
        value, bias, error = _gaussian(reference.project_moments(features), reference)
        count, corrected, degrees, enough = features.count, value - bias, math.inf, MIN_SAMPLES_OF_MOMENTS
    else:
        found = jackknife(features, reference)
        value, corrected, error = found.value, found.corrected, math.sqrt(found.variance(CROSSED_SHARE))
        count, degrees, enough = len(features), found.degrees, MIN_SAMPLES_PER_DIMENSION
    trusted = count >= enough * reference.dimension
    return FrechetDistance(value, corrected, error, count, reference.count, reference.dimension, degrees, trusted)


def _gaussian(moments: Moments, reference: Reference) -> tuple[float, float, float]:
    """(value, bias, error) to first order in 1 / count, with the fourth moments of a Gaussian."""
    covariance, shift = moments.covariance, moments.mean - reference.mean
    values, vectors = np.linalg.eigh(reference.root @ covariance @ reference.root)
    kept = values > max(values[-1], 0) * reference.dimension * np.finfo(np.float64).eps
    roots, axes = np.sqrt(values[kept]), reference.root @ vectors[:, kept]
    trace = np.trace(covariance)
    value = float(shift @ shift + trace + np.trace(reference.covariance) - 2 * roots.sum())
    sums = roots[:, None] + roots
    bias = trace + 0.5 * ((roots[:, None] * roots / sums).sum() + roots.sum() / 2)
    # Variance of x'(I - T)x + 2 shift'x, with T = axes / roots @ axes' the transport map.
    across = ((covariance @ axes) ** 2).sum(0) @ (1 / roots)
    variance = 2 * max((covariance**2).sum() - 2 * across + values[kept].sum(), 0) + 4 * shift @ covariance @ shift
    return value, float(bias) / moments.count, math.sqrt(variance / moments.count)
