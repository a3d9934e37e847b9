"""The real images that everything is measured against: their moments, the root of their covariance, their main axes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from safelight.errors import UsageError
from safelight.evaluate.moments import MIN_FEATURES, Moments, check_dimension, check_features


@dataclass(frozen=True, slots=True)
class Projection:
    """Main axes of the reference: with few of them, few samples are enough (docs: N >= 4 dimensions)."""

    mean: np.ndarray  # [d]
    components: np.ndarray  # [d, k], orthonormal columns, the widest first

    def project(self, features: np.ndarray) -> np.ndarray:
        return (features - self.mean) @ self.components

    def project_moments(self, moments: Moments) -> Moments:
        mean = self.project(moments.mean)
        return Moments(len(mean), moments.count, mean, self.components.T @ moments.scatter @ self.components)


@dataclass(frozen=True)
class Reference:
    """Computed once per dataset and kept; all but `projection` is in the projected space if there is one."""

    count: int
    mean: np.ndarray
    covariance: np.ndarray
    projection: Projection | None = None

    @cached_property
    def root(self) -> np.ndarray:
        """Symmetric, root @ root = covariance: the expensive part, which fewer samples than dimensions do not need."""
        return symmetric_root(self.covariance)

    @property
    def dimension(self) -> int:
        return len(self.mean)

    def project(self, features: np.ndarray) -> np.ndarray:
        """Checked, as float64, in the space of the reference."""
        wide = check_features(features)
        self._check_dimension(wide.shape[1])
        return wide if self.projection is None else self.projection.project(wide)

    def project_moments(self, moments: Moments) -> Moments:
        if moments.count < MIN_FEATURES:
            raise UsageError(
                f"Expected moments of at least {MIN_FEATURES} features, came {moments.count}. Add more of them."
            )
        self._check_dimension(moments.dimension)
        return moments if self.projection is None else self.projection.project_moments(moments)

    def _check_dimension(self, found: int) -> None:
        check_dimension(found, self.dimension if self.projection is None else len(self.projection.mean))

    def moments(self) -> Moments:
        return Moments(self.dimension, self.count, self.mean.copy(), self.covariance * (self.count - 1))


def fit_reference(features: np.ndarray | Moments, *, components: int | None = None) -> Reference:
    """`features` [n, d] of real images, or their moments; `components` keeps only so many main axes of them."""
    moments = features if isinstance(features, Moments) else Moments.of(check_features(features, "reference features"))
    if moments.count < MIN_FEATURES:
        raise UsageError(
            f"Expected a reference of at least {MIN_FEATURES} images, came {moments.count}. Take more of them."
        )
    projection = None
    if components is not None:
        projection = _principal(moments, components)
        moments = projection.project_moments(moments)
    return Reference(moments.count, moments.mean.copy(), moments.covariance, projection)


def _principal(moments: Moments, components: int) -> Projection:
    """The `components` widest axes, of real features: axes of generated ones would hide what these lack."""
    most = min(moments.dimension, moments.count - 1)
    if not 1 <= components <= most:
        raise UsageError(
            f"Expected 1 to {most} components of {moments.count:,} features with {moments.dimension} dimensions, came "
            f"{components}. Use fewer components or more real images."
        )
    _, axes = np.linalg.eigh(moments.covariance)
    widest = axes[:, ::-1][:, :components]
    signs = np.sign(widest[np.argmax(np.abs(widest), axis=0), np.arange(components)])  # else they may flip by machine
    return Projection(moments.mean.copy(), np.ascontiguousarray(widest * signs))


def symmetric_root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
