"""How samples look, by their pixels alone: contrast, difference, ends of the range, colour and grain, against real
images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from safelight.keys import derive_seed

MAX_REAL_IMAGES = 512  # real images that samples are compared with: milliseconds
SETS = 40  # of real images, drawn by chance, each as large as the set of samples
END = 2  # grey levels from the ends of the range: a pixel there is saturated
MIN_SPREAD = 1.0  # grey levels: what real images have at least, so that blank data makes no division by 0


@dataclass(frozen=True, slots=True)
class PixelStatistics:
    """One row for each image of a set; levels are 0 to 255."""

    contrast: np.ndarray  # [n], spread of the pixels within an image
    saturated: np.ndarray  # [n], share of its values at an end of the range
    grain: np.ndarray  # [n], spread of the difference of neighbours
    colour: np.ndarray  # [n, channels], means
    pixels: np.ndarray  # [n, channels, height, width], float32


def pixel_statistics(images: np.ndarray) -> PixelStatistics:
    """`images`: uint8 [n, channels, height, width]."""
    levels = images.astype(np.float32)
    colour = levels.mean((2, 3))
    contrast = np.sqrt(levels.var((2, 3)).mean(1))
    steps = [np.square(np.diff(levels, axis=axis)).reshape(len(levels), -1) for axis in (2, 3)]
    grain = np.sqrt(np.concatenate(steps, axis=1).mean(1))
    saturated = ((images <= END) | (images >= 255 - END)).mean((1, 2, 3))
    return PixelStatistics(contrast, saturated, grain, colour, levels)


@dataclass(frozen=True, slots=True)
class AppearanceFigure:
    """A number of a set of samples, and the lowest and highest that sets of real images have."""

    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


class RealAppearance:
    """Some real images, and what sets of them look like beside all of them."""

    def __init__(self, images: np.ndarray) -> None:
        """uint8 [n, channels, height, width]."""
        self._real = pixel_statistics(images[:MAX_REAL_IMAGES])
        self._contrast = max(MIN_SPREAD, float(np.median(self._real.contrast)))
        self._apart = max(MIN_SPREAD, _apart(self._real.pixels))
        self._grain = max(MIN_SPREAD, float(np.median(self._real.grain)))
        self._colour = self._real.colour.mean(0)
        self._spread = np.maximum(MIN_SPREAD, self._real.colour.std(0))

    def measure(self, samples: np.ndarray) -> dict[str, AppearanceFigure]:
        """`samples`: uint8 [n, channels, height, width], two at least."""
        own, real = self._numbers(pixel_statistics(samples)), self._ranges(len(samples))
        return {name: AppearanceFigure(number, *real[name]) for name, number in own.items()}

    def _numbers(self, statistics: PixelStatistics) -> dict[str, float]:
        return {
            "contrast": float(np.median(statistics.contrast)) / self._contrast,
            "apart": _apart(statistics.pixels) / self._apart,
            "saturated": float(statistics.saturated.mean()),
            "colour": float((np.abs(statistics.colour.mean(0) - self._colour) / self._spread).max()),
            "grain": float(np.median(statistics.grain)) / self._grain,
        }

    def _ranges(self, count: int) -> Mapping[str, tuple[float, float]]:
        draws = np.random.default_rng(derive_seed(0, "evaluate"))
        found = [self._numbers(self._rows(draws.integers(len(self._real.contrast), size=count))) for _ in range(SETS)]
        return {name: (min(each[name] for each in found), max(each[name] for each in found)) for name in found[0]}

    def _rows(self, rows: np.ndarray) -> PixelStatistics:
        real = self._real
        columns = (real.contrast, real.saturated, real.grain, real.colour, real.pixels)
        return PixelStatistics(*(each[rows] for each in columns))


def _apart(pixels: np.ndarray) -> float:
    """The spread of a pixel over the images of a set."""
    return float(np.sqrt(pixels.var(0, ddof=1).mean()))
