"""A few hundred images of the dataset: their range, and what is blank, broken or duplicated."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from safelight import checks

SAMPLES = 512
BLANK = 1e-3  # of the range: an image with less variation is blank


def take_images(data: Any, count: int = SAMPLES) -> np.ndarray | None:
    """Evenly from a tensor, an array or a dataset of images or (image, …); None for anything else. Nothing is changed,
    and a dataset with random transforms is read once."""
    is_array = isinstance(data, Tensor | np.ndarray)
    is_dataset = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if (is_array and data.ndim < 2) or not (is_array or is_dataset) or not len(data):
        return None
    places = np.unique(np.linspace(0, len(data) - 1, min(count, len(data))).round().astype(np.int64))
    if isinstance(data, Tensor):
        return data[torch.as_tensor(places)].detach().cpu().float().numpy()
    if isinstance(data, np.ndarray):
        return np.asarray(data[places])
    images = [_image(data[int(place)]) for place in places]
    sizes = {image.shape for image in images if image is not None}
    return np.stack([image for image in images if image is not None]) if len(sizes) == 1 else None


def _image(item: Any) -> np.ndarray | None:
    if isinstance(item, dict):
        item = next((item[k] for k in ("image", "images", "pixel_values", "x", "input") if k in item), None)
    if isinstance(item, tuple | list) and item:
        item = item[0]
    if isinstance(item, Tensor):
        return item.detach().cpu().float().numpy()
    return np.asarray(item) if isinstance(item, np.ndarray) else None


def look_at_images(images: np.ndarray, whole: bool) -> dict[str, float]:
    """`whole`: whether the images are of an integer type, as they are on disk."""
    flat = images.reshape(len(images), -1).astype(np.float32)
    finite = np.isfinite(flat).all(1)
    finite_images = flat[finite] if finite.any() else np.zeros((1, flat.shape[1]), np.float32)
    reach = float(finite_images.max() - finite_images.min())
    _, counts = np.unique(flat[finite], axis=0, return_counts=True) if finite.any() else (None, np.ones(1))
    pictures = images.ndim >= 3
    return {
        checks.DATA_IMAGES: float(len(images)),
        checks.DATA_NONFINITE: float((~finite).mean()),
        checks.DATA_LOWEST: float(finite_images.min()),
        checks.DATA_HIGHEST: float(finite_images.max()),
        checks.DATA_REACH: float(np.quantile(np.abs(finite_images), 0.995)),  # one broken image does not stretch it
        checks.DATA_MEAN: float(finite_images.mean()),
        checks.DATA_STD: float(finite_images.std()),
        checks.DATA_BLANK: float((finite_images.std(1) < BLANK * max(reach, 1e-9)).mean()) if pictures else 0.0,
        checks.DATA_DUPLICATES: float(1 - len(counts) / max(1, counts.sum())),
        checks.DATA_LARGEST_GROUP: float(counts.max() / max(1, counts.sum())),
        checks.DATA_INTEGER: float(whole),
    }
