"""The row of an image: what a plain loop over its pixels gives."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from safelight.data.decode import DecodedImage
from safelight.data.rows import GREY, NO_FORMAT, ROW, TRANSPARENT, TURNED, describe, difference_hash, measure


def noise(count: int, channels: int) -> np.ndarray:
    return np.random.default_rng(0).integers(3, 250, (count, 12, 12, channels), np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
def test_sums_and_levels_are_those_of_a_plain_loop(channels: int) -> None:
    pixels = noise(5, channels)
    for row, image in zip(measure(pixels), pixels.astype(int), strict=True):
        assert row["total"].tolist() == np.broadcast_to(image.sum((0, 1)), 3).tolist()
        assert row["squares"].tolist() == np.broadcast_to((image**2).sum((0, 1)), 3).tolist()
        assert (row["low"], row["high"]) == (image.min(), image.max())
        assert (row["width"], row["height"], row["format"]) == (12, 12, NO_FORMAT)
        assert row["marks"] == GREY * (channels == 1)


def test_equal_images_have_equal_hashes_and_others_not() -> None:
    pixels = noise(2, 3)
    nearly = pixels[:1].copy()
    nearly[0, 5, 5, 1] ^= 1
    first, second, copy, changed = (
        row["content"].tobytes() for row in measure(np.concatenate([pixels, pixels[:1], nearly]))
    )
    assert first == copy
    assert len({first, second, changed}) == 3


def test_the_difference_hash_outlives_brightness_and_knows_a_mirror() -> None:
    ramp = np.add.outer(np.arange(64), 2 * np.arange(64)).astype(np.uint8)
    image = Image.fromarray(ramp // 2)
    assert difference_hash(image) == difference_hash(Image.fromarray(ramp // 2 + 9)) == 2**64 - 1
    assert difference_hash(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)) == 0


def test_a_decoded_file_has_its_own_size_and_marks() -> None:
    picture = DecodedImage(noise(1, 1)[0], 640, 480, "GIF", transparent=True, turned=False)
    row = describe(picture, 1234)
    assert (row["bytes"], row["width"], row["height"], row["format"]) == (1234, 640, 480, 5)
    assert row["marks"] == GREY | TRANSPARENT
    assert describe(DecodedImage(noise(1, 3)[0], 1, 1, "", transparent=False, turned=True), 1)["marks"] == TURNED


def test_the_row_is_laid_out_as_caches_have_it() -> None:
    """Another size would make every cache on disk unreadable without a word."""
    assert ROW.itemsize == 96
    assert [ROW.fields[name][1] for name in ROW.names] == [0, 16, 24, 32, 36, 40, 64, 88, 89, 90, 91, 92]  # type: ignore[index]
