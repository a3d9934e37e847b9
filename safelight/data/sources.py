"""Owns where images come from: a known set, an idx file or a folder becomes one array of equal squares."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from safelight.config.tree import Data
from safelight.data.decode import EXTENSIONS, Unreadable, as_pixels, read_idx, read_image, square
from safelight.errors import DataError

KNOWN = ("digits", "fashion-mnist")
FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
FASHION_CLASSES = (
    "t-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
SHOWN = 5  # rejected files named in an error message

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Images:
    """A whole set in memory, in a fixed order."""

    pixels: np.ndarray
    """uint8 [n, side, side, channels], final size."""
    labels: np.ndarray | None
    """int64 [n], or None when the source has no labels."""
    class_names: tuple[str, ...]
    """What each label stands for; empty when unlabelled."""
    names: tuple[str, ...] | None
    """File of each image, relative to the folder; None where there are no files."""
    rejected: tuple[tuple[str, str], ...]
    """(file, reason in words) of every file that was left out."""
    fingerprint: str
    """sha256 over the shape and bytes of the pixels and the labels, in order."""


def open_images(data: Data, progress: Progress | None = None) -> Images:
    """Reads the whole of `data.source`; `digits` is the known set even where a folder ./digits exists."""
    report = progress or (lambda done, total: None)
    if data.source == "digits":
        images = _digits(data, report)
    elif data.source == "fashion-mnist":
        images = _fashion_mnist(data, report)
    else:
        path = os.path.expanduser(data.source)
        if os.path.isdir(path):
            images = _folder(Path(path), data, report)
        elif os.path.isfile(path):
            images = _idx(Path(path), data, report)
        else:
            raise DataError(_not_found(data.source))
    if data.classes is not None and len(images.class_names) > data.classes:
        raise DataError(
            f"data.classes is {data.classes}, but {data.source} has {len(images.class_names)} classes. "
            f"Set it to {len(images.class_names)} or leave it unset."
        )
    return images


def fingerprint(pixels: np.ndarray, labels: np.ndarray | None) -> str:
    """sha256 over shape and bytes, the same on every machine."""
    digest = hashlib.sha256(f"{pixels.shape}".encode())
    digest.update(np.ascontiguousarray(pixels).data)
    if labels is not None:
        digest.update(labels.astype("<i8").tobytes())
    return digest.hexdigest()


def _digits(data: Data, report: Progress) -> Images:
    from sklearn.datasets import load_digits  # takes a second, and only this source needs it

    values, labels = load_digits(return_X_y=True)
    pixels = np.rint(np.asarray(values) * 255 / 16).astype(np.uint8).reshape(-1, 8, 8)
    return _from_arrays(pixels, np.asarray(labels), tuple(str(digit) for digit in range(10)), data, report)


def _fashion_mnist(data: Data, report: Progress) -> Images:
    if not FASHION_MNIST.is_file():
        raise DataError(
            f"fashion-mnist is expected in {FASHION_MNIST} and is not there. "
            "Install it with: apt-get install dataset-fashion-mnist. "
            "If you have the files elsewhere, give the path of train-images-idx3-ubyte.gz instead."
        )
    pixels, labels = _idx_images(FASHION_MNIST), _idx_labels(FASHION_MNIST)
    return _from_arrays(pixels, labels, FASHION_CLASSES, data, report)


def _idx(path: Path, data: Data, report: Progress) -> Images:
    pixels, labels = _idx_images(path), _idx_labels(path)
    if labels is None:
        return _from_arrays(pixels, None, (), data, report)
    values, labels = np.unique(labels, return_inverse=True)  # some sets count from 1
    return _from_arrays(pixels, labels, tuple(str(value) for value in values), data, report)


def _idx_images(path: Path) -> np.ndarray:
    pixels = read_idx(path)
    colour = pixels.ndim == 4 and pixels.shape[3] in (1, 3)
    if pixels.dtype != np.uint8 or not (pixels.ndim == 3 or colour) or not pixels.size:
        raise DataError(
            f"The idx file {path} should hold images: bytes of shape n x height x width, or that x 3. "
            f"It holds {pixels.dtype.name} of shape {' x '.join(map(str, pixels.shape))}. "
            "Give the file whose name has 'images' in it; labels are found beside it."
        )
    return pixels


def _idx_labels(path: Path) -> np.ndarray | None:
    name = path.name.removesuffix(".gz")
    if "images" not in name:
        return None
    name = name.replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1")
    for beside in (path.with_name(name), path.with_name(name + ".gz")):
        if beside.is_file():
            labels = read_idx(beside)
            if labels.ndim != 1 or labels.dtype.kind not in "iu":
                raise DataError(
                    f"The labels in {beside} should be one whole number per image. They are "
                    f"{labels.dtype.name} of shape {' x '.join(map(str, labels.shape))}. "
                    "Replace the file, or move it away to train without labels."
                )
            return labels
    return None


def _from_arrays(
    pixels: np.ndarray, labels: np.ndarray | None, class_names: tuple[str, ...], data: Data, report: Progress
) -> Images:
    if labels is not None and len(labels) != len(pixels):
        raise DataError(
            f"{data.source} has {len(pixels):,} images and {len(labels):,} labels, which should be equal. "
            "The two files do not belong together: download both again."
        )
    pixels = _squares(pixels if pixels.ndim == 4 else pixels[..., None], data, report)
    labels = None if labels is None else labels.astype(np.int64)
    class_names = () if labels is None else class_names
    return Images(pixels, labels, class_names, None, (), fingerprint(pixels, labels))


def _squares(pixels: np.ndarray, data: Data, report: Progress) -> np.ndarray:
    count, height, width, source_channels = pixels.shape
    side, channels = data.image_size, data.channels or source_channels
    if (height, width, source_channels) == (side, side, channels):
        report(count, count)
        return pixels
    squares = np.empty((count, side, side, channels), np.uint8)
    for index, one in enumerate(pixels):
        image = Image.fromarray(one if source_channels == 3 else one[:, :, 0])
        squares[index] = as_pixels(square(image.convert("L") if channels == 1 else image, data))
        if index % 64 == 63 or index + 1 == count:
            report(index + 1, count)
    return squares


def _folder(top: Path, data: Data, report: Progress) -> Images:
    files, rejected, others = _walk(top)
    if not files:
        raise DataError(_nothing_inside(top, rejected, others))
    pixels = np.empty((len(files), data.image_size, data.image_size, data.channels or 3), np.uint8)
    kept: list[str] = []
    grey = True
    for index, file in enumerate(files):
        try:
            one = read_image(top / file, data)
            pixels[len(kept)] = one  # one grey channel spreads over three
            grey = grey and one.shape[2] == 1
            kept.append(file)
        except Unreadable as reason:
            rejected.append((_shown(file), str(reason)))
        report(index + 1, len(files))
    _refuse_too_many(top, rejected, len(kept), data.max_bad)
    pixels = pixels[: len(kept)]
    if data.channels is None and grey:
        pixels = np.ascontiguousarray(pixels[..., :1])
    labels, class_names = _classes(kept)
    names = tuple(map(_shown, kept))
    return Images(pixels, labels, class_names, names, tuple(rejected), fingerprint(pixels, labels))


def _walk(top: Path) -> tuple[list[str], list[tuple[str, str]], Counter[str]]:
    """Image files under a folder, sorted; folders that cannot be listed; endings of all other files.

    Every real folder is read once, however many links lead to it, and under its own name if it has one.
    """
    files: list[str] = []
    rejected: list[tuple[str, str]] = []
    others: Counter[str] = Counter()
    seen: set[tuple[int, int]] = set()
    folders, links = [""], list[str]()
    while folders or links:
        folder = folders.pop() if folders else links.pop(0)
        try:
            entries = _entries(top / folder, seen)
        except OSError as error:
            rejected.append((_shown(folder) or str(top), f"the folder cannot be listed: {error.strerror}"))
            continue
        for entry in entries:
            name, ending = os.path.join(folder, entry.name), os.path.splitext(entry.name)[1].lower()
            if os.path.isdir(entry.path):  # entry.is_dir() raises on a link to itself
                (links if entry.is_symlink() else folders).append(name)
            elif ending in EXTENSIONS:
                files.append(name)
            else:
                others[ending or "no ending"] += 1
    return sorted(files), rejected, others


def _entries(folder: Path, seen: set[tuple[int, int]]) -> list[os.DirEntry[str]]:
    """What lies in a folder not seen before, by name; hidden entries are thumbnails, trash and forks."""
    status = os.stat(folder)
    if (status.st_dev, status.st_ino) in seen:
        return []
    seen.add((status.st_dev, status.st_ino))
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _classes(files: list[str]) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Top-level subfolders are classes; images beside them, if any, are the class named '.'."""
    folders = [file.split(os.sep, 1)[0] if os.sep in file else "." for file in files]
    class_names = sorted(set(folders))
    if class_names == ["."]:
        return None, ()
    number = {name: index for index, name in enumerate(class_names)}
    labels = np.array([number[folder] for folder in folders], np.int64)
    return labels, tuple(map(_shown, class_names))


