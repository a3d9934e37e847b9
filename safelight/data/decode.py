"""Owns how the bytes of an image or idx file become pixels: nothing squashed, nothing guessed."""

from __future__ import annotations

import gzip
import math
import struct
import warnings
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError

from safelight.config.tree import Data
from safelight.errors import DataError

EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")
MAX_PIXELS = 64 * 2**20

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_IDX_SCALARS = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


class Unreadable(Exception):
    """One file that cannot be used; the message is the reason in words."""


def read_image(path: Path, data: Data) -> np.ndarray:
    """The first frame of an image file as uint8 [side, side, 1 or 3]; 1 if it is grey or grey is wanted."""
    try:
        # Pillow warns from 89 million pixels on; its other warnings concern metadata nobody reads here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return _read(path, data)
    except Unreadable:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Unreadable(f"it has more pixels than the limit of {MAX_PIXELS:,}") from None
    except Exception as error:  # a damaged file can make a decoder raise nearly anything
        if isinstance(error, OSError) and error.strerror:
            raise Unreadable(f"it cannot be opened: {error.strerror}") from None
        raise Unreadable(f"it is damaged: {error or type(error).__name__}") from None


def square(image: Image.Image, data: Data) -> Image.Image:
    """A grey or colour image brought to the training size, its centre cropped or its bars padded.

    `reducing_gap` averages boxes of whole pixels first and leaves the last factor of two to four to the
    bicubic filter: antialiased at any ratio. Bicubic rings less than Lanczos at the edges of drawings.
    """
    width, height = image.size
    side = data.image_size
    if data.fit == "crop":
        short = min(width, height)
        left, top = (width - short) / 2, (height - short) / 2
        box = (left, top, left + short, top + short)
        return image.resize((side, side), Image.Resampling.BICUBIC, box=box, reducing_gap=2.0)
    scale = side / max(width, height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    canvas = Image.new(image.mode, (side, side), (data.background,) * len(image.getbands()))
    inner = image.resize(size, Image.Resampling.BICUBIC, reducing_gap=2.0)
    canvas.paste(inner, ((side - size[0]) // 2, (side - size[1]) // 2))
    return canvas


def as_pixels(image: Image.Image) -> np.ndarray:
    """uint8 [height, width, bands] of a grey or colour image."""
    pixels = np.asarray(image)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def read_idx(path: Path) -> np.ndarray:
    """The array of an idx file, gzipped or not, in the shape its header declares."""
    try:
        with open(path, "rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else open(path, "rb") as file:
            start = file.read(4)
            if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _IDX_SCALARS or start[3] == 0:
                raise DataError(_no_idx(path, start))
            shape = struct.unpack(f">{start[3]}I", file.read(4 * start[3]))
            scalar = np.dtype(_IDX_SCALARS[start[2]])
            return _idx_body(path, file, shape, scalar)
    except (OSError, EOFError, struct.error, zlib.error) as error:
        raise DataError(
            f"The idx file {path} cannot be read to its end: {error}. Copy or download it again."
        ) from error


def _idx_body(path: Path, file: BinaryIO | gzip.GzipFile, shape: tuple[int, ...], scalar: np.dtype) -> np.ndarray:
    expected = math.prod(shape) * scalar.itemsize
    body = bytearray()
    # In pieces: a header that lies about its size must not reserve the memory it claims.
    while len(body) <= expected and (piece := file.read(min(2**20, expected + 1 - len(body)))):
        body += piece
    if len(body) != expected:
        came = f"more than {expected:,}" if len(body) > expected else f"{len(body):,}"
        raise DataError(
            f"The header of {path} declares {' x '.join(map(str, shape))} values, {expected:,} bytes; "
            f"{came} follow. The file is damaged or no idx file: copy or download it again."
        )
    return np.frombuffer(body, scalar).reshape(shape)


def _no_idx(path: Path, start: bytes) -> str:
    advice = "Give an idx file (train-images-idx3-ubyte or its .gz), a folder of images, or a known set."
    if path.suffix.lower() in EXTENSIONS:
        advice = f"To train on images, give the folder that holds them: {path.parent}"
    came = start.hex(" ") or "nothing, the file is empty"
    return f"{path} is no idx file: its first bytes should be 00 00 08 03 and are {came}. {advice}"


def _read(path: Path, data: Data) -> np.ndarray:
    with _open(path) as image:
        width, height = image.size
        if width * height > MAX_PIXELS:
            size = f"{width} x {height} = {width * height:,} pixels"
            raise Unreadable(f"it has {size}, more than the limit of {MAX_PIXELS:,}")
        image.load()
        flat = _flatten(_eight_bit(_upright(image)), data.background)
    if data.channels == 1:
        flat = flat.convert("L")
    pixels = as_pixels(square(flat, data))
    grey = pixels.shape[2] == 3 and (pixels == pixels[:, :, :1]).all()
    return pixels[:, :, :1] if grey else pixels


def _open(path: Path) -> Image.Image:
    if not path.is_file():  # a pipe would wait for ever
        raise Unreadable("it is not a file: a broken link, a pipe or a device")
    try:
        return Image.open(path, formats=FORMATS)
    except UnidentifiedImageError:
        with open(path, "rb") as file:
            start = file.read(8)
    if not start:
        raise Unreadable("it is empty (0 bytes)")
    raise Unreadable(f"it is no PNG, JPEG, WebP, BMP, TIFF or GIF (it starts with {start.hex(' ')})")


def _upright(image: Image.Image) -> Image.Image:
    # Pillow turns TIFF while loading and then drops the tag, so this must come after load().
    # ImageOps.exif_transpose also rewrites the other tags, and fails on photographs with damaged ones.
    try:
        turn = _UPRIGHT.get(image.getexif().get(0x0112, 1))
    except Exception:
        return image
    return image if turn is None else image.transpose(turn)


def _eight_bit(image: Image.Image) -> Image.Image:
    if image.mode in ("I", "F"):
        raise Unreadable("its pixels have 32 bits, which leaves open what is white; save it with 8 or 16 bits")
    if not image.mode.startswith("I;16"):
        return image
    wide = np.asarray(image).astype(np.uint32)
    grey = Image.fromarray(((wide * 255 + 32767) // 65535).astype(np.uint8))
    if isinstance(clear := image.info.get("transparency"), int):
        grey.putalpha(Image.fromarray(np.where(wide == clear, 0, 255).astype(np.uint8)))
    return grey


def _flatten(image: Image.Image, background: int) -> Image.Image:
    if image.has_transparency_data:
        solid = Image.new("RGBA", image.size, (background, background, background, 255))
        return Image.alpha_composite(solid, image.convert("RGBA")).convert("RGB")
    return image.convert("L" if image.mode in ("1", "L") else "RGB")
