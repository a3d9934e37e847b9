"""The picture of samples that look most like copies, with the training images they look like."""

from __future__ import annotations

import numpy as np
from PIL import Image

from safelight.data.images import Images
from safelight.evaluate.examination import Thumbnails
from safelight.evaluate.memorisation import Memorisation
from safelight.evaluate.real import real_pixels
from safelight.pictures.grid import pairs


def draw_closest(copies: Memorisation, pixels: np.ndarray, images: Images, small: Thumbnails) -> Image.Image:
    """`pixels`: uint8 [n, channels, side, side] of the samples. The captions are the ratios of the copy test: the
    distance to the nearest training image over that to the second nearest; below 0.33 counts as a copy."""
    ours, theirs = copies.closest[:, 0], small.rows[copies.closest[:, 1]]
    originals = real_pixels(images, theirs, pixels.shape[-1])
    captions = [f"{copies.ratios[place]:.2f}" for place in ours]
    return pairs(pixels[ours].transpose(0, 2, 3, 1), originals.transpose(0, 2, 3, 1), captions)
