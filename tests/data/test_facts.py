"""What is reported of a set is what was put into it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from image_sets import picture

from safelight.config.tree import Data
from safelight.data.images import Images
from safelight.data.prepare import open_images
from safelight.data.summary import summary


def row_of(images: Images, name: str) -> int:
    assert images.names is not None
    return next(row for row in range(len(images)) if images.names[row] == name)


def test_the_facts_are_those_of_the_pile(known: tuple[Images, Data]) -> None:
    images, data = known
    found = summary(images, data)
    assert found["images"] == len(images) == 49
    assert found["formats"] == {"PNG": 47, "JPEG": 1, "BMP": 1}
    assert found["common_sizes"][0] == [64, 48, 45]
    assert found["widths"] == [10, 64, 400]
    assert found["classes"] == {"many": 37, "some": 12}
    assert found["grey"] == 2
    assert found["duplicates"] == 2
    assert found["in_two_classes"] == 1
    assert found["blank_rows"] == [row_of(images, "many/blank.png")]
    assert found["enlarged"] == 2
    assert found["much_lost"] == 1
    assert found["extremes"]["widest"][0] == row_of(images, "many/panorama.png")
    assert found["extremes"]["smallest"][0] == row_of(images, "many/small.png")
    assert found["extremes"]["darkest"][0] == row_of(images, "many/blank.png")
    assert found["rejected"] == [["many/bad.png", found["rejected"][0][1]]]
    pixels = np.asarray(images.pixels, np.float64).reshape(-1, 3)
    assert found["mean"] == pytest.approx(pixels.mean(0).tolist())
    assert found["std"] == pytest.approx(pixels.std(0).tolist())
    assert (found["low"], found["high"]) == (pixels.min(), pixels.max())


def test_lossless_levels_are_exact(tmp_path: Path) -> None:
    picture(tmp_path / "set" / "a.png", 0)
    picture(tmp_path / "set" / "b.png", 255)
    found = open_images(Data(source=str(tmp_path / "set"), image_size=8, cache=str(tmp_path / "c"))).facts
    assert (found["mean"], found["std"], found["low"], found["high"]) == ([127.5], [127.5], 0, 255)
