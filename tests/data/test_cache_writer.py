"""What is written into a cache: grey until colour comes, and a fingerprint of all of it."""

from __future__ import annotations

import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from image_sets import NOISE, picture, read_set

from safelight.data.cache_writer import CacheWriter, fingerprint
from safelight.data.rows import measure


def test_the_fingerprint_knows_pixels_order_shape_and_labels(tmp_path: Path) -> None:
    labels = np.arange(6)
    prints = [
        fingerprint(NOISE, labels),
        fingerprint(NOISE[::-1], labels),
        fingerprint(NOISE, labels[::-1]),
        fingerprint(NOISE, None),
        fingerprint(NOISE.reshape(6, 4, 16), labels),
    ]
    assert len(set(prints)) == len(prints)
    assert fingerprint(NOISE.copy(), labels.astype(np.int32)) == prints[0]
    picture(tmp_path / "one" / "a.png", 5)
    picture(tmp_path / "two" / "b.png", 5)
    assert read_set(tmp_path / "one").fingerprint == read_set(tmp_path / "two").fingerprint


def test_grey_images_are_written_again_when_colour_comes(tmp_path: Path) -> None:
    grey, colour = NOISE[:, :, :, None], np.stack([NOISE, NOISE // 2, NOISE // 3], 3)
    with closing(CacheWriter(tmp_path, side=8, channels=None)) as writer:
        writer.add(measure(grey), grey, [1] * 6)
        writer.add(measure(colour), colour, [0] * 6)
        assert writer.renumber(["b", "a"]) == ["a", "b"]
        pixels, rows, labels = writer.finish(("a", "b"))
    assert np.array_equal(pixels, np.concatenate([np.repeat(grey, 3, 3), colour]))
    assert rows["crc32"].tolist() == [zlib.crc32(image.tobytes()) for image in pixels]
    assert labels is not None
    assert labels.tolist() == [0] * 6 + [1] * 6
    assert fingerprint(pixels, labels, rows) == fingerprint(np.array(pixels), labels)


def test_what_cannot_be_read_back_is_an_error(tmp_path: Path) -> None:
    images = NOISE[:, :, :, None]
    with closing(CacheWriter(tmp_path, side=8, channels=1)) as writer:
        writer.add(measure(images), images, None)
        _, rows, labels = writer.finish(())
    assert labels is None
    with pytest.raises(OSError, match="could not be read back"):
        fingerprint(images[::-1], None, rows)
