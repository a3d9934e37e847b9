"""Images that were passed from Python, stored once as plain bytes: a folder that is a source like any other."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from safelight.data.sources import Arrays
from safelight.errors import CheckpointError, DataError
from safelight.files import (
    TEMPORARY,
    Disk,
    create_file,
    make_directories,
    open_mapped,
    open_regular,
    read_plain,
    try_to_remove,
    write_atomically,
)

ENDING = ".own"
FACTS, PIXELS, SHAPES, LABELS = "own.json", "pixels.u8", "shapes.i4", "labels.i4"
CHUNK = 8 << 20  # bytes that are read at a time
LARGEST_FACTS = 64 << 20  # bytes
NO_LABEL = -1

Item = tuple[np.ndarray, Any]
"""uint8 [height, width, 1 or 3], and its label or None."""


def is_stored(path: Path) -> bool:
    return path.name.endswith(ENDING) and (path / FACTS).is_file()


def stored(path: Path) -> Arrays:
    try:
        disk = Disk(path)
        facts = json.loads(read_plain(path / FACTS, LARGEST_FACTS, disk))
        count, names = int(facts["count"]), tuple(map(str, facts["class_names"]))
        shapes = np.array(open_mapped(path / SHAPES, np.dtype("<i4"), (count, 3), disk))
        labels = np.array(open_mapped(path / LABELS, np.dtype("<i4"), (count,), disk)) if names else None
        fingerprint = str(facts["fingerprint"])
        fits = count > 0 and bool((shapes > 0).all()) and set(np.unique(shapes[:, 2])) <= {1, 3}
        whole = fits and int(np.prod(shapes.astype(object), axis=1).sum()) == (path / PIXELS).stat().st_size
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, CheckpointError) as error:
        raise DataError(f"{path} is not as it was written. Remove it and pass the images again.") from error
    if not whole or (labels is not None and not bool(((labels >= 0) & (labels < len(names))).all())):
        raise DataError(f"{path} is not as it was written. Remove it and pass the images again.")
    return Arrays(fingerprint, count, names, lambda: _chunks(path / PIXELS, shapes, labels))


def _chunks(
    file: Path, shapes: np.ndarray, labels: np.ndarray | None
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Runs of images of one shape."""
    with os.fdopen(open_regular(file, Disk(file.parent))[0], "rb") as opened:
        start = 0
        while start < len(shapes):
            height, width, channels = map(int, shapes[start])
            other = np.flatnonzero((shapes[start:] != shapes[start]).any(axis=1))
            most = max(1, CHUNK // (height * width * channels))
            count = min(most, int(other[0]) if len(other) else len(shapes) - start)
            pixels = np.frombuffer(opened.read(count * height * width * channels), np.uint8)
            yield (
                pixels.reshape(count, height, width, channels),
                None if labels is None else labels[start : start + count],
            )
            start += count


def store(items: Iterable[Item], folder: Path, class_names: Sequence[str] | None) -> tuple[Path, int]:
    """Writes images once into a folder that is named after their content; (folder, how many). The same images in
    the same order have the same folder."""
    temporary = folder / f"{TEMPORARY}{secrets.token_hex(4)}{ENDING}"
    make_directories(folder)
    disk = Disk(folder)
    disk.make_directory(temporary)
    try:
        digest, shapes, labels = hashlib.sha256(), list[tuple[int, ...]](), list[Any]()
        with closing(create_file(temporary / PIXELS, disk)) as file:
            for pixels, label in items:
                content = np.ascontiguousarray(pixels).tobytes()
                file.write(content)
                digest.update(content)
                shapes.append(pixels.shape)
                labels.append(label)
        if not shapes:
            raise DataError("The data that was passed holds no image.")
        numbers, names = _numbered(labels, class_names)
        write_atomically(temporary / SHAPES, np.asarray(shapes, "<i4").tobytes(), disk)
        write_atomically(temporary / LABELS, np.asarray(numbers, "<i4").tobytes(), disk)
        digest.update(np.asarray(shapes, "<i4").tobytes() + np.asarray(numbers, "<i4").tobytes())
        digest.update(json.dumps(names).encode())
        facts = {"count": len(shapes), "class_names": names, "fingerprint": digest.hexdigest()}
        write_atomically(temporary / FACTS, json.dumps(facts, indent=1).encode(), disk)
        final = folder / f"images-{digest.hexdigest()[:12]}{ENDING}"
        if not is_stored(final):
            try_to_remove(final, disk)
            disk.rename(temporary, final)
            disk.sync_directory(folder)
        return final, len(shapes)
    except OSError as error:
        raise DataError(
            f"The images cannot be stored in {folder}: {error.strerror or error}. Make room there, or choose another "
            "place with data.cache (or SAFELIGHT_CACHE in the environment)."
        ) from error
    finally:
        try_to_remove(temporary, disk)


def _numbered(labels: list[Any], class_names: Sequence[str] | None) -> tuple[list[int], list[str]]:
    """Labels as numbers from 0, and what each stands for."""
    given = {label for label in labels if label is not None}
    if not given:
        return [NO_LABEL] * len(labels), []
    missing = next((place for place, label in enumerate(labels) if label is None), None)
    if missing is not None:
        raise DataError(f"Image {missing} has no label, but others have one. Give each image a label, or none.")
    if class_names is not None and all(isinstance(each, int) and 0 <= each < len(class_names) for each in given):
        return labels, [str(name) for name in class_names]
    ordered = sorted(given, key=lambda label: (isinstance(label, str), label))
    number = {label: place for place, label in enumerate(ordered)}
    return [number[label] for label in labels], [str(label) for label in ordered]
