"""Pairs: every sample above its own original, pixel by pixel, with its caption below."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.pictures.grid import BACKGROUND, CAPTION_SIZE, GAP, MARGIN, TITLE_SIZE
from safelight.pictures.pairs import SEAM, pairs


def noise(count: int, side: int, channels: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, channels), np.uint8)


TOP = MARGIN + TITLE_SIZE + 10


@pytest.mark.parametrize(
    ("count", "side", "factor", "channels", "others"),
    [
        (1, 8, 8, 3, 3),
        (1, 8, 8, 1, 1),
        (3, 28, 2, 1, 1),
        (3, 28, 2, 1, 3),  # grey samples of a model beside colour, and the other way round
        (3, 28, 2, 3, 1),
        (8, 16, 4, 3, 3),
        (9, 16, 4, 3, 3),  # the first that needs a second row
        (16, 33, 1, 3, 3),
        (16, 64, 1, 3, 3),
        (2, 65, 1, 3, 3),
        (2, 100, 1, 1, 1),
    ],
)
def test_each_sample_stands_above_its_original(count: int, side: int, factor: int, channels: int, others: int) -> None:
    samples, originals = noise(count, side, channels, 0), noise(count, side, others, 1)
    page = np.asarray(pairs(samples, originals, [f"{place / 100:.2f}" for place in range(count)]))
    cell, columns = side * factor, min(8, count)
    tall = 2 * cell + SEAM
    pitch = tall + GAP + CAPTION_SIZE + 7
    assert page.shape[1] == columns * (cell + GAP) - GAP + 2 * MARGIN
    for place in range(count):
        top, left = TOP + place // columns * pitch, MARGIN + place % columns * (cell + GAP)
        tile = page[top : top + tall, left : left + cell]
        for shown, meant in ((tile[:cell], samples[place]), (tile[cell + SEAM :], originals[place])):
            enlarged = np.broadcast_to(meant, (side, side, 3)).repeat(factor, 0).repeat(factor, 1)
            assert np.array_equal(shown, enlarged)
        assert (tile[cell : cell + SEAM] == BACKGROUND).all(), "the seam"
        below = page[top + tall : top + tall + CAPTION_SIZE + 7, left : left + cell]
        assert (below != BACKGROUND).any(), "the caption"


def test_the_order_is_kept() -> None:
    """The negative control: exchanged originals are another page, and so are exchanged captions."""
    samples, originals = noise(2, 8, 3, 0), noise(2, 8, 3, 1)
    page = np.asarray(pairs(samples, originals, ["0.10", "0.90"]))
    assert np.array_equal(page, np.asarray(pairs(samples, originals, ["0.10", "0.90"])))
    assert not np.array_equal(page, np.asarray(pairs(samples, originals[::-1], ["0.10", "0.90"])))
    assert not np.array_equal(page, np.asarray(pairs(samples, originals, ["0.90", "0.10"])))
    assert not np.array_equal(page, np.asarray(pairs(originals, samples, ["0.10", "0.90"])))


def test_the_given_pixels_are_left_as_they_are() -> None:
    samples, originals = noise(2, 8, 1, 0), noise(2, 8, 1, 1)
    kept = samples.copy(), originals.copy()
    pairs(samples, originals, ["", ""])
    assert np.array_equal(samples, kept[0])
    assert np.array_equal(originals, kept[1])


@pytest.mark.parametrize(("samples", "originals", "captions"), [(3, 2, 3), (2, 3, 2), (3, 3, 2)])
def test_unequal_numbers_are_refused(samples: int, originals: int, captions: int) -> None:
    with pytest.raises(AssertionError, match="one original and one caption"):
        pairs(noise(samples, 8, 3, 0), noise(originals, 8, 3, 1), [""] * captions)
