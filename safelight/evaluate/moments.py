"""Count, mean and covariance of features, added up piece by piece in float64."""

from __future__ import annotations

import numpy as np

from safelight.errors import UsageError

MIN_FEATURES = 4  # features that any statistic needs; below that a spread is a guess
MAX_FEATURE = 1e75  # as good as infinite: its fourth power, which an error needs, would be
_CHUNK = 4096  # rows that are widened to float64 at a time


def check_features(features: np.ndarray, name: str = "features", least: int = MIN_FEATURES) -> np.ndarray:
    """The same as float64 [n, d], or an error that says what is wrong with them."""
    array = np.asarray(features)
    if array.ndim != 2 or array.shape[1] == 0 or not np.issubdtype(array.dtype, np.number):
        raise UsageError(
            f"Expected {name} as numbers [images, dimensions], came {array.dtype} of shape {array.shape}. "
            "Pass one row of features per image."
        )
    if len(array) < least:
        raise UsageError(
            f"Expected at least {least} rows of {name}, came {len(array)}. Evaluate more images: a spread of so few "
            "says nothing."
        )
    wide = array.astype(np.float64, copy=False)
    if len(wide) and not (wide.max() < MAX_FEATURE and wide.min() > -MAX_FEATURE):  # NaN compares as false
        bad = ~(np.abs(wide) < MAX_FEATURE)
        raise UsageError(
            f"Expected finite {name}, came {int(bad.sum()):,} NaN or infinite values in {int(bad.any(1).sum()):,} "
            f"of {len(array):,} rows, the first in row {int(np.flatnonzero(bad.any(1))[0])}. "
            "Look at the images of these rows: a sampler that overflows makes such ones."
        )
    return wide


def check_pair(features: np.ndarray, reference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both checked, and of one dimension."""
    first, second = check_features(features), check_features(reference, "reference features")
    check_dimension(first.shape[1], second.shape[1])
    return first, second


def check_dimension(found: int, wanted: int, other_name: str = "reference") -> None:
    if found != wanted:
        raise UsageError(
            f"Expected features of {wanted} dimensions as in the {other_name}, came {found}. "
            "Take both with the same extractor."
        )


class Moments:
    """Grows by `add` and `merge`; its memory is one d x d matrix, however many features went in.

    Sums around the mean, merged after Chan et al.: sums of squares would lose the spread of features far from 0.
    """

    __slots__ = ("count", "mean", "scatter")

    def __init__(
        self, dimension: int, count: int = 0, mean: np.ndarray | None = None, scatter: np.ndarray | None = None
    ) -> None:
        self.count = count
        self.mean = np.zeros(dimension) if mean is None else mean
        # sum of (x - mean)(x - mean)'
        self.scatter = np.zeros((dimension, dimension)) if scatter is None else scatter

    @classmethod
    def of(cls, features: np.ndarray) -> Moments:
        array = np.asarray(features)
        return cls(array.shape[1] if array.ndim == 2 else 1).add(array)

    @property
    def dimension(self) -> int:
        return len(self.mean)

    @property
    def covariance(self) -> np.ndarray:
        if self.count < 2:
            raise UsageError(f"A covariance needs at least 2 features, came {self.count}. Add more of them first.")
        return self.scatter / (self.count - 1)

    def add(self, features: np.ndarray) -> Moments:
        """`features` [n, d] of any n, also 0 and 1."""
        array = np.asarray(features)
        for start in range(0, max(len(array), 1), _CHUNK):
            part = check_features(array[start : start + _CHUNK], least=0)
            check_dimension(part.shape[1], self.dimension, "moments so far")
            if len(part):
                mean = part.mean(0)
                centred = part - mean
                self._join(len(part), mean, centred.T @ centred)
        return self

    def merge(self, other: Moments) -> Moments:
        """Takes in what another process saw; any split of the features gives the same up to rounding."""
        check_dimension(other.dimension, self.dimension, "moments so far")
        if other.count:
            self._join(other.count, other.mean, other.scatter)
        return self

    def _join(self, count: int, mean: np.ndarray, scatter: np.ndarray) -> None:
        total = self.count + count
        change = mean - self.mean
        self.scatter += scatter
        self.scatter += np.outer(change, change * (self.count * count / total))
        self.mean = self.mean + change * (count / total)
        self.count = total
