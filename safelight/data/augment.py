"""Random views of an image: windows, mirrors and colours, each from numbers that were drawn elsewhere."""

from __future__ import annotations

import numpy as np

GREY = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R 601, as Pillow's


def windows(pixels: np.ndarray, side: int, places: np.ndarray) -> np.ndarray:
    """Squares cut out of uint8 [n, height, width, channels]; `places` [n, 2] in [0, 1): top and left of each."""
    count, height, width, _ = pixels.shape
    top = np.floor(places[:, 0] * (height - side + 1)).astype(np.int64)
    left = np.floor(places[:, 1] * (width - side + 1)).astype(np.int64)
    rows, columns = top[:, None] + np.arange(side), left[:, None] + np.arange(side)
    return pixels[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]


def jitter(images: np.ndarray, amount: float, draws: np.ndarray) -> np.ndarray:
    """Brightness, contrast and saturation of float32 [n, channels, side, side] in [-1, 1], changed by a factor of up
    to 1 ± amount; `draws` [n, 3] in [0, 1). The result stays in [-1, 1]."""
    factor = (1 + amount * (2 * draws - 1)).astype(np.float32)[:, :, None, None, None]
    brightness, contrast, saturation = factor[:, 0], factor[:, 1], factor[:, 2]
    changed = (images + 1) * brightness - 1  # black stays black
    grey = _grey(changed)
    middle = grey.mean((2, 3), keepdims=True)
    changed = (changed - middle) * contrast + middle
    if images.shape[1] == 3:
        grey = _grey(changed)
        changed = (changed - grey) * saturation + grey
    return np.clip(changed, -1, 1, out=changed)


def _grey(images: np.ndarray) -> np.ndarray:
    if images.shape[1] == 1:
        return images
    return np.einsum("nchw,c->nhw", images, GREY)[:, None]
