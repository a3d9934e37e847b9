"""Writes a cache: images, labels and rows are appended, then flushed, read back and compared."""

from __future__ import annotations

import hashlib
import zlib
from array import array
from pathlib import Path
from typing import BinaryIO

import numpy as np

from safelight.data.cache import LABELS, PIXELS, ROWS
from safelight.data.rows import ROW
from safelight.files import DISK, Disk, create_file, open_mapped, write_atomically

BLOCK = 8 << 20  # bytes read back at a time


class CacheWriter:
    """Appends images, labels and rows to a cache that is being built."""

    def __init__(self, folder: Path, *, side: int, channels: int | None) -> None:
        self.folder, self.side = folder, side
        self.channels = channels or 1  # grey until the first coloured image comes
        self.count = 0
        self._disk = Disk(folder)
        self._fixed = channels is not None
        self._labels = array("i")
        self._pixels: BinaryIO = create_file(folder / PIXELS, self._disk)
        self._rows: BinaryIO = create_file(folder / ROWS, self._disk)

    def close(self) -> None:
        self._pixels.close()
        self._rows.close()

    def add(self, rows: np.ndarray, pixels: np.ndarray, labels: np.ndarray | list[int] | None) -> None:
        """`rows` [n], `pixels` [n, side, side, 1 or 3]; one channel spreads over three."""
        if pixels.shape[3] > self.channels:
            assert not self._fixed, "decoded to another number of channels than configured"
            self._widen()
        stored = np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:3], self.channels)))
        rows = rows.copy()
        rows["crc32"] = _checksums(stored)
        self._pixels.write(stored.data)
        self._rows.write(rows.tobytes())
        if labels is not None:
            self._labels.extend(int(label) for label in labels)
        self.count += len(rows)

    def renumber(self, class_names: list[str]) -> list[str]:
        """Sorts the classes by name and drops those of which no image was left; their names."""
        used = sorted(set(self._labels), key=lambda number: class_names[number])
        new = {old: number for number, old in enumerate(used)}
        self._labels = array("i", (new[label] for label in self._labels))
        return [class_names[number] for number in used]

    def finish(self, class_names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Everything on the device and read back: (pixels, rows, labels)."""
        labels = np.array(self._labels, "<i4") if class_names else None
        if labels is not None:
            write_atomically(self.folder / LABELS, labels.tobytes(), self._disk)
        for file in (self._pixels, self._rows):
            file.flush()
            DISK.sync(file.fileno())
        rows = open_mapped(self.folder / ROWS, ROW, (self.count,), self._disk)
        shape = (self.count, self.side, self.side, self.channels)
        return open_mapped(self.folder / PIXELS, np.dtype(np.uint8), shape, self._disk), rows, labels

    def _widen(self) -> None:
        """All that was written is grey, and turns out to belong to a set of colour: written once more."""
        self._pixels.flush()
        self._rows.flush()
        wide = create_file(self.folder / f"{PIXELS}-wide", self._disk)  # it takes the place of the other
        rows = np.memmap(self._rows, ROW, "r+", shape=(self.count,)) if self.count else np.empty(0, ROW)
        each = self.side * self.side
        self._pixels.seek(0)
        for row in rows:
            grey = np.frombuffer(self._pixels.read(each), np.uint8).reshape(self.side, self.side, 1)
            colour = np.ascontiguousarray(np.broadcast_to(grey, (self.side, self.side, 3)))
            row["crc32"] = zlib.crc32(colour.data)
            wide.write(colour.data)
        if isinstance(rows, np.memmap):
            rows.flush()
        self._pixels.close()
        self._disk.rename(self.folder / f"{PIXELS}-wide", self.folder / PIXELS)
        self._pixels, self.channels = wide, 3


def fingerprint(pixels: np.ndarray, labels: np.ndarray | None, rows: np.ndarray | None = None) -> str:
    """sha256 over shape and bytes, the same on every machine; with `rows`, every image is compared on the way."""
    digest = hashlib.sha256(f"{pixels.shape}".encode())
    step = max(1, BLOCK // max(1, pixels[0].size if len(pixels) else 1))
    for start in range(0, len(pixels), step):
        block = np.ascontiguousarray(pixels[start : start + step])
        digest.update(block.data)
        if rows is not None and _checksums(block) != rows["crc32"][start : start + step].tolist():
            raise OSError(5, "what was written could not be read back")
    if labels is not None:
        digest.update(labels.astype("<i8").tobytes())
    return digest.hexdigest()


def _checksums(pixels: np.ndarray) -> list[int]:
    return [zlib.crc32(image.data) for image in pixels]
