"""All that is measured of one set of samples against real images, in one go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from safelight.config.tree import COMPONENTS, Data
from safelight.data.images import Images, hold_out
from safelight.evaluate.diversity import diversity
from safelight.evaluate.features import Extractor
from safelight.evaluate.figures import Figure
from safelight.evaluate.frechet import FrechetDistance, PlainDistance, frechet, real_against_real
from safelight.evaluate.kernel import KernelDistance, KernelReference, fit_kernel_reference, kernel_distance
from safelight.evaluate.memorisation import Memorisation
from safelight.evaluate.modes import modes
from safelight.evaluate.neighbours import NEIGHBOURS, precision_recall
from safelight.evaluate.real import choose, real_features
from safelight.evaluate.reference import Reference, fit_reference
from safelight.evaluate.thumbnails import Thumbnails, thumbnails_of


def axes_of(features: str, components: int | None) -> int:
    """As it is set, else what is usual for these features; 0: all."""
    return COMPONENTS.get(features, 0) if components is None else components


LEAST_REAL = 100  # fewer make neither modes nor halves to compare with each other


class Real:
    """Real images as features, and all that depends on them alone: computed once, used at every evaluation."""

    def __init__(self, features: np.ndarray, label: str, *, components: int = 0) -> None:
        """`label`: what a distance over these features may be called; `components`: main axes that the one without
        bias is taken in, 0 for all of them."""
        self.features = features
        fewer = min(components, features.shape[1], len(features) - 1) if components else 0
        self.reference: Reference = fit_reference(features, components=fewer or None)
        self.label = label
        self.unbiased_label = f"{label}{f'-pca{fewer}' if fewer else ''}, bias removed"
        self._floors: dict[int, tuple[float, int]] = {}

    @cached_property
    def whole(self) -> Reference:
        """In all dimensions: what the number that is called FID is taken from."""
        return self.reference if self.reference.projection is None else fit_reference(self.features)

    def floor(self, count: int) -> tuple[float | None, int]:
        """(distance, images) of as many real images from the others; None for too few."""
        if len(self.features) < LEAST_REAL:
            return None, 0
        if count not in self._floors:
            self._floors[count] = real_against_real(self.features, count)
        return self._floors[count]

    @cached_property
    def kernel(self) -> KernelReference:
        return fit_kernel_reference(self.features)

    @cached_property
    def projected(self) -> np.ndarray:
        return self.reference.project(self.features)


@dataclass(frozen=True, slots=True)
class Distances:
    """The distances of one set of images from real ones that few samples do not bias."""

    unbiased: FrechetDistance
    kernel: KernelDistance

    def to_json(self) -> dict[str, Any]:
        unbiased, kernel = self.unbiased, self.kernel
        return {
            "unbiased": {
                "value": unbiased.corrected,
                "error": unbiased.error,
                "interval": [*unbiased.interval()],
                "trusted": unbiased.trusted,
                "dimension": unbiased.dimension,
            },
            "kernel": {"value": kernel.value, "error": kernel.error, "interval": [*kernel.interval()]},
        }


@dataclass(frozen=True, slots=True)
class Examination:
    label: str  # of `distance`: FID for Inception features, FD-lite0 for those of lite0
    distance: PlainDistance
    unbiased: FrechetDistance
    unbiased_label: str
    kernel: KernelDistance
    figures: tuple[Figure, ...]  # likeness and variety, each with what real images would score
    copies: Memorisation | None
    kinds: np.ndarray | None = None  # [kinds, 2], shares of samples and of real images
    gaussian: Distances | None = None  # of random images with the mean and covariance of the data

    @property
    def summary(self) -> str:
        """The distance as it may be quoted: with its error, the number of samples, and what real images have."""
        real = self.distance.real
        floor = "" if real is None else f", real images {real:.3g}"
        return f"{self.label} {self.distance.words} (N = {self.distance.count:,}{floor})"

    def to_json(self) -> dict[str, Any]:
        copies, kinds, gaussian = self.copies, self.kinds, self.gaussian
        return {
            "label": self.label,
            "distance": self.distance.to_json(),
            **Distances(self.unbiased, self.kernel).to_json(),
            "count": self.unbiased.count,
            "reference_count": self.unbiased.reference_count,
            "figures": {figure.name: figure.to_json() for figure in self.figures},
            "kinds": None if kinds is None else kinds.round(5).tolist(),
            "gaussian": None if gaussian is None else gaussian.to_json(),
            "copies": None if copies is None else copies.to_json(),
        }


def prepare_real(
    images: Images, data: Data, extractor: Extractor, *, cache: Path, references: int, searched: int, components: int
) -> tuple[Real, Thumbnails]:
    """The training images of a run as its samples are compared with them: features of at most `references`, and
    thumbnails of at most `searched`, and of held-out ones."""
    training, held_out = hold_out(images, data.held_out)
    training = np.arange(len(images)) if training is None else training
    features = real_features(images, choose(training, references), extractor, side=data.image_size, cache=cache)
    small = thumbnails_of(images, training, held_out, data.image_size, most=searched)
    return Real(features, extractor.label, components=components), small


def measure_distances(features: np.ndarray, real: Real, *, finite_reference: bool = False) -> Distances:
    """`finite_reference`: the chance in the choice of real images counts too, as it does between two folders."""
    return Distances(
        frechet(features, real.reference, finite_reference=finite_reference),
        kernel_distance(features, real.kernel, finite_reference=finite_reference),
    )


def examine(
    features: np.ndarray,
    real: Real,
    copies: Memorisation | None = None,
    *,
    finite_reference: bool = False,
    gaussian: Distances | None = None,
) -> Examination:
    """`features` [n, d] of samples, the `copies` that were found among them, and the distances of `gaussian` images."""
    own = measure_distances(features, real, finite_reference=finite_reference)
    plain = own.unbiased
    if real.whole is not real.reference:
        plain = frechet(features, real.whole, finite_reference=finite_reference)
    distance = PlainDistance(max(plain.value, 0.0), plain.error, plain.count, *real.floor(plain.count))
    figures, shares = likeness(features, real)
    return Examination(
        real.label, distance, own.unbiased, real.unbiased_label, own.kernel, figures, copies, shares, gaussian
    )


def likeness(features: np.ndarray, real: Real) -> tuple[tuple[Figure, ...], np.ndarray | None]:
    """Figures of likeness and variety, and the shares of kinds; none from too few images."""
    if len(real.features) < LEAST_REAL or len(features) <= NEIGHBOURS:
        return (), None
    samples = real.reference.project(features)
    # In all dimensions: on the main axes of real images, noise lies in the middle of them and looks real.
    near, variety = precision_recall(features, real.features), diversity(samples, real.projected)
    kinds = modes(samples, real.projected)
    figures = (
        near.precision, near.recall, near.density, near.coverage, variety.variance, variety.distance,
        variety.vendi, kinds.coverage, kinds.largest, kinds.different,
    )  # fmt: skip
    return figures, kinds.shares
