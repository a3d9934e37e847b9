"""The images of a watched loop as an evaluation takes them: bytes, in squares, of whatever was passed."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from safelight.data.images import Images
from safelight.data.tensors import PixelRange
from safelight.errors import DataError
from safelight.observing.sample_judge import MAX_SEARCHED_IMAGES
from safelight.probes.dataset import take_images

MOST_READ = 2048  # images of a dataset, each of which has to be read
MIN_REAL_IMAGES = 32
MOST_BYTES = 256_000_000


def images_of(data: Any) -> Images:
    """Evenly chosen ones of a tensor, an array, a Dataset or the dataset of a DataLoader."""
    data = data if hasattr(data, "__getitem__") else getattr(data, "dataset", data)
    is_array = isinstance(data, Tensor | np.ndarray)
    most = min(MAX_SEARCHED_IMAGES, MOST_BYTES // max(1, _size(data))) if is_array else MOST_READ
    taken = take_images(data, most)
    if taken is None or len(taken) < MIN_REAL_IMAGES:
        raise DataError(f"expected a tensor, an array or a Dataset of at least {MIN_REAL_IMAGES} images of one size.")
    found = square(PixelRange("images of data").to_bytes(torch.from_numpy(np.ascontiguousarray(taken))))
    pixels = np.ascontiguousarray(found.permute(0, 2, 3, 1).numpy())
    digest = hashlib.sha256(str(pixels.shape).encode() + pixels.tobytes()).hexdigest()
    return Images(pixels, None, (), digest)


def square(images: Tensor) -> Tensor:
    """[n, channels, side, side]: the middle of images that are none."""
    height, width = images.shape[2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return images[:, :, top : top + side, left : left + side]


def _size(images: Tensor | np.ndarray) -> int:
    """Numbers in one image."""
    return int(np.prod(images.shape[1:])) if images.ndim > 1 else 1
