"""What is stored for every image in addition to its pixels: one row of fixed size, measured when it is prepared."""

from __future__ import annotations

import hashlib

import numpy as np
from PIL import Image

from safelight.data.decode import FORMATS, DecodedImage

ROW = np.dtype(
    [
        ("content", "<u8", 2),  # hash of the final pixels: equal where the images are
        ("dhash", "<u8"),  # difference hash: near where they look alike
        ("bytes", "<u8"),  # of the file
        ("width", "<u4"),
        ("height", "<u4"),
        ("total", "<u8", 3),  # sum of each channel
        ("squares", "<u8", 3),
        ("low", "u1"),
        ("high", "u1"),
        ("format", "u1"),  # place in FORMATS, NO_FORMAT for numbers that were never a file
        ("marks", "u1"),
        ("crc32", "<u4"),  # of the stored pixels
    ]
)
NO_FORMAT = len(FORMATS)
GREY, TRANSPARENT, TURNED = 1, 2, 4  # marks
_DHASH_GRID = (9, 8)


def describe(picture: DecodedImage, size: int) -> np.ndarray:
    """The row of one decoded file of `size` bytes."""
    row = measure(picture.pixels[None])
    row["bytes"], row["width"], row["height"] = size, picture.width, picture.height
    row["format"] = FORMATS.index(picture.format) if picture.format in FORMATS else NO_FORMAT
    row["marks"] |= TRANSPARENT * picture.transparent | TURNED * picture.turned
    return row


def measure(pixels: np.ndarray) -> np.ndarray:
    """Rows of uint8 [n, side, side, 1 or 3], with what follows from the pixels alone."""
    count, height, width, channels = pixels.shape
    rows = np.zeros(count, ROW)
    rows["width"], rows["height"] = width, height
    rows["format"], rows["marks"] = NO_FORMAT, GREY * (channels == 1)
    histograms = np.empty((count, channels, 256), np.uint64)  # exact, and Pillow counts faster than NumPy adds
    for row, histogram, one in zip(rows, histograms, pixels, strict=True):
        image = Image.fromarray(one if channels == 3 else one[:, :, 0])
        histogram[:] = np.array(image.histogram()).reshape(channels, 256)
        row["content"] = np.frombuffer(hashlib.blake2b(one.data, digest_size=16).digest(), "<u8")
        row["dhash"] = difference_hash(image)
    levels = np.arange(256, dtype=np.uint64)
    rows["total"], rows["squares"] = histograms @ levels, histograms @ levels**2  # one channel spreads over three
    present = np.asarray(histograms.any(1))
    rows["low"], rows["high"] = present.argmax(1), 255 - present[:, ::-1].argmax(1)
    return rows


def difference_hash(image: Image.Image) -> int:
    """64 bits, each for whether a cell of a coarse grid is brighter than the one to its left."""
    cells = np.asarray(image.convert("L").resize(_DHASH_GRID, Image.Resampling.BOX))
    return int.from_bytes(np.packbits(cells[:, 1:] > cells[:, :-1]).tobytes(), "little")
