"""A prepared set of images: pixels on disk, read by row and checked when first read; and its held-out part."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from safelight.data.listing import Names
from safelight.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """A whole set in a fixed order. Nothing of it is in memory but what was read last."""

    pixels: np.ndarray
    """uint8 [n, side, side, channels]; the side is larger than the model's where random windows are cut."""
    labels: np.ndarray | None
    """Whole numbers [n], or None when the source has no labels."""
    class_names: tuple[str, ...]
    """What each label stands for; empty when unlabelled."""
    fingerprint: str
    """sha256 over the shape and bytes of the pixels and the labels, in order."""
    names: Names | None = None
    """File of each image, relative to its source; None if there are no files."""
    rejected: Sequence[tuple[str, str]] = ()
    """(file, reason) of every file that was left out."""
    rows: np.ndarray | None = None
    """Facts about each image (`rows.ROW`), its checksum among them; None for images that only live in memory."""
    near: np.ndarray | None = None
    """[m, 2] rows of images that look alike."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What was found out about the set as a whole (`facts.find_facts`)."""
    _checked: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_checked", np.zeros(len(self.pixels), np.bool_))

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, ids: np.ndarray) -> np.ndarray:
        """A copy of these images, each compared with its checksum the first time it is read."""
        self._refuse_cut()
        pixels = self.pixels.take(ids, axis=0)
        if self.rows is not None:
            for place in np.flatnonzero(~self._checked[ids]):
                row = int(ids[place])
                if zlib.crc32(pixels[place].data) != self.rows["crc32"][row]:
                    name = "" if self.names is None else f" ({self.names[row]})"
                    raise DataError(
                        f"Image {row}{name} in the cache is not what was written there: its checksum differs. "
                        "The disk or another program changed it. Remove the folder of the cache "
                        f"({getattr(self.pixels, 'filename', 'data.cache')}) and start again; the images are read anew."
                    )
                self._checked[row] = True
        return pixels

    def _refuse_cut(self) -> None:
        """A mapped file that was made shorter meanwhile would end the process (SIGBUS), without a word."""
        for array in (self.pixels, self.rows):
            if isinstance(array, np.memmap) and array.filename is not None:
                try:
                    size = os.stat(array.filename).st_size
                except OSError:
                    continue  # deleted: what is mapped stays
                if size < array.nbytes:
                    raise DataError(
                        f"{array.filename} in the cache has {size:,} bytes instead of {array.nbytes:,}: another "
                        "program cut it while it was in use. Remove the folder of the cache and start again; the "
                        "images are read anew."
                    )


USUAL_SHARE, MIN_IMAGES_TO_HOLD_OUT = 0.05, 400  # held out unless it is said otherwise, of sets of so many images


def hold_out(images: Images, share: float | None) -> tuple[np.ndarray | None, np.ndarray]:
    """(rows to train on, or None for all; rows that are held out).

    The content alone decides: copies of one picture fall on one side, and adding files moves none of the others.
    """
    if share is None:
        share = USUAL_SHARE if len(images) >= MIN_IMAGES_TO_HOLD_OUT and images.rows is not None else 0.0
    if share == 0:
        return None, np.empty(0, np.int64)
    assert images.rows is not None, "only prepared images can be split"
    out = images.rows["content"][:, 0] < np.uint64(min(share * 2**64, 2**64 - 1))
    train, held = np.flatnonzero(~out), np.flatnonzero(out)
    if not len(train) or not len(held):
        side, other = ("train on", "held out") if not len(train) else ("hold out", "trained on")
        raise DataError(
            f"data.held_out is {share:g}, which leaves no image to {side}: all {len(images):,} are {other}. "
            "Use another share, or 0 to train on all of them."
        )
    return train, held


def straddling(images: Images, held: Iterable[int]) -> int:
    """Pairs of images that look alike, one of them held out and the other trained on."""
    if images.near is None:
        return 0
    out = np.zeros(len(images), np.bool_)
    out[np.fromiter(held, np.int64)] = True
    return int((out[images.near[:, 0]] != out[images.near[:, 1]]).sum())
