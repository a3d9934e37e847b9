"""The digits of scikit-learn."""

from __future__ import annotations

import numpy as np
from image_sets import read_set

from safelight.config.tree import Data
from safelight.data.prepare import open_images


def test_digits() -> None:
    images = read_set("digits")
    assert images.pixels.shape == (1797, 8, 8, 1)
    assert images.pixels.dtype == np.uint8
    assert (images.pixels.min(), images.pixels.max()) == (0, 255)
    assert images.pixels[0, 0, :, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]  # 0 0 5 13 9 1 0 0 of 16
    assert images.labels is not None
    assert images.labels.dtype == np.int32
    assert np.bincount(images.labels).min() == 174
    assert images.class_names == tuple("0123456789")
    assert images.names is None
    assert not images.rejected


def test_digits_at_another_size_in_colour_report_their_progress() -> None:
    reported: list[tuple[int, int]] = []
    images = open_images(Data(image_size=12, channels=3), lambda done, total: reported.append((done, total)))
    assert images.pixels.shape == (1797, 12, 12, 3)
    assert (images.pixels[..., 0] == images.pixels[..., 2]).all()
    assert reported[-1] == (1797, 1797)
    assert reported == sorted(reported)
