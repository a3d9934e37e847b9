"""Thumbnails: small enough to be compared, known by their rows, and the picture of the closest pairs."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.data.images import Images
from safelight.evaluate import thumbnails as module
from safelight.evaluate.thumbnails import (
    LEAST_SEARCHED,
    MOST_HELD_OUT,
    SIDE,
    draw_closest,
    find_copies,
    shrink,
    thumbnails_of,
)

TRAINED = 1500


def noise(count: int, side: int = 16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3, side, side), np.uint8)


def images(pixels: np.ndarray) -> Images:
    return Images(np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)), None, (), "noise")


@pytest.mark.parametrize(("side", "length"), [(8, 192), (16, 768), (17, 768), (32, 768), (64, 768)])
def test_large_pictures_are_made_small_and_small_ones_left(side: int, length: int) -> None:
    pixels = noise(3, side)
    small = shrink(pixels)
    assert small.shape == (3, length)
    assert small.dtype == np.uint8
    if side <= SIDE:
        assert np.array_equal(small, pixels.reshape(3, -1))
    if side == 32:
        means = pixels.reshape(3, 3, 16, 2, 16, 2).mean((3, 5), dtype=np.float64)
        assert np.array_equal(small, np.rint(means).astype(np.uint8).reshape(3, -1))


def test_thumbnails_know_which_rows_they_are_of() -> None:
    pixels = noise(TRAINED)
    many = images(pixels)
    training, held = np.arange(0, TRAINED, 2), np.arange(1, TRAINED, 2)
    found = thumbnails_of(many, training, held, 16, most=100)
    assert len(found.rows) == len(found.training) == 100
    assert set(found.rows.tolist()) <= set(training.tolist())
    assert np.array_equal(found.training, shrink(pixels[found.rows]))
    assert found.held_out is not None
    assert len(found.held_out) == MOST_HELD_OUT
    for few in (held[:0], held[:3]):
        assert thumbnails_of(many, training, few, 16, most=100).held_out is None
    everyone = thumbnails_of(many, training, held[:4], 16, most=10_000)
    assert np.array_equal(everyone.rows, training)
    assert everyone.held_out is not None
    assert np.array_equal(everyone.held_out, shrink(pixels[held[:4]]))


def test_copies_are_drawn_with_their_originals(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, samples = noise(200), noise(40, seed=1)
    samples[:5] = pixels[100:110:2]
    small = thumbnails_of(images(pixels), np.arange(0, 200, 2), np.arange(1, 200, 2), 16, most=1000)
    copies = find_copies(samples, small)
    assert copies is not None
    assert copies.alarm
    drawn: list[tuple[np.ndarray, np.ndarray, list[str]]] = []
    pairs = module.pairs
    monkeypatch.setattr(module, "pairs", lambda *given: drawn.append(given) or pairs(*given))
    picture = draw_closest(copies, samples, images(pixels), small)
    [(above, below, captions)] = drawn
    assert picture.width > picture.height
    assert np.array_equal(above[:5], below[:5])
    assert not any(np.array_equal(one, other) for one, other in zip(above[5:], below[5:], strict=True))
    assert captions[:5] == ["0.00"] * 5
    assert all(float(caption) > 0.33 for caption in captions[5:])


@pytest.mark.parametrize("count", [LEAST_SEARCHED - 1, LEAST_SEARCHED])
def test_few_training_images_are_not_searched(count: int) -> None:
    small = thumbnails_of(images(noise(count)), np.arange(count), np.arange(0), 16, most=1000)
    assert (find_copies(noise(40, seed=1), small) is not None) == (count == LEAST_SEARCHED)
