"""Images made small for the search for copies, and the picture of the samples that look most like one.

A copy stays one when it is made small, and millions of pixels need not be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from safelight.data.images import Images
from safelight.evaluate.memorisation import Memorisation, memorisation
from safelight.evaluate.moments import MIN_FEATURES
from safelight.evaluate.real import choose, real_chunks, real_pixels
from safelight.pictures.grid import pairs

SIDE = 16
LEAST_SEARCHED = 10  # training images, without which "nearer than to the next" means nothing
MOST_HELD_OUT = 512


@dataclass(frozen=True, slots=True)
class Thumbnails:
    """Small pixels [n, d] for the search for copies: features forgive what makes two pictures different ones."""

    rows: np.ndarray  # [n], which images of the set `training` are
    training: np.ndarray
    held_out: np.ndarray | None


def shrink(pixels: np.ndarray) -> np.ndarray:
    """uint8 [n, channels, height, width] to uint8 [n, d], by the mean over squares."""
    small = torch.from_numpy(np.ascontiguousarray(pixels)).float()
    if small.shape[-1] > SIDE:
        small = functional.adaptive_avg_pool2d(small, SIDE).round()
    return small.to(torch.uint8).flatten(1).numpy()


def thumbnails_of(images: Images, training: np.ndarray, held_out: np.ndarray, side: int, *, most: int) -> Thumbnails:
    """Thumbnails of at most `most` rows that are trained on, and of some that are held out."""

    def small(ids: np.ndarray) -> np.ndarray:
        return np.concatenate([shrink(chunk) for chunk in real_chunks(images, ids, side)])

    rows, others = choose(training, most), choose(held_out, MOST_HELD_OUT)
    return Thumbnails(rows, small(rows), small(others) if len(others) >= MIN_FEATURES else None)


def find_copies(pixels: np.ndarray, small: Thumbnails) -> Memorisation | None:
    """Among samples, uint8 [n, channels, side, side]; None without enough training images to search."""
    if len(small.training) < LEAST_SEARCHED:
        return None
    return memorisation(shrink(pixels), small.training, small.held_out)


def draw_closest(copies: Memorisation, pixels: np.ndarray, images: Images, small: Thumbnails) -> Image.Image:
    """`pixels`: uint8 [n, channels, side, side] of the samples. The captions are the ratios of the copy test: the
    distance to the nearest training image over that to the second nearest; below 0.33 counts as a copy."""
    samples, rows = copies.closest[:, 0], small.rows[copies.closest[:, 1]]
    originals = real_pixels(images, rows, pixels.shape[-1])
    captions = [f"{copies.ratios[sample]:.2f}" for sample in samples]
    return pairs(pixels[samples].transpose(0, 2, 3, 1), originals.transpose(0, 2, 3, 1), captions)
