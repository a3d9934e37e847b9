"""The path of pixels from an image to a network: bytes, colour, and the named ways of resizing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from safelight.errors import DataError


def quantise(images: Tensor) -> Tensor:
    """Floats in [-1, 1] of shape [n, c, h, w] as the bytes that an image file would hold.

    Rounded as `pictures.grid.to_uint8` rounds: truncation would darken every image by half a grey level.
    """
    floats = images.detach().float()
    if broken := int((~floats.isfinite()).flatten(1).any(1).sum()):
        raise DataError(f"{broken:,} of {len(floats):,} images have pixels that are not finite: they cannot be judged.")
    return (floats * 127.5 + 127.5).round().clamp(0, 255).to(torch.uint8)


def to_colour(images: Tensor) -> Tensor:
    """Grey images repeated into three channels; a view, not a copy."""
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise DataError(f"Images must have the shape [n, 1 or 3, height, width], but these have {list(images.shape)}.")
    return images.expand(-1, 3, -1, -1)


def resize_tf1(images: Tensor, side: int) -> Tensor:
    """Bilinear as TensorFlow 1 did it: no half pixel, no antialiasing. All published FID since 2017 rests on it.

    Source: resize_bilinear_op.cc; pixel i reads at i * (old / new) in float32, columns are blended before rows.
    """
    return _blend(_blend(images.float(), 3, side), 2, side)


def _blend(floats: Tensor, axis: int, new: int) -> Tensor:
    old = floats.shape[axis]
    place = torch.arange(new, dtype=torch.float32, device=floats.device) * torch.tensor(old / new, dtype=torch.float32)
    low = place.long()
    high = (low + 1).clamp_max(old - 1)
    share = (place - low).view([-1 if k == axis else 1 for k in range(4)])
    start = floats.index_select(axis, low)
    return start + (floats.index_select(axis, high) - start) * share


def resize_antialiased(images: Tensor, side: int, mode: str) -> Tensor:
    """With half pixels, antialiased where it shrinks, in float and without quantising afterwards.

    Bicubic is clean-fid's way: within 5e-3 grey levels of Pillow in mode F on white noise, 1e-3 on photographs;
    clean-fid calls that for every channel of every image.
    """
    # Of bytes torch would also return bytes: the floats must come first.
    found = interpolate(images.float(), (side, side), mode=mode, antialias=True, align_corners=False)
    return found.clamp(0, 255)  # bicubic overshoots, and clean-fid cuts it so; bilinear by the last bit


RESIZES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "tf1": resize_tf1,
    "clean": partial(resize_antialiased, mode="bicubic"),
    "bilinear": partial(resize_antialiased, mode="bilinear"),
}
