"""A picture decoded whole: at its own size, upright and opaque, with nothing cropped, squashed or resized."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from oddities import bomb
from PIL import Image

from safelight.config.tree import Data
from safelight.data.decode import UnreadableImage, decode, decode_whole

DATA = Data(image_size=8)
WIDE = np.random.default_rng(0).integers(0, 256, (5, 12, 3), np.uint8)
GREY = WIDE[..., :1]


def encoded(image: Image.Image, kind: str = "PNG", **how: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


def with_alpha(alpha: int) -> Image.Image:
    return Image.fromarray(np.concatenate([WIDE, np.full((5, 12, 1), alpha, np.uint8)], 2), "RGBA")


def palette() -> Image.Image:
    image = Image.new("P", (12, 5), 1)
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.paste(0, (0, 0, 6, 5))
    return image


HALVES = np.zeros((5, 12, 3), np.uint8)
HALVES[:, :6, 0] = HALVES[:, 6:, 2] = 255
CLEAR = HALVES.copy()
CLEAR[:, :6] = 255
DEEP = Image.fromarray(np.linspace(0, 65535, 60).round().astype(np.uint16).reshape(5, 12))
STRIPES = np.tile(np.array([[[0], [255]]], np.uint8), (5, 6, 1))
KINDS = {
    "colour": (encoded(Image.fromarray(WIDE)), WIDE),
    "bmp": (encoded(Image.fromarray(WIDE), "BMP"), WIDE),
    "tiff": (encoded(Image.fromarray(WIDE), "TIFF"), WIDE),
    "webp": (encoded(Image.fromarray(WIDE), "WEBP", lossless=True), WIDE),
    "grey": (encoded(Image.fromarray(GREY[..., 0])), GREY),
    "colour that is grey": (encoded(Image.fromarray(GREY.repeat(3, 2))), GREY),
    "bits": (encoded(Image.fromarray(STRIPES[..., 0]).convert("1")), STRIPES),
    "palette": (encoded(palette()), HALVES),
    "palette with a clear colour": (encoded(palette(), transparency=0), CLEAR),
    "opaque alpha": (encoded(with_alpha(255)), WIDE),
    "nothing to be seen": (encoded(with_alpha(0)), np.full((5, 12, 1), 255)),
    "sixteen bits": (encoded(DEEP), np.linspace(0, 255, 60).reshape(5, 12, 1)),
}


@pytest.mark.parametrize(("content", "expected"), KINDS.values(), ids=KINDS.keys())
def test_every_kind_at_its_own_size(content: bytes, expected: np.ndarray) -> None:
    found = decode_whole(content, DATA)
    assert found.dtype == np.uint8
    assert found.shape == expected.shape
    assert np.abs(found.astype(float) - expected).max() <= 0.51


def test_only_whole_is_whole() -> None:
    """The negative control: the usual way to decode makes a square of the same file."""
    content = encoded(Image.fromarray(WIDE))
    assert decode(content, DATA).pixels.shape == (8, 8, 3)
    assert decode_whole(content, DATA).shape == (5, 12, 3)


@pytest.mark.parametrize("channels", [None, 1, 3])
def test_what_a_model_wants_does_not_matter(channels: int | None) -> None:
    for image_size in (8, 64):
        data = Data(image_size=image_size, channels=channels, random_crop=0.25)
        assert np.array_equal(decode_whole(encoded(Image.fromarray(WIDE)), data), WIDE)


def test_a_large_photograph_is_not_made_small() -> None:
    """libjpeg may shrink while it decodes; here it must not."""
    image = Image.effect_noise((640, 480), 60).convert("RGB")
    content = encoded(image, "JPEG", quality=95)
    with Image.open(io.BytesIO(content)) as opened:
        expected = np.asarray(opened)
    found = decode_whole(content, DATA)
    assert found.shape[:2] == (480, 640)
    assert np.array_equal(np.broadcast_to(found, expected.shape), expected)


TURNS = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.transpose(1, 0, 2),
    6: lambda x: np.rot90(x, -1),
    7: lambda x: x[::-1, ::-1].transpose(1, 0, 2),
    8: lambda x: np.rot90(x),
    9: lambda x: x,  # no such turn: as it lies
}


@pytest.mark.parametrize(("turn", "stand"), TURNS.items())
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_upright(turn: int, stand, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    how = {"lossless": True} if kind == "WEBP" else {}
    assert np.array_equal(decode_whole(encoded(Image.fromarray(WIDE), kind, exif=exif, **how), DATA), stand(WIDE))


def test_the_first_frame_is_taken() -> None:
    frames = [Image.new("L", (6, 4), shade) for shade in (10, 200)]
    content = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (decode_whole(content, DATA) == 10).all()


@pytest.mark.parametrize(("colour", "value"), [("white", 255), ("black", 0), ("grey", 128)])
def test_clear_pixels_show_the_background(colour: str, value: int) -> None:
    found = decode_whole(encoded(with_alpha(0)), replace(DATA, background=colour))
    assert (found == value).all()


@pytest.mark.parametrize(("most", "fits"), [(60, True), (59, False), (61, True), (1, False)])
def test_too_many_pixels_are_refused(most: int, fits: bool) -> None:
    content, data = encoded(Image.fromarray(WIDE)), replace(DATA, max_pixels=most)
    if fits:
        assert decode_whole(content, data).shape == (5, 12, 3)
        return
    with pytest.raises(UnreadableImage, match=r"12 x 5 = 60 pixels, more than data\.max_pixels allows"):
        decode_whole(content, data)


PNG = encoded(Image.fromarray(WIDE))
BROKEN = {
    "empty": (b"", "0 bytes"),
    "words": (b"<html>404</html>", "it is no PNG"),
    "cut": (PNG[: len(PNG) // 2], "it is damaged"),
    "cut jpeg": (encoded(Image.effect_noise((64, 64), 60), "JPEG")[:900], "it is damaged"),
    "bomb": (bomb(30_000, 30_000), "pixels"),
    "thirty-two bits": (encoded(Image.new("I", (4, 4), 70_000), "TIFF"), "32 bits"),
    "floats": (encoded(Image.new("F", (4, 4), 0.5), "TIFF"), "32 bits"),
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n", "it is no PNG"),
}


@pytest.mark.parametrize(("content", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_what_cannot_be_read_is_told_in_words(content: bytes, words: str) -> None:
    with pytest.raises(UnreadableImage) as refused:
        decode_whole(content, DATA)
    assert words in str(refused.value)


def test_the_pixels_can_be_written_to_a_tensor() -> None:
    """Views that run backwards are refused by torch."""
    import torch

    exif = Image.Exif()
    exif[0x0112] = 3
    found = decode_whole(encoded(Image.fromarray(WIDE), exif=exif), DATA)
    assert torch.from_numpy(found.copy()).shape == (5, 12, 3)