def _refuse_too_many(top: Path, rejected: list[tuple[str, str]], kept: int, max_bad: float) -> None:
    bad, total = len(rejected), len(rejected) + kept
    if bad <= max_bad * total and kept:
        return
    first = "".join(f"\n  {name}: {reason}" for name, reason in rejected[:SHOWN])
    more = f"\n  and {bad - SHOWN:,} more" if bad > SHOWN else ""
    raise DataError(
        f"{bad:,} of {total:,} files in {top} cannot be used ({bad / total:.1%}); "
        f"data.max_bad allows {max_bad:.1%}.{first}{more}\n"
        "Repair or remove them" + (", or raise data.max_bad." if kept else ": none is left to train on.")
    )


def _nothing_inside(top: Path, rejected: list[tuple[str, str]], others: Counter[str]) -> str:
    expected = f"{top} should hold images ({' '.join(ending[1:] for ending in EXTENSIONS)})"
    if rejected:
        return f"{expected}, but {rejected[0][0]}: {rejected[0][1]}. Check its permissions."
    if not others:
        return f"{expected} and is empty. Put images into it or give another folder."
    came = ", ".join(f"{count:,} {ending}" for ending, count in others.most_common(4))
    advice = "Convert them to one of these, or give another folder."
    if idx := sorted(path.name for path in top.glob("*images*idx*")):
        advice = f"To read an idx file, name it: {top / idx[-1]}"
    return f"{expected} and holds {sum(others.values()):,} other files ({came}). {advice}"


def _not_found(source: str) -> str:
    here = os.path.dirname(os.path.expanduser(source)) or "."
    try:
        beside = [os.path.join(os.path.dirname(source), name) for name in os.listdir(here)]
    except (OSError, ValueError):
        beside = []
    near = difflib.get_close_matches(source, [*KNOWN, *beside], n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return (
        f"data.source is {source!r}, which is no known set ({', '.join(KNOWN)}) and no file or folder "
        f"in {os.path.abspath(here)}.{meant} Give a known set, an idx file or a folder of images."
    )


def _shown(name: str) -> str:
    """A file name that can be printed and stored even when it is no valid text."""
    return name.encode("utf-8", "backslashreplace").decode()
