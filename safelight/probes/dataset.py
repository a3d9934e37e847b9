"""The images that a loop trains on: of its dataset range, blanks and copies; and those that its first steps show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from safelight import checks
from safelight.data.tensors import image_of
from safelight.probes.call_template import Key, NotMeasurable
from safelight.probes.random_state import kept_random_state
from safelight.yardstick.fixed_samples import SIZE
from safelight.yardstick.linear import MIN_IMAGES_PER_NUMBER

SAMPLES = 512
MAX_IMAGES, MAX_BYTES = 4096, 64_000_000  # images of the first steps
# Between a whole set and what 16 steps of 4 or 16 of its images show (digits, patches of photographs): means up to 0.33
# deviations apart and deviations up to 1.19 times as large by x0, 0.69 and 1.48 by noisy inputs. Where the loop has the
# same images in [0, 1] instead of [-1, 1]: at least 1.4 and 1.55.
MEAN_APART, DEVIATION_RATIO = 1.0, 1.5
BLANK = 1e-3  # of the range: an image with less variation is blank


def take_images(data: Any, most: int = SAMPLES) -> np.ndarray | None:
    """Evenly from a tensor, an array or a dataset of images or (image, …); None for anything else. Nothing is changed:
    what random transforms draw does not count."""
    is_array = isinstance(data, Tensor | np.ndarray)
    is_dataset = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if (is_array and data.ndim < 2) or not (is_array or is_dataset) or not len(data):
        return None
    places = np.unique(np.linspace(0, len(data) - 1, min(most, len(data))).round().astype(np.int64))
    if isinstance(data, Tensor):
        images = data[torch.as_tensor(places)].detach().cpu()
        return (images.float() if images.is_floating_point() else images).numpy()
    if isinstance(data, np.ndarray):
        return np.asarray(data[places])
    with kept_random_state():
        images = [image for place in places if (image := image_of(data[int(place)])) is not None]
    return np.stack(images) if len({image.shape for image in images}) == 1 else None


def measure_images(images: np.ndarray) -> dict[str, float]:
    flat = images.reshape(len(images), -1).astype(np.float32)
    is_finite = np.isfinite(flat).all(1)
    finite = flat[is_finite] if is_finite.any() else np.zeros((1, flat.shape[1]), np.float32)
    reach = float(finite.max() - finite.min())
    counts = np.unique(flat[is_finite], axis=0, return_counts=True)[1] if is_finite.any() else np.ones(1)
    blank = float((finite.std(1) < BLANK * max(reach, 1e-9)).mean()) if images.ndim >= 3 else 0.0  # vectors never are
    return {
        checks.DATA_IMAGES: float(len(images)),
        checks.DATA_NONFINITE: float((~is_finite).mean()),
        checks.DATA_LOWEST: float(finite.min()),
        checks.DATA_HIGHEST: float(finite.max()),
        checks.DATA_REACH: float(np.quantile(np.abs(finite), 0.995)),  # one broken image does not stretch it
        checks.DATA_MEAN: float(finite.mean()),
        checks.DATA_STD: float(finite.std()),
        checks.DATA_BLANK: blank,
        checks.DATA_DUPLICATES: float(1 - len(counts) / max(1, counts.sum())),
        checks.DATA_LARGEST_GROUP: float(counts.max() / max(1, counts.sum())),
        checks.DATA_INTEGER: float(not np.issubdtype(images.dtype, np.floating)),
    }


def most_images(bytes_each: int) -> int:
    return min(MAX_IMAGES, MAX_BYTES // max(1, bytes_each))


class SeenImages:
    """Clean images as they were passed, kept on their device within a bound: nothing waits for it. Beside the first of
    them what else the network was called with for them."""

    def __init__(self) -> None:
        self._images: list[Tensor] = []
        self._extras: dict[Key, list[Tensor]] = {}
        self._count, self.is_full = 0, False

    def __len__(self) -> int:
        return self._count

    def add(self, x0: Tensor, extras: Mapping[Key, Tensor]) -> None:
        bytes_each = x0[0].numel() * x0.element_size()
        x0 = x0.detach()[: max(0, most_images(bytes_each) - self._count)].clone()
        for key, values in extras.items():
            if self._count < SIZE:
                self._extras.setdefault(key, []).append(values[: len(x0)][: SIZE - self._count].clone())
        self._images += [x0] if len(x0) else []
        self._count += len(x0)
        self.is_full = self._count >= most_images(bytes_each)

    def images(self) -> Tensor:
        """On the host."""
        return torch.cat([each.float().cpu() for each in self._images])

    def extras(self) -> dict[Key, Tensor]:
        """The extra inputs of the first `SIZE` images."""
        return {key: torch.cat(values) for key, values in self._extras.items()}


class SeenInputs:
    """The scale of clean images, from noisy ones alone: x_t has a times their mean, and a² times their mean square plus
    s²."""

    def __init__(self) -> None:
        self._sums: Tensor | None = None

    def add(self, x: Tensor, a: Tensor, s: Tensor) -> None:
        """`a` and `s`: one for each sample."""
        x, a, s = x.detach().float().flatten(1), a.flatten().float(), s.flatten().float()
        left = x.square().mean(1) - s.square()
        new = torch.stack([(a * x.mean(1)).sum(), a.square().sum(), (a.square() * left).sum(), a.pow(4).sum()])
        self._sums = new if self._sums is None else self._sums + new

    def mean_and_deviation(self) -> tuple[float, float]:
        """By least squares; NaN if nothing was seen."""
        if self._sums is None:
            return math.nan, math.nan
        first, over_a, second, over_kept = self._sums.tolist()
        mean = first / max(over_a, 1e-12)
        return mean, math.sqrt(max(0.0, second / max(over_kept, 1e-12) - mean * mean))


def as_pictures(images: Tensor) -> Tensor:
    """[n, channels, height, width], also of vectors and of images without channels."""
    if images.dim() == 4:
        return images
    if images.dim() == 3:
        return images[:, None]
    if images.dim() != 2:
        raise NotMeasurable(f"samples of {images.dim() - 1} dimensions are not measured")
    if len(images) < MIN_IMAGES_PER_NUMBER * images.shape[1]:
        raise NotMeasurable(f"{len(images)} vectors of {images.shape[1]} numbers are too few for their covariance")
    return images[:, :, None, None]


def is_same_scale(mean: float, deviation: float, wanted: float, width: float) -> bool:
    ratio = deviation / max(width, 1e-12)
    return abs(mean - wanted) <= MEAN_APART * width and 1 / DEVIATION_RATIO <= ratio <= DEVIATION_RATIO


def mean_and_deviation(images: Tensor) -> tuple[float, float]:
    return float(images.mean()), float(images.std())
