"""Owns where pictures come from: a word or a path becomes a set of files, or arrays that need no decoding."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from safelight.config.tree import Data
from safelight.data.decode import UnreadableImage
from safelight.errors import DataError

KNOWN = {"digits": 1, "shapes": 3, "fashion-mnist": 1}  # sets that have a name, and their channels


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a source, as far as it is known without opening it."""

    name: str
    """Relative to the source, with / between folders; may hold bytes that are no text (surrogateescape)."""
    size: int
    """Bytes; -1 where the source does not say."""
    modified: int
    """Nanoseconds since 1970, or whatever else changes when the content does."""
    label: str | None
    """Name of its class."""


class Files(Protocol):
    """A set of encoded pictures. Opened anew in every process that decodes."""

    passed_over: list[tuple[str, str]]
    """(name, reason) of what `entries` could not list, after it was exhausted."""

    def entries(self) -> Iterator[SourceFile]:
        """Every file that may be a picture, in any order. Nothing is kept in memory."""
        ...

    def read(self, name: str, most: int) -> bytes:
        """The content of one entry; UnreadableImage if it cannot be had or has more than `most` bytes."""
        ...

    def nothing_inside(self) -> str:
        """The error message when there was no entry at all."""
        ...


@dataclass(frozen=True, slots=True)
class Arrays:
    """Pictures that are numbers already and cannot be broken."""

    stamp: str
    """Changes when the pictures do."""
    count: int
    class_names: tuple[str, ...]
    """What each label stands for; empty when unlabelled."""
    chunks: Callable[[], Iterator[tuple[np.ndarray, np.ndarray | None]]]
    """uint8 [n, height, width, 1 or 3] and whole numbers [n] or None, a few megabytes at a time."""


def open_source(data: Data) -> Files | Arrays:
    """`digits` is the known set even where a folder ./digits exists."""
    from safelight.data.sources import archive, arrow, digits, idx, image_folder, shapes, stored

    openers = {"digits": digits.digits, "shapes": shapes.shapes, "fashion-mnist": idx.fashion_mnist}
    word = data.source.partition(":")[0]
    if word in openers:
        return openers[word](data)
    place = os.path.expanduser(data.source)
    path = Path(place)
    if stored.is_stored(path):
        return stored.stored(path)
    if os.path.isdir(place):  # not path.is_dir(): an empty word would be the folder we are in
        return arrow.Dataset(path) if arrow.is_dataset(path) else image_folder.ImageFolder(path)
    if os.path.isfile(place):
        return archive.Archive(path) if archive.is_zip(path) else idx.idx(path)
    raise DataError(not_found(data.source))


def refuse_large(content: bytes, most: int) -> bytes:
    """What was read with one byte more than is allowed, if that byte is not there."""
    if len(content) > most:
        raise UnreadableImage(f"it has more bytes than data.max_megabytes allows ({most / 1e6:g} MB)")
    return content


def is_known(source: str) -> bool:
    """`shapes:20000` is shapes, so many of them."""
    return source.partition(":")[0] in KNOWN


def not_found(source: str) -> str:
    if source.endswith(".own"):
        return (
            f"{source} is gone, where images were kept that were passed from Python. Pass the same images again: "
            "safelight.resume(run, data=…)."
        )
    here, candidates = os.path.dirname(os.path.expanduser(source)) or ".", [*KNOWN]
    with suppress(OSError, ValueError):
        candidates += [os.path.join(os.path.dirname(source), name) for name in os.listdir(here)]
    if os.path.lexists(os.path.expanduser(source)):
        return f"data.source is {source!r}, a pipe, a device or a link that leads nowhere. Give a file or a folder."
    near = difflib.get_close_matches(source, candidates, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return (
        f"data.source is {source!r}, which is no known set ({', '.join(KNOWN)}) and no file or folder "
        f"in {os.path.abspath(here)}.{meant} Give a known set, a folder of images, a zip of one, or an idx file."
    )
