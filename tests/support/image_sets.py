"""Small sets of images on disk, and how tests read them."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
from PIL import Image

from safelight.config.tree import Data
from safelight.data.batches import Augmentation, Batches
from safelight.data.images import Images
from safelight.data.prepare import open_images


def picture(path: Path, colour: int | tuple[int, int, int] = 100, size: tuple[int, int] = (8, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if isinstance(colour, int) else "RGB", size, colour).save(path)


def read_set(source: Path | str, **settings: object) -> Images:
    return open_images(Data(source=str(source), **({"image_size": 8} | settings)))  # type: ignore[arg-type]


def names_of(images: Images) -> tuple[str, ...]:
    assert images.names is not None
    return tuple(images.names[row] for row in range(len(images)))


def write_idx(path: Path, array: np.ndarray, packed: bool = False) -> Path:
    scalar = {"uint8": 0x08, "int32": 0x0C, "float32": 0x0D}[array.dtype.name]
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, scalar, array.ndim, *array.shape)
    body = header + array.astype(array.dtype.newbyteorder(">")).tobytes()
    path.write_bytes(gzip.compress(body) if packed else body)
    return path


NOISE = np.random.default_rng(0).integers(0, 256, (6, 8, 8), np.uint8)


PATIENCE = 300.0  # seconds: ends a test that hangs, and no other


def data_of(source: Path | str, cache_folder: Path, **settings: object) -> Data:
    given = {"image_size": 16, "max_bad": 0.2, "max_seconds": PATIENCE} | settings
    return Data(source=str(source), cache=str(cache_folder), **given)  # type: ignore[arg-type]


def batch_bytes(images: Images, steps: int = 12) -> bytes:
    views = Augmentation(flip=True, side=14, jitter=0.2)
    batches = Batches(images, seed=3, batch_size=16, views=views, balance=True)
    return b"".join(batches.rows(step, 0, 16).images.numpy().tobytes() for step in range(steps))
