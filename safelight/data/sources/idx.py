"""idx files, the format of MNIST: gzipped or not, with labels in a second file."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from safelight.config.tree import Data
from safelight.data.decode import EXTENSIONS
from safelight.data.sources import Arrays
from safelight.errors import DataError

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
FASHION_CLASSES = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"
)  # fmt: skip
CHUNK = 4 << 20
LARGEST_LABELS = 1 << 28
_SCALARS = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


@dataclass(frozen=True, slots=True)
class Header:
    shape: tuple[int, ...]
    scalar: np.dtype

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.scalar.itemsize

    @property
    def dimensions(self) -> str:
        return " x ".join(map(str, self.shape))


def fashion_mnist(data: Data) -> Arrays:
    if not FASHION_MNIST.is_file():
        raise DataError(
            f"fashion-mnist is expected in {FASHION_MNIST} and is not there. "
            "Install it with: apt-get install dataset-fashion-mnist. "
            "If you have the files elsewhere, give the path of train-images-idx3-ubyte.gz instead."
        )
    return idx(FASHION_MNIST, FASHION_CLASSES)


def idx(path: Path, class_names: tuple[str, ...] | None = None) -> Arrays:
    """`class_names`: unset, the values of the labels."""
    header, labels_file = _image_header(path), _labels_file(path)
    labels = None if labels_file is None else _read_labels(labels_file)
    if labels is not None and len(labels) != header.shape[0]:
        raise DataError(
            f"{path} has {header.shape[0]:,} images and its labels file has {len(labels):,} labels. "
            "The two files do not belong together: download both again."
        )
    if labels is not None and class_names is None:
        values, labels = np.unique(labels, return_inverse=True)  # some sets count from 1
        class_names = tuple(map(str, values))
    files = [(file.name, file.stat()) for file in (path, labels_file) if file is not None]
    stamp = "/".join(f"{name}:{status.st_size}:{status.st_mtime_ns}" for name, status in files)
    return Arrays(stamp, header.shape[0], class_names or (), lambda: _chunks(path, header, labels))


def _chunks(path: Path, header: Header, labels: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    count, height, width, channels = (*header.shape, 1)[:4]
    step = max(1, CHUNK // (height * width * channels))
    for start, content in zip(range(0, count, step), _pieces(path, step), strict=True):
        pixels = np.frombuffer(content, np.uint8).reshape(-1, height, width, channels)
        yield pixels, None if labels is None else labels[start : start + step]


def _image_header(path: Path) -> Header:
    with _opened(path) as (_, header):
        shape = header.shape
    colour = len(shape) == 4 and shape[3] in (1, 3)
    if header.scalar != np.uint8 or not (len(shape) == 3 or colour) or not math.prod(shape):
        raise DataError(
            f"The idx file {path} should hold images: bytes of shape n x height x width, or that x 3. "
            f"It holds {header.scalar.name} of shape {header.dimensions}. "
            "Give the file whose name has 'images' in it; its labels are found by their name."
        )
    return header


def _labels_file(path: Path) -> Path | None:
    name = path.name.removesuffix(".gz")
    if "images" not in name:
        return None
    name = name.replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1")
    return next((file for file in (path.with_name(name), path.with_name(name + ".gz")) if file.is_file()), None)


def _read_labels(path: Path) -> np.ndarray:
    """One whole number per image."""
    with _opened(path) as (_, header):
        if len(header.shape) != 1 or header.scalar.kind not in "iu" or header.bytes > LARGEST_LABELS:
            raise DataError(
                f"The labels in {path} should be one whole number per image. They are "
                f"{header.scalar.name} of shape {header.dimensions}. "
                "Replace the file, or move it away to train without labels."
            )
    return np.frombuffer(b"".join(_pieces(path, CHUNK)), header.scalar).astype(np.int64)


def _pieces(path: Path, step: int) -> Iterator[bytearray]:
    """The values of an idx file, `step` rows at a time; DataError unless they are as many as its header declares."""
    with _opened(path) as (file, header):
        count, each = header.shape[0], math.prod(header.shape[1:]) * header.scalar.itemsize
        for start in range(0, count, step):
            wanted = min(step, count - start) * each
            content = _read(file, wanted)
            if len(content) != wanted:
                raise DataError(_wrong_length(path, header, f"{start * each + len(content):,}"))
            yield content
        if file.read(1):
            raise DataError(_wrong_length(path, header, f"more than {header.bytes:,}"))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, Header]]:
    """An idx file, positioned after its header; read errors become DataError, also inside the block."""
    try:
        with open(path, "rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else open(path, "rb") as file:
            yield cast(BinaryIO, file), _header(path, cast(BinaryIO, file))
    except (OSError, EOFError, struct.error, zlib.error) as error:
        raise DataError(
            f"The idx file {path} cannot be read to its end: {error}. Copy or download it again."
        ) from error


def _header(path: Path, file: BinaryIO) -> Header:
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _SCALARS or start[3] == 0:
        raise DataError(_no_idx(path, start))
    return Header(struct.unpack(f">{start[3]}I", file.read(4 * start[3])), np.dtype(_SCALARS[start[2]]))


def _read(file: BinaryIO, count: int) -> bytearray:
    """In pieces: a header that lies about its size must not reserve the memory it claims."""
    body = bytearray()
    while len(body) < count and (piece := file.read(min(1 << 20, count - len(body)))):
        body += piece
    return body


def _wrong_length(path: Path, header: Header, follow: str) -> str:
    return (
        f"The header of {path} declares {header.dimensions} values, {header.bytes:,} bytes; {follow} follow. "
        "The file is damaged or no idx file: copy or download it again."
    )


def _no_idx(path: Path, start: bytes) -> str:
    advice = "Give an idx file (train-images-idx3-ubyte or its .gz), a folder of images, a zip of one, or a known set."
    if path.suffix.lower() in EXTENSIONS:
        advice = f"To train on images, give the folder that holds them: {path.parent}"
    came = start.hex(" ") or "nothing, the file is empty"
    return f"{path} is no idx file: its first bytes should be 00 00 08 03 and are {came}. {advice}"
