"""The 1,797 handwritten digits that scikit-learn carries, 8 pixels wide."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from safelight.config.tree import Data
from safelight.data.sources import Arrays

COUNT = 1797


def digits(data: Data) -> Arrays:
    return Arrays("digits", COUNT, tuple(str(digit) for digit in range(10)), _load)


def _load() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from sklearn.datasets import load_digits  # takes a second

    values, labels = load_digits(return_X_y=True)
    pixels = np.rint(np.asarray(values) * 255 / 16).astype(np.uint8).reshape(-1, 8, 8, 1)
    yield pixels, np.asarray(labels)
