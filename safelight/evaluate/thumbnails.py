"""Images made small for the search for copies: a copy stays one, and millions of pixels need not be compared."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from safelight.data.images import Images
from safelight.evaluate.examination import Thumbnails
from safelight.evaluate.moments import LEAST
from safelight.evaluate.real import CHUNK, choose, real_pixels

SIDE = 16
MOST_HELD_OUT = 512


def shrink(pixels: np.ndarray) -> np.ndarray:
    """uint8 [n, channels, height, width] to uint8 [n, d], by the mean over squares."""
    small = torch.from_numpy(np.ascontiguousarray(pixels)).float()
    if small.shape[-1] > SIDE:
        small = functional.adaptive_avg_pool2d(small, SIDE).round()
    return small.to(torch.uint8).flatten(1).numpy()


def thumbnails_of(images: Images, training: np.ndarray, held_out: np.ndarray, side: int, *, most: int) -> Thumbnails:
    """Of at most `most` rows that are trained on, and of some that are held out."""

    def small(ids: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [shrink(real_pixels(images, ids[start : start + CHUNK], side)) for start in range(0, len(ids), CHUNK)]
        )

    rows, others = choose(training, most), choose(held_out, MOST_HELD_OUT)
    return Thumbnails(rows, small(rows), small(others) if len(others) >= LEAST else None)
