"""Pixels on their way to a network, against loops written out and against Pillow."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image

from safelight.errors import DataError
from safelight.evaluate.networks.pixels import RESIZES, quantise, resize_tf1, to_colour
from safelight.pictures.grid import to_uint8


def noise(height: int, width: int, count: int = 2, seed: int = 0) -> torch.Tensor:
    numbers = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=numbers)


@pytest.mark.parametrize(
    ("value", "byte"),
    [
        (-1.0, 0), (1.0, 255), (0.0, 128), (-3.0, 0), (3.0, 255),
        (99.4 / 127.5 - 1, 99), (99.6 / 127.5 - 1, 100),  # truncation would give 99 twice
    ],
)  # fmt: skip
def test_rounding(value: float, byte: int) -> None:
    assert quantise(torch.full((1, 1, 1, 1), value)).item() == byte


def test_the_pictures_that_are_shown_are_the_ones_that_are_judged() -> None:
    images = torch.linspace(-1.2, 1.2, 3 * 64 * 64).view(1, 3, 64, 64)
    assert np.array_equal(quantise(images).permute(0, 2, 3, 1).numpy(), to_uint8(images))
    assert torch.equal(quantise(images.double()), quantise(images))


def test_every_byte_comes_back() -> None:
    bytes_ = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    assert torch.equal(quantise(bytes_ / 127.5 - 1), bytes_)


def test_images_that_are_not_finite_are_counted_and_refused() -> None:
    images = torch.zeros(5, 1, 4, 4)
    images[1, 0, 2, 2] = math.nan
    images[3] = math.inf
    with pytest.raises(DataError, match="2 of 5 images have pixels that are not finite"):
        quantise(images)


def test_grey_becomes_three_equal_channels() -> None:
    grey = noise(5, 7)[:, :1]
    colour = to_colour(grey)
    assert colour.shape == (2, 3, 5, 7)
    assert all(torch.equal(colour[:, k], grey[:, 0]) for k in range(3))


@pytest.mark.parametrize("shape", [(2, 8, 8, 3), (3, 8, 8), (1, 4, 8, 8)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"\[n, 1 or 3, height, width\]"):
        to_colour(torch.zeros(shape, dtype=torch.uint8))


def tensorflow(channel: np.ndarray, side: int) -> np.ndarray:
    """TensorFlow 1's bilinear, pixel by pixel."""
    height, width = channel.shape
    down, across = np.float32(height) / np.float32(side), np.float32(width) / np.float32(side)
    found = np.empty((side, side), np.float32)
    for y in range(side):
        for x in range(side):
            v, u = np.float32(y) * down, np.float32(x) * across
            top, left = int(v), int(u)
            bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
            a, b = channel[top, left], channel[top, right]
            c, d = channel[bottom, left], channel[bottom, right]
            upper, lower = a + (b - a) * (u - np.float32(left)), c + (d - c) * (u - np.float32(left))
            found[y, x] = upper + (lower - upper) * (v - np.float32(top))
    return found


@pytest.mark.parametrize(("height", "width", "side"), [(4, 4, 11), (8, 5, 13), (20, 17, 7), (6, 6, 6), (1, 1, 3)])
def test_tf1_against_a_loop(height: int, width: int, side: int) -> None:
    images = noise(height, width, 1)
    expected = [tensorflow(channel, side) for channel in images[0].float().numpy()]
    assert np.array_equal(resize_tf1(images, side)[0].numpy(), np.stack(expected))


def test_tf1_is_not_the_bilinear_of_today() -> None:
    """Near miss: half pixels differ by many grey levels, which FID notices."""
    images = noise(8, 8)
    assert (resize_tf1(images, 16) - RESIZES["bilinear"](images, 16)).abs().mean() > 5
    assert torch.equal(resize_tf1(images, 16)[..., ::2, ::2], images.float())


@pytest.mark.parametrize("size", [(32, 32), (96, 64), (400, 350), (299, 299)])
@pytest.mark.parametrize(
    ("way", "filter"), [("clean", Image.Resampling.BICUBIC), ("bilinear", Image.Resampling.BILINEAR)]
)
def test_against_pillow_in_floats(way: str, filter: Image.Resampling, size: tuple[int, int]) -> None:
    images = noise(*size, count=1)
    expected = [
        np.asarray(Image.fromarray(channel).resize((299, 299), filter)).clip(0, 255)
        for channel in images[0].float().numpy()
    ]
    # White noise is the worst case, torch rounding its filters to float32. Photographs stay below 1e-3.
    assert np.abs(RESIZES[way](images, 299)[0].numpy() - np.stack(expected)).max() < 6e-3


def test_clean_stays_among_the_grey_levels_and_is_not_quantised() -> None:
    images = noise(16, 16)
    found = RESIZES["clean"](images, 299)
    assert (found.min(), found.max()) == (0, 255)  # bicubic overshoots on noise, and is cut
    assert (found != found.round()).any()


@pytest.mark.parametrize("way", RESIZES)
def test_floats_whatever_comes_in_and_one_by_one_or_together(way: str) -> None:
    images = noise(24, 40, count=5)
    together = RESIZES[way](images, 32)
    assert together.dtype == torch.float32
    assert together.shape == (5, 3, 32, 32)
    assert torch.equal(together, torch.cat([RESIZES[way](image[None], 32) for image in images]))
    assert torch.equal(together, RESIZES[way](images.double(), 32))
