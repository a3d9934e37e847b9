"""All that is measured of one set of samples against real images, in one go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from safelight.config.tree import Data
from safelight.data.images import Images, hold_out
from safelight.evaluate.diversity import diversity
from safelight.evaluate.features import Extractor
from safelight.evaluate.figures import Figure
from safelight.evaluate.frechet import FrechetDistance, frechet
from safelight.evaluate.kernel import KernelDistance, KernelReference, fit_kernel_reference, kernel_distance
from safelight.evaluate.memorisation import Memorisation
from safelight.evaluate.modes import modes
from safelight.evaluate.neighbours import NEIGHBOURS, precision_recall
from safelight.evaluate.real import choose, real_features
from safelight.evaluate.reference import Reference, fit_reference
from safelight.evaluate.thumbnails import Thumbnails, thumbnails_of
from safelight.words import with_error

LEAST_REAL = 100  # fewer make neither modes nor halves to compare with each other


class Real:
    """Real images as features, and all that depends on them alone: computed once, used at every evaluation."""

    def __init__(self, features: np.ndarray, label: str, *, components: int = 0) -> None:
        """`label`: what a distance over these features may be called; `components`: main axes that it is taken in, 0
        for all of them."""
        self.features = features
        fewer = min(components, features.shape[1], len(features) - 1) if components else 0
        self.reference: Reference = fit_reference(features, components=fewer or None)
        self.label = f"{label}-pca{fewer}" if fewer else label

    @cached_property
    def kernel(self) -> KernelReference:
        return fit_kernel_reference(self.features)

    @cached_property
    def projected(self) -> np.ndarray:
        return self.reference.project(self.features)


@dataclass(frozen=True, slots=True)
class Examination:
    label: str
    distance: FrechetDistance
    kernel: KernelDistance
    figures: tuple[Figure, ...]  # likeness and variety, each with what real images would score
    copies: Memorisation | None

    @property
    def summary(self) -> str:
        """The distance as it may be quoted: with its error and the number of samples."""
        doubt = "" if self.distance.trusted else ", too few samples to trust it"
        value = max(self.distance.corrected, 0.0)
        return f"{self.label} {with_error(value, self.distance.error)} (N = {self.distance.count:,}{doubt})"

    def to_json(self) -> dict[str, Any]:
        distance, kernel, copies = self.distance, self.kernel, self.copies
        return {
            "label": self.label,
            "distance": {
                "value": distance.value,
                "corrected": distance.corrected,
                "error": distance.error,
                "interval": [*distance.interval()],
                "trusted": distance.trusted,
                "dimension": distance.dimension,
            },
            "kernel": {"value": kernel.value, "error": kernel.error, "interval": [*kernel.interval()]},
            "count": distance.count,
            "reference_count": distance.reference_count,
            "figures": {figure.name: figure.to_json() for figure in self.figures},
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


def examine(
    features: np.ndarray, real: Real, copies: Memorisation | None = None, *, finite_reference: bool = False
) -> Examination:
    """`features` [n, d] of samples, and the `copies` that were found among them. `finite_reference`: the chance in the
    choice of real images counts too, as it does between two folders."""
    distance = frechet(features, real.reference, finite_reference=finite_reference)
    kernel = kernel_distance(features, real.kernel, finite_reference=finite_reference)
    figures: tuple[Figure, ...] = ()
    if len(real.features) >= LEAST_REAL and len(features) > NEIGHBOURS:
        samples = real.reference.project(features)
        near, variety = precision_recall(samples, real.projected), diversity(samples, real.projected)
        kinds = modes(samples, real.projected)
        figures = (
            near.precision, near.recall, near.density, near.coverage, variety.variance, variety.distance,
            variety.vendi, kinds.coverage, kinds.largest, kinds.different,
        )  # fmt: skip
    return Examination(real.label, distance, kernel, figures, copies)
