"""Malformed images, by the decoder that the scan uses."""

from __future__ import annotations

import functools
import io
import random
import struct
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image

from safelight.config.tree import Data
from safelight.data.decode import UnreadableImage, decode
from safelight.data.rows import describe
from torture.fuzz_child import Reader, watch
from torture.mutation import NUMBERS, PICKLE, mutate
from torture.scenario import Scenario, Trial

DATA = Data(image_size=8, max_pixels=1_000_000)
WAYS: dict[str, tuple[str, str, dict[str, object]]] = {
    "png": ("PNG", "RGB", {}), "palette": ("PNG", "P", {}), "deep": ("PNG", "I;16", {}), "clear": ("PNG", "RGBA", {}),
    "profile": ("PNG", "L", {"icc_profile": b"\0" * 300}), "jpeg": ("JPEG", "RGB", {}), "print": ("JPEG", "CMYK", {}),
    "progressive": ("JPEG", "RGB", {"progressive": True}), "webp": ("WEBP", "RGB", {}),
    "lossless": ("WEBP", "RGBA", {"lossless": True}), "bmp": ("BMP", "RGB", {}), "bits": ("BMP", "1", {}),
    "gif": ("GIF", "P", {}), "lzw": ("TIFF", "RGB", {"compression": "tiff_lzw"}), "tiff": ("TIFF", "L", {}),
    "deflated": ("TIFF", "RGB", {"compression": "tiff_adobe_deflate"}), "fax": ("TIFF", "1", {"compression": "group4"}),
}  # fmt: skip


def corpus() -> list[bytes]:
    """One sound file of every kind that is read, some with a camera's rotation."""
    draw, found = np.random.default_rng(0), []
    exif = Image.Exif()
    exif[0x0112] = 6
    for kind, mode, how in WAYS.values():
        pixels = draw.integers(0, 256, (13, 18, 3), np.uint8)
        image = Image.fromarray(pixels)
        image = Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257) if mode == "I;16" else image.convert(mode)
        for extra in ({}, {"exif": exif}) if kind in ("JPEG", "PNG", "WEBP") else ({},):
            buffer = io.BytesIO()
            image.save(buffer, kind, **how, **extra)  # type: ignore[arg-type]
            found.append(buffer.getvalue())
    frames = [Image.fromarray(draw.integers(0, 256, (9, 9, 3), np.uint8)) for _ in range(3)]
    for kind in ("GIF", "WEBP", "PNG"):
        buffer = io.BytesIO()
        frames[0].save(buffer, kind, save_all=True, append_images=frames[1:])
        found.append(buffer.getvalue())
    return found


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def grow_png(draw: random.Random) -> bytes:
    """Chunks whose checksums are right and whose content is not."""
    side = lambda: draw.choice([*NUMBERS, *range(1, 40)]) & 0xFFFFFFFF  # noqa: E731
    header = struct.pack(">IIBBBBB", side(), side(), draw.choice([1, 2, 4, 8, 16, 3]), draw.choice([0, 2, 3, 4, 6, 5]),
                         draw.choice([0, 0, 1]), draw.choice([0, 0, 9]), draw.choice([0, 1, 2]))  # fmt: skip
    if draw.random() < 0.7:
        small = struct.pack(">II", draw.randint(1, 20), draw.randint(1, 20))
        header = small + header[8:]
    bodies: dict[bytes, Callable[[], bytes]] = {
        b"IDAT": lambda: zlib.compress(draw.randbytes(draw.randint(0, 900))),
        b"PLTE": lambda: draw.randbytes(draw.choice([0, 3, 7, 768, 900])),
        b"tRNS": lambda: draw.randbytes(draw.choice([0, 1, 2, 6, 256])),
        b"iCCP": lambda: b"name\0\0" + zlib.compress(bytes(draw.choice([10, 100_000, 3_000_000]))),
        b"zTXt": lambda: b"key\0\0" + zlib.compress(bytes(draw.choice([10, 100_000, 3_000_000]))),
        b"tEXt": lambda: draw.randbytes(30),
        b"eXIf": lambda: b"II*\0" + draw.randbytes(40),
        b"acTL": lambda: struct.pack(">II", draw.choice(NUMBERS) & 0xFFFFFFFF, 0),
        b"fcTL": lambda: draw.randbytes(26),
        b"IHDR": lambda: header,
    }
    kinds = [b"IDAT", *draw.choices(list(bodies), k=draw.randint(0, 6))]
    draw.shuffle(kinds)
    body = b"".join(chunk(kind, bodies[kind]()) for kind in kinds)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


def grow_tiff(draw: random.Random) -> bytes:
    """A directory of tags that point anywhere."""
    order = draw.choice("<>")
    tags = draw.sample([256, 257, 258, 259, 262, 273, 274, 277, 278, 279, 282, 284, 317, 320, 322, 323, 324, 325, 338,
                        339, 34665, 34853, 700], draw.randint(1, 15))  # fmt: skip
    entries = b"".join(
        struct.pack(f"{order}HHII", tag, draw.choice([1, 2, 3, 4, 5, 7, 11, 12, 13, 99]),
                    draw.choice([0, 1, 1, 1, 2, 3, 4, 1000, 2**31, 2**32 - 1]),
                    draw.choice([0, 1, 2, 5, 8, 32773, 8, 16, 90, 2**31, 2**32 - 1, draw.randrange(200)]))
        for tag in sorted(tags)
    )  # fmt: skip
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
    following = struct.pack(f"{order}I", draw.choice([0, 0, 8, 2**31]))
    return head + struct.pack(f"{order}H", len(tags)) + entries + following + draw.randbytes(200)


STRANGERS = (
    b"", b"\0", b"<html>404</html>", b"%!PS-Adobe-3.0 EPSF-3.0\n(touch canary) run\n", b"8BPS\0\1" + bytes(60), PICKLE,
    b"GIF89a" + b"\xff" * 30, b"RIFF\xff\xff\xff\xffWEBPVP8X" + b"\xff" * 30, b"BM" + b"\xff" * 60,
    b"\xff\xd8\xff\xe1\xff\xff" + b"Exif\0\0", b"SIMPLE  =                    T", b"P6 99999 99999 255\n",
)  # fmt: skip


def make(draw: random.Random, sound: list[bytes]) -> bytes:
    kind = draw.random()
    if kind < 0.12:
        return grow_png(draw)
    if kind < 0.2:
        return grow_tiff(draw)
    if kind < 0.23:
        return mutate(draw.choice(STRANGERS), sound, draw)
    return mutate(draw.choice(sound), sound, draw)


def read(content: bytes) -> None:
    picture = decode(content, DATA)
    assert picture.pixels.dtype == np.uint8
    assert picture.pixels.shape[:2] == (8, 8)
    assert picture.pixels.shape[2] in (1, 3)
    describe(picture, len(content))


def open_reader(trial: Trial) -> Reader:
    sound = corpus()
    for content in sound:
        read(content)  # all plugins are loaded, and the corpus is sound
    return Reader(functools.partial(make, sound=sound), read, (UnreadableImage,))


FUZZ_IMAGES = Scenario(
    "fuzz: images",
    "Malformed PNG, JPEG, WebP, BMP, TIFF and GIF, and strangers, by the decoder of the scan.",
    "inputs", 100_000, 100_000, 1000, 12_500, lambda trial: watch(trial, open_reader),
)  # fmt: skip
