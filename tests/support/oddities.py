"""A folder of every kind of file that people have: what must be read, and what must be left out by name."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

NOISE = np.random.default_rng(0)


def photograph(width: int, height: int) -> Image.Image:
    """Something that does not compress to nothing."""
    y, x = np.mgrid[:height, :width] / max(width, height)
    waves = [np.sin(6 * (a * x + b * y) + c) for a, b, c in NOISE.uniform(-3, 3, (3, 3))]
    return Image.fromarray((np.stack(waves, 2) * 100 + 128 + NOISE.normal(0, 6, (height, width, 3))).astype(np.uint8))


def make_good(top: Path) -> set[str]:
    """Files of every kind that can be read; their names."""
    exif = Image.Exif()
    exif[0x0112] = 6
    tall, wide = photograph(40, 90), photograph(200, 64)
    palette = photograph(50, 50).convert("P")
    grey16 = Image.fromarray(NOISE.integers(0, 65536, (32, 48), np.uint16))
    clear = photograph(33, 33).convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize((33, 33)))
    for folder in ("cats", "dogs/deep/er", "birds of a feather", "ünïcødé"):
        (top / folder).mkdir(parents=True)
    tall.save(top / "cats" / "tall.jpg", quality=90)
    tall.save(top / "cats" / "turned.JPEG", exif=exif)
    tall.convert("CMYK").save(top / "cats" / "print.jpg")
    tall.convert("L").save(top / "cats" / "grey.Jpg")
    wide.save(top / "dogs" / "wide.png")
    wide.save(top / "dogs" / "deep" / "profile.png", icc_profile=b"\0" * 300)
    wide.save(top / "dogs" / "deep" / "er" / "lossless.webp", lossless=True)
    palette.save(top / "birds of a feather" / "palette.gif")
    palette.save(top / "birds of a feather" / "two frames.GIF", save_all=True, append_images=[palette.rotate(90)])
    grey16.save(top / "birds of a feather" / "deep.PNG")
    grey16.save(top / "birds of a feather" / "deep.tif")
    clear.save(top / "ünïcødé" / "clear.png")
    clear.save(top / "ünïcødé" / "clear.WebP")
    clear.convert("LA").save(top / "ünïcødé" / "grey and clear.png")
    wide.convert("1").save(top / "ünïcødé" / "bits.bmp")
    wide.save(top / "ünïcødé" / "packed.TIFF", compression="tiff_lzw")
    for number in range(74):
        photograph(20 + number, 30).save(top / "cats" / f"{number:02}.jpg")
    names = {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}
    (top / "cats" / ".hidden.jpg").write_bytes(b"thumbnail")
    (top / "notes.txt").write_text("not an image")
    return names


def make_broken(top: Path) -> set[str]:
    """One file of every kind that cannot be read; their names."""
    whole = {ending: _encoded(photograph(64, 64), ending, top) for ending in ("png", "jpg", "webp", "gif", "tiff")}
    broken = {f"cut.{ending}": content[: len(content) // 2] for ending, content in whole.items()}
    broken["empty.png"] = b""
    broken["page.jpg"] = b"<html><body>404</body></html>"
    broken["bomb.png"] = bomb(30_000, 30_000)
    broken["script.gif"] = b"%!PS-Adobe-3.0 EPSF-3.0\n"
    places = {}
    for name, content in broken.items():
        (top / "dogs" / f"broken {name}").write_bytes(content)
        places[f"dogs/broken {name}"] = content
    (top / "dogs" / "broken link.png").symlink_to(top / "nowhere.png")
    return {*places, "dogs/broken link.png"}


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims many pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 999)) + chunk(b"IEND", b"")
    )


def _encoded(image: Image.Image, ending: str, folder: Path) -> bytes:
    path = folder / f"whole.{ending}"
    image.save(path)
    content = path.read_bytes()
    os.unlink(path)
    return content
