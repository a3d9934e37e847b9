"""Owns how the bytes of an image file become pixels: nothing squashed, nothing guessed."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from safelight.config.check import colour_of
from safelight.config.tree import Data

Retry = Literal["never", "any time", "larger limits"]

VERSION = 1  # of the pixels: a change here makes every cache stale
EXTENSIONS = (".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".gif", ".apng")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")

GAP = 2.0  # boxes of pixels are averaged down to this many times the final size; the filter does the rest
_FILTERS = {"bicubic": Image.Resampling.BICUBIC, "lanczos": Image.Resampling.LANCZOS}
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UnreadableImage(Exception):
    """An image that cannot be used; the message is the reason.

    `retry` says when it may be tried again: never, if the reason lies in the bytes; any time, if they could not be had;
    or once there is more time and memory for it.
    """

    def __init__(self, reason: str, retry: Retry = "never") -> None:
        super().__init__(reason)
        self.retry: Retry = retry


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """One decoded picture at its final size, and what it was before."""

    pixels: np.ndarray
    """uint8 [side, side, 1 or 3]; 1 if it is grey or grey is wanted."""
    width: int
    height: int
    """As shown: after the rotation that a camera wrote down."""
    format: str
    transparent: bool
    turned: bool


def side_of(data: Data) -> int:
    """Side of the stored square: larger than the model's by the margin that random windows need."""
    return data.image_size + round(data.image_size * data.random_crop)


def decode(content: bytes, data: Data) -> DecodedImage:
    """The first frame of an image file, upright, opaque and square."""
    with _guarded(data), _open(content, data) as image:
        width, height = image.size
        if image.format == "JPEG":
            # libjpeg averages whole boxes while it decodes: several times faster than `reducing_gap` afterwards.
            gap = int(side_of(data) * GAP)
            image.draft(None, (gap, gap))
        image.load()
        upright, turned = _upright(image)
        flat = _flatten(_eight_bit(upright), data)
        if turned and upright.size != image.size:
            width, height = height, width
        if data.channels == 1:
            flat = flat.convert("L")
        pixels = as_pixels(square(flat, data))
        return DecodedImage(pixels, width, height, image.format or "", upright.has_transparency_data, turned)


def decode_whole(content: bytes, data: Data) -> np.ndarray:
    """uint8 [height, width, 1 or 3] of the first frame, upright and opaque, at the size it has."""
    with _guarded(data), _open(content, data) as image:
        image.load()
        return as_pixels(_flatten(_eight_bit(_upright(image)[0]), data))


@contextmanager
def _guarded(data: Data) -> Iterator[None]:
    """Turns whatever a decoder raises into an UnreadableImage with a reason."""
    try:
        # Pillow warns from its limit of pixels on; its other warnings concern metadata that is not used here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except UnreadableImage:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise UnreadableImage(f"it has more pixels than data.max_pixels allows ({data.max_pixels:,})") from None
    except MemoryError:
        raise UnreadableImage(
            f"decoding it takes more memory than data.max_memory allows ({data.max_memory:g} MB)", "larger limits"
        ) from None
    except Exception as error:  # a damaged file can make a decoder raise nearly anything
        raise UnreadableImage(f"it is damaged: {error or type(error).__name__}") from None


def square(image: Image.Image, data: Data) -> Image.Image:
    """A grey or colour image brought to the stored size, its centre cropped or its bars padded.

    `reducing_gap` averages boxes of whole pixels first and leaves the last factor of two to four to the filter:
    antialiased at any ratio.
    """
    width, height = image.size
    side, resampling = side_of(data), _FILTERS[data.filter]
    if data.fit == "crop":
        short = min(width, height)
        left, top = (width - short) / 2, (height - short) / 2
        box = (left, top, left + short, top + short)
        return image.resize((side, side), resampling, box=box, reducing_gap=GAP)
    scale = side / max(width, height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    inner = image.resize(size, resampling, reducing_gap=GAP)
    if inner.size == (side, side):
        return inner
    red, green, blue = _background(data)
    if inner.mode == "L" and not red == green == blue:
        inner = inner.convert("RGB" if data.channels != 1 else "L")
    bars = Image.new("RGB", (side, side), (red, green, blue)).convert(inner.mode)
    bars.paste(inner, ((side - size[0]) // 2, (side - size[1]) // 2))
    return bars


def as_pixels(image: Image.Image) -> np.ndarray:
    """uint8 [height, width, bands] of a grey or colour image; one band where three are the same."""
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        return pixels[:, :, None]
    grey = (pixels == pixels[:, :, :1]).all()
    return np.ascontiguousarray(pixels[:, :, :1]) if grey else pixels


def _open(content: bytes, data: Data) -> ImageFile.ImageFile:
    """Not decoded yet: an image that claims too many pixels is refused first."""
    if not content:
        raise UnreadableImage("it is empty (0 bytes)")
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:
        start = content[:8].hex(" ")
        raise UnreadableImage(f"it is no PNG, JPEG, WebP, BMP, TIFF or GIF (it starts with {start})") from None
    width, height = image.size
    if width * height > data.max_pixels:
        size = f"{width} x {height} = {width * height:,} pixels"
        raise UnreadableImage(f"it has {size}, more than data.max_pixels allows ({data.max_pixels:,})")
    return image


def _upright(image: Image.Image) -> tuple[Image.Image, bool]:
    # Pillow turns TIFF while loading and then drops the tag, so this must come after load().
    # ImageOps.exif_transpose also rewrites the other tags, and fails on photographs with damaged ones.
    try:
        turn = _UPRIGHT.get(image.getexif().get(0x0112, 1))
    except Exception:
        return image, False
    return (image, False) if turn is None else (image.transpose(turn), True)


def _eight_bit(image: Image.Image) -> Image.Image:
    if image.mode in ("I", "F"):
        raise UnreadableImage("its pixels have 32 bits, which leaves open what is white; save it with 8 or 16 bits")
    if not image.mode.startswith("I;16"):
        return image
    wide = np.asarray(image).astype(np.uint32)
    grey = Image.fromarray(((wide * 255 + 32767) // 65535).astype(np.uint8))
    if isinstance(clear := image.info.get("transparency"), int):
        grey.putalpha(Image.fromarray(np.where(wide == clear, 0, 255).astype(np.uint8)))
    return grey


def _flatten(image: Image.Image, data: Data) -> Image.Image:
    if image.has_transparency_data:
        solid = Image.new("RGBA", image.size, (*_background(data), 255))
        return Image.alpha_composite(solid, image.convert("RGBA")).convert("RGB")
    return image.convert("L" if image.mode in ("1", "L") else "RGB")


def _background(data: Data) -> tuple[int, int, int]:
    colour = colour_of(data.background)
    assert colour is not None, f"data.background {data.background!r} was not checked"
    return colour
