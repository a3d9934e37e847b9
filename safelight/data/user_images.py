"""Images that are passed from Python: a tensor, an array, a Dataset, a DataLoader or any iterable becomes a source."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from safelight.config.tree import Data
from safelight.data import cache
from safelight.data.cache import Say
from safelight.data.sources.stored import Item, store
from safelight.errors import DataError
from safelight.files import DISK

LOOKED_AT = 256  # images that the range of values is taken from
CHECKED_EVERY, RESERVE = 256, 1 << 28  # images between looks at the disk, and bytes that have to be free
SLACK = 1e-3  # beyond a range, as resizing and rounding leave it
KEYS, LABEL_KEYS = ("image", "img", "images", "pixel_values"), ("label", "labels", "class", "y")
ACCEPTED = (
    "a name, a folder or file, a tensor or array of images, a pair (images, labels), a Dataset, a DataLoader, or an "
    "iterable of images or (image, label)"
)


@dataclass(frozen=True, slots=True)
class Range:
    """How values become bytes."""

    words: str
    low: float
    high: float

    def to_bytes(self, pixels: np.ndarray, place: int) -> np.ndarray:
        low, high = float(pixels.min()), float(pixels.max())
        if not (self.low - SLACK <= low and high <= self.high + SLACK):  # also where one is not a number
            raise DataError(
                f"Image {place} has values from {low:g} to {high:g}, but the others were taken for {self.words}. Scale "
                "all images alike, to [-1, 1] or [0, 1], or pass bytes (uint8)."
            )
        scaled = (pixels.astype(np.float64) - self.low) * (255 / (self.high - self.low))
        return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)


BYTES = Range("0 to 255", 0, 255)
RANGES = (Range("[0, 1]", 0, 1), Range("[-1, 1]", -1, 1), BYTES)


@dataclass(frozen=True, slots=True)
class Own:
    """Where images that were passed are kept, as `data.source`, and what they are."""

    source: str
    side: int | None
    """The side of all of them, if all are squares of one size."""


def keep(data: Any, settings: Data, say: Say) -> Own:
    """Reads everything once, in order, and stores it in the cache folder, where a resume finds it again."""
    items, what, class_names = _items(data)
    checked, sides = _Checked(items), set[tuple[int, int]]()
    folder = cache.cache_root(settings, say)
    path, count = store(_watched(checked, sides, folder), folder, class_names)
    square = next(iter(sides)) if len(sides) == 1 else None
    size = f" of {square[1]} × {square[0]} px" if square else ""
    say(
        f"Read {count:,} images{size} from {what}, values taken for {checked.range.words}. They are kept in {path}, "
        "where a resume finds them; what was random in them is as it was read."
    )
    return Own(str(path), square[0] if square and square[0] == square[1] else None)


def _watched(items: Iterable[Item], sides: set[tuple[int, int]], folder: Path) -> Iterator[Item]:
    for place, (pixels, label) in enumerate(items):
        if place % CHECKED_EVERY == 0:
            _refuse_full_disk(folder, place)  # an iterable may have no end
        sides.add(pixels.shape[:2])
        yield pixels, label


def _refuse_full_disk(folder: Path, place: int) -> None:
    free = DISK.free(folder)
    if free is not None and free < RESERVE:
        raise DataError(
            f"After {place:,} images {folder} has only {free / 1e9:.2f} GB free. Make room, pass fewer images, or "
            "choose another place with data.cache."
        )


class _Checked:
    """Items as bytes. The range is that of the first images, and every other one has to keep to it."""

    def __init__(self, items: Iterator[tuple[Any, Any]]) -> None:
        first = [
            (_as_pixels(image, place), label) for place, (image, label) in enumerate(itertools.islice(items, LOOKED_AT))
        ]
        self._items, self._first = items, first
        self.range = _range_of([pixels for pixels, _ in first]) if first else BYTES

    def __iter__(self) -> Iterator[Item]:
        for place, (pixels, label) in enumerate(self._first):
            yield self._bytes(pixels, place), _plain_label(label, place)
        for place, (image, label) in enumerate(self._items, len(self._first)):
            yield self._bytes(_as_pixels(image, place), place), _plain_label(label, place)

    def _bytes(self, pixels: np.ndarray, place: int) -> np.ndarray:
        return pixels if pixels.dtype == np.uint8 else self.range.to_bytes(pixels, place)


def _range_of(images: list[np.ndarray]) -> Range:
    if all(pixels.dtype == np.uint8 for pixels in images):
        return BYTES
    low, high = min(float(pixels.min()) for pixels in images), max(float(pixels.max()) for pixels in images)
    for value_range in RANGES:
        if value_range.low - SLACK <= low and high <= value_range.high + SLACK:
            return value_range
    raise DataError(
        f"The images have values from {low:g} to {high:g}, which is none of [0, 1], [-1, 1] and 0 to 255. Scale them "
        "to [-1, 1], or pass bytes (uint8)."
    )


def _items(data: Any) -> tuple[Iterator[tuple[Any, Any]], str, list[str] | None]:
    """((image, label or None) one by one, what it was in words, names of classes if it has any)."""
    name, names = type(data).__name__, _class_names(data)
    if isinstance(data, tuple) and len(data) == 2 and _is_array(data[0]) and len(data[0]) == len(data[1]):
        return zip(_rows(data[0]), _unstack(data[1]), strict=True), "a pair of images and labels", None
    if _is_array(data):
        return ((row, None) for row in _rows(data)), "a tensor" if hasattr(data, "detach") else "an array", None
    dataset, collate = getattr(data, "dataset", None), getattr(data, "collate_fn", None)
    if dataset is not None and collate is not None:
        if _is_map(dataset) and getattr(collate, "__name__", "") == "default_collate":
            items, _, names = _items(dataset)
            return items, f"the {type(dataset).__name__} of a {name}, in order (Safelight draws its own batches)", names
        return itertools.chain.from_iterable(map(_unbatch, data)), f"a {name}, once", _class_names(dataset)
    if _is_map(data):
        return (_pair(data[place]) for place in range(len(data))), f"a {name}", names
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return map(_pair, data), f"a {name}, once", names
    raise DataError(f"data is a {name}, but it must be {ACCEPTED}.")


def _is_map(data: Any) -> bool:
    """Dataset, list or HF dataset, of a known length."""
    if isinstance(data, str | bytes | Mapping) or not hasattr(data, "__getitem__"):
        return False
    try:
        return len(data) >= 0
    except TypeError:
        return False


def _is_array(data: Any) -> bool:
    return hasattr(data, "shape") and hasattr(data, "dtype") and hasattr(data, "__getitem__")


def _rows(images: Any) -> Iterator[Any]:
    if len(images.shape) not in (3, 4):
        shape = " × ".join(map(str, images.shape))
        raise DataError(
            f"The images have the shape {shape}, but it must be (images, channels, height, width), "
            "(images, height, width, channels) or (images, height, width)."
        )
    return (images[place] for place in range(len(images)))


def _class_names(data: Any) -> list[str] | None:
    found = getattr(data, "classes", None)
    return [str(each) for each in found] if isinstance(found, list | tuple) and found else None


def _pair(item: Any) -> tuple[Any, Any]:
    """(image, label) of one item: itself, a tuple that begins with the two, or a dict."""
    if isinstance(item, Mapping):
        key = next((key for key in KEYS if key in item), None)
        if key is None:
            raise DataError(f"An item has the keys {', '.join(map(str, item))}, but none of {', '.join(KEYS)}.")
        return item[key], next((item[label] for label in LABEL_KEYS if label in item), None)
    if isinstance(item, tuple | list) and item:
        return item[0], item[1] if len(item) > 1 else None
    return item, None


def _unbatch(batch: Any) -> Iterator[tuple[Any, Any]]:
    images, labels = _pair(batch)
    return zip(images, itertools.repeat(None) if labels is None else _unstack(labels), strict=False)


def _unstack(labels: Any) -> Iterator[Any]:
    return (labels[place] for place in range(len(labels)))


def _as_pixels(image: Any, place: int) -> np.ndarray:
    """[height, width, 1 or 3], in the values that it has."""
    if hasattr(image, "convert") and hasattr(image, "getbands"):  # Pillow
        image = np.asarray(image if image.mode == "L" else image.convert("RGB"))
    is_tensor = hasattr(image, "detach")
    pixels = np.asarray(image.detach().cpu().float() if is_tensor and _is_half(image) else _numbers(image))
    shape = pixels.shape
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    elif pixels.ndim == 3 and shape[0] in (1, 3) and (is_tensor or shape[2] not in (1, 3)):
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3) or not pixels.size or pixels.dtype.kind not in "buif":
        words = " × ".join(map(str, shape)) or "no shape"
        raise DataError(
            f"Image {place} is a {type(image).__name__} of {words} ({pixels.dtype}), but it must be numbers of "
            "channels × height × width, height × width × channels or height × width, with 1 or 3 channels."
        )
    return pixels


def _is_half(tensor: Any) -> bool:
    return str(tensor.dtype) in ("torch.bfloat16", "torch.float16")


def _numbers(image: Any) -> Any:
    return image.detach().cpu().numpy() if hasattr(image, "detach") else image


def _plain_label(label: Any, place: int) -> int | str | None:
    """A whole number or a word."""
    if label is None or isinstance(label, str):
        return label
    take: Callable[[], Any] | None = getattr(label, "item", None)
    try:
        value = label if take is None else take()
    except (ValueError, RuntimeError):  # more than one number
        value = None
    if isinstance(value, bool | int) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    raise DataError(f"The label of image {place} is {label!r:.60}, but it must be a whole number or a word.")
