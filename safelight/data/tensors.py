"""Images that a person holds in memory or behind a Dataset: as bytes, whatever their range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from safelight.errors import DataError

KEYS = ("image", "images", "pixel_values", "x", "input")  # of an image, where a dataset returns dictionaries
CHUNK = 256
LOWEST_OF_UNIT_RANGE = -0.05  # no image in [0, 1] reaches below it, unless a sampler overshot a little
OVERSHOOT = 1.5  # what samples that are not clamped may reach; beyond it the range is another one
RANGES = {"[0, 1]": (0.0, 1.0), "[-1, 1]": (-1.0, 1.0)}


def image_of(item: Any) -> np.ndarray | None:
    """The image in what a dataset returns: itself, the first of a tuple, or one of a dictionary."""
    if isinstance(item, dict):
        item = next((item[key] for key in KEYS if key in item), None)
    if isinstance(item, tuple | list) and item:
        item = item[0]
    if isinstance(item, Tensor):
        return item.detach().cpu().float().numpy()
    return np.asarray(item) if isinstance(item, np.ndarray) else None


class PixelRange:
    """What range images have: uint8, [0, 1] or [-1, 1], seen in the first of them and held for all that follow."""

    def __init__(self, of: str, given: str | None = None) -> None:
        if given is not None and given not in RANGES:
            raise DataError(f"value_range is {given!r}. Use {' or '.join(map(repr, RANGES))}, or leave it out.")
        self._of, self._floats = of, given
        self._is_bytes = False
        self.values, self.clamped = 0, 0  # seen, and outside of the range

    @property
    def words(self) -> str:
        """uint8, [0, 1] or [-1, 1]; and how much was cut off."""
        name = self._floats if not self._is_bytes else "uint8"
        cut = f", {self.clamped / self.values:.2%} of the values clamped" if self.clamped else ""
        return f"{name or 'not seen yet'}{cut}"

    def to_bytes(self, images: Tensor) -> Tensor:
        """uint8 [n, 1 or 3, height, width] of such images, in any of the ranges."""
        images = _channels_first(images, self._of)
        if images.dtype == torch.uint8:
            self._is_bytes = True
            return images
        if not images.is_floating_point():
            raise DataError(f"The {self._of} are {images.dtype}. Pass bytes (uint8), or floats in [0, 1] or [-1, 1].")
        floats = images.detach().float()
        if broken := int((~floats.isfinite()).flatten(1).any(1).sum()):
            raise DataError(f"{broken:,} of {len(floats):,} {self._of} have values that are not finite.")
        low, high = (float(edge) for edge in RANGES[self._range(floats)])
        self.values += floats.numel()
        self.clamped += int(((floats < low - 1e-3) | (floats > high + 1e-3)).sum())
        return ((floats - low) * (255 / (high - low))).round().clamp(0, 255).to(torch.uint8)

    def _range(self, floats: Tensor) -> str:
        lowest, highest = (float(edge) for edge in floats.aminmax())
        if max(-lowest, highest) > 2 * OVERSHOOT:
            raise DataError(
                f"The {self._of} have values from {lowest:.4g} to {highest:.4g}, which is neither [0, 1] nor [-1, 1]. "
                "Pass bytes (uint8), or scale them."
            )
        if self._floats is None:
            if lowest >= LOWEST_OF_UNIT_RANGE and highest > OVERSHOOT:
                raise DataError(f"The {self._of} have values from {lowest:.4g} to {highest:.4g}: scale them to [0, 1].")
            self._floats = "[0, 1]" if lowest >= LOWEST_OF_UNIT_RANGE else "[-1, 1]"
        elif self._floats == "[0, 1]" and lowest < 10 * LOWEST_OF_UNIT_RANGE:
            raise DataError(
                f"The {self._of} were taken as [0, 1], and now there is a value of {lowest:.4g}. "
                'Pass value_range="[-1, 1]" if that is their range.'
            )
        return self._floats


def chunks_of(images: Any, of: str) -> Iterator[Tensor]:
    """[n, …] a few at a time, of a tensor, an array, a Dataset, or an iterable of batches such as a DataLoader."""
    if isinstance(images, Tensor | np.ndarray):
        for start in range(0, len(images), CHUNK):
            yield torch.as_tensor(images[start : start + CHUNK])
    elif hasattr(images, "__getitem__") and hasattr(images, "__len__") and not isinstance(images, str | dict):
        for start in range(0, len(images), CHUNK):
            yield _stacked([images[place] for place in range(start, min(start + CHUNK, len(images)))], of)
    elif isinstance(images, Iterable) and not isinstance(images, str | dict):
        for batch in images:
            yield torch.as_tensor(_found(batch, of))
    else:
        raise DataError(
            f"The {of} are a {type(images).__name__}. Pass a tensor or an array [n, channels, height, width], a "
            "Dataset, a DataLoader, or the path of a folder."
        )


def _stacked(items: list[Any], of: str) -> Tensor:
    found = [_found(item, of) for item in items]
    if len(shapes := {each.shape for each in found}) != 1:
        raise DataError(f"The {of} have several shapes ({', '.join(map(str, sorted(shapes)[:3]))}): resize them first.")
    return torch.from_numpy(np.stack(found))


def _found(item: Any, of: str) -> np.ndarray:
    if isinstance(item, Tensor) or (isinstance(item, tuple | list) and item and isinstance(item[0], Tensor)):
        tensor = (item if isinstance(item, Tensor) else item[0]).detach().cpu()
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()  # numpy has no bfloat16
    image = item if isinstance(item, np.ndarray) else image_of(item)
    picture: Any = item[0] if isinstance(item, tuple) and item else item
    if image is None and hasattr(picture, "convert"):  # of Pillow
        image = np.asarray(picture.convert("RGB")).transpose(2, 0, 1)
    if image is None:
        raise DataError(f"An item of the {of} is a {type(item).__name__}. Expected an image, or (image, label).")
    return image


def _channels_first(images: Tensor, of: str) -> Tensor:
    if images.ndim == 3 and images.shape[0] not in (1, 3):
        images = images[:, None]  # grey, without a channel
    if images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        images = images.permute(0, 3, 1, 2)
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise DataError(f"The {of} must have the shape [n, 1 or 3, height, width], but have {list(images.shape)}.")
    return images.contiguous()
