"""What a sampler returned, as images in [-1, 1]: of any of the usual ranges and layouts, also where it is broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from safelight.data.tensors import LOWEST_OF_UNIT_RANGE, OVERSHOOT, RANGES
from safelight.errors import UsageError


class SampledImages:
    """The range is seen in the first samples, and held for all that follow, so that stages can be compared."""

    def __init__(self, value_range: str | None = None) -> None:
        if value_range is not None and value_range not in RANGES:
            raise UsageError(f"value_range is {value_range!r}. Use {' or '.join(map(repr, RANGES))}, or leave it out.")
        self._range = value_range

    def of(self, found: Any, count: int) -> Tensor:
        """float32 [count, 1 or 3, height, width] on the host, clamped to [-1, 1]; what is not finite stays so."""
        images = _tensor_of(found)
        if images.dim() == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
            images = images.movedim(-1, 1)
        if images.dim() == 3:
            images = images[:, None]
        if images.dim() != 4 or len(images) != count or images.shape[1] not in (1, 3):
            latent = " Decode latents in the sampler." if images.dim() == 4 and images.shape[1] == 4 else ""
            raise UsageError(
                f"Expected images of shape [{count}, 1 or 3, height, width], came {list(images.shape)}.{latent}"
            )
        if images.dtype == torch.uint8:
            return images.float() / 127.5 - 1
        floats = images.float()
        low, high = RANGES[self._of(floats)]
        return ((floats - low) * (2 / (high - low)) - 1).clamp(-1, 1)

    def _of(self, floats: Tensor) -> str:
        finite = floats[floats.isfinite()]
        if self._range is None and len(finite):
            is_positive = float(finite.min()) >= LOWEST_OF_UNIT_RANGE and float(finite.max()) <= OVERSHOOT
            self._range = "[0, 1]" if is_positive else "[-1, 1]"
        elif self._range == "[0, 1]" and len(finite) and float(finite.min()) < 10 * LOWEST_OF_UNIT_RANGE:
            self._range = "[-1, 1]"  # the first ones happened to have no dark pixel
        return self._range or "[-1, 1]"


def as_batch(images: Any) -> Tensor:
    """The same of any number of images: one, several, grey ones without channels."""
    found = _tensor_of(images)
    if not found.dim() or not found.numel():
        raise UsageError(f"Expected one or several images, came {list(found.shape)}.")
    if found.dim() == 2:
        found = found[None, None]
    elif found.dim() == 3:
        is_one = found.shape[0] in (1, 3) or found.shape[2] in (1, 3)
        found = found[None] if is_one else found[:, None]
    return SampledImages().of(found, len(found))


def _tensor_of(found: Any) -> Tensor:
    """The images of a tensor, an array, a list of Pillow's images, or the output of a diffusers pipeline."""
    found = getattr(found, "images", getattr(found, "sample", found))
    if isinstance(found, tuple | list) and found:
        first: Any = found[0]
        if hasattr(first, "convert"):  # of Pillow
            return torch.from_numpy(np.stack([np.asarray(each.convert("RGB")) for each in found]))
        found = first if isinstance(first, Tensor) and first.dim() == 4 else found
    if isinstance(found, list) and found and isinstance(found[0], Tensor):
        found = torch.stack(found)
    try:
        return torch.as_tensor(found).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise UsageError(f"Expected a tensor of images, came a {type(found).__name__}.") from None
