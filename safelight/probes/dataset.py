"""A few hundred images of the dataset: their range, and what is blank, broken or duplicated."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from safelight import checks
from safelight.data.tensors import image_of
from safelight.probes.random_state import kept_random_state

SAMPLES = 512
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
