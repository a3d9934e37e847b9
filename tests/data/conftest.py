"""The same pictures for each test, whichever tests ran before it."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import oddities
import pytest
from oddities import make_broken, make_good, photograph
from PIL import Image, ImageEnhance

from safelight.config.tree import Data
from safelight.data.images import Images
from safelight.data.prepare import open_images


def begin_anew() -> None:
    oddities.NOISE = np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def same_pictures_for_the_module() -> None:
    begin_anew()


@pytest.fixture(autouse=True)
def same_pictures(same_pictures_for_the_module: None) -> None:
    begin_anew()


@pytest.fixture(scope="module")
def pile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str], set[str]]:
    top = tmp_path_factory.mktemp("pile")
    good = make_good(top)
    return top, good, make_broken(top)


def save(image: Image.Image, path: Path, **how: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **how)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Images, Data]:
    """40 photographs, and one of everything that is reported."""
    top = tmp_path_factory.mktemp("known")
    pictures = [photograph(64, 48) for _ in range(40)]
    for number, picture in enumerate(pictures):
        save(picture, top / ("many" if number < 30 else "some") / f"{number:02}.png")
    save(pictures[0], top / "many" / "copy.bmp")  # the same pixels in another file
    save(pictures[1], top / "some" / "contradiction.png")
    buffer = io.BytesIO()
    pictures[2].save(buffer, "JPEG", quality=50)
    (top / "many" / "again.jpg").write_bytes(buffer.getvalue())
    save(ImageEnhance.Brightness(pictures[3]).enhance(1.1), top / "some" / "brighter.png")
    noisy = np.asarray(pictures[4]) + np.random.default_rng(4).normal(0, 70, (48, 64, 3))  # near, but another picture
    save(Image.fromarray(noisy.clip(0, 255).astype(np.uint8)), top / "many" / "noisy.png")
    save(Image.new("RGB", (64, 64), (3, 3, 3)), top / "many" / "blank.png")
    save(photograph(400, 20), top / "many" / "panorama.png")
    save(photograph(10, 12), top / "many" / "small.png")
    save(photograph(48, 64).convert("L"), top / "many" / "grey.png")
    (top / "many" / "bad.png").write_bytes(b"bad")
    data = Data(source=str(top), image_size=24, cache=str(tmp_path_factory.mktemp("cache")))
    return open_images(data), data
