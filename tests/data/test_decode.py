"""One file at a time: every kind of picture comes out upright, opaque, round and in the right grey."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from safelight.config.tree import Data
from safelight.data.decode import DecodedImage, UnreadableImage, decode
from safelight.data.sources.image_folder import ImageFolder

TINY = Data(image_size=8)


def read(path: Path, data: Data) -> DecodedImage:
    return decode(ImageFolder(path.parent).read(path.name, 10**7), data)


def read_image(path: Path, data: Data) -> np.ndarray:
    return read(path, data).pixels


def plain(mode: str, colour: int | tuple[int, ...], size: tuple[int, int] = (8, 8)) -> Image.Image:
    return Image.new(mode, size, colour)


def palette(transparent: bool) -> Image.Image:
    image = plain("P", 0)
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.paste(1, (0, 0, 4, 8))
    if transparent:
        image.info["transparency"] = 0
    return image


RED, BLUE, WHITE = [255, 0, 0], [0, 0, 255], [255, 255, 255]
KINDS = [
    # image, ending, left pixel, right pixel
    (plain("L", 77), "png", [77], [77]),
    (plain("1", 1), "png", [255], [255]),
    (plain("RGB", (9, 9, 9)), "png", [9], [9]),
    (plain("RGB", (255, 0, 0)), "bmp", RED, RED),
    (plain("RGB", (255, 0, 0)), "tiff", RED, RED),
    (plain("RGBA", (255, 0, 0, 255)), "png", RED, RED),
    (plain("RGBA", (255, 0, 0, 0)), "png", [255], [255]),
    (plain("RGBA", (0, 0, 0, 51)), "png", [204], [204]),
    (plain("LA", (0, 0)), "png", [255], [255]),
    (palette(transparent=False), "png", BLUE, RED),
    (palette(transparent=True), "png", BLUE, WHITE),
    (palette(transparent=True), "gif", BLUE, WHITE),
    (plain("CMYK", (0, 255, 255, 0)), "tif", RED, RED),
    (plain("I;16", 0x8080), "png", [128], [128]),
    (plain("I;16", 65535), "tiff", [255], [255]),
    (plain("I;16", 200), "png", [1], [1]),
]


@pytest.mark.parametrize(("image", "ending", "left", "right"), KINDS)
def test_every_kind_of_picture_is_read_rightly(
    tmp_path: Path, image: Image.Image, ending: str, left: list[int], right: list[int]
) -> None:
    image.save(path := tmp_path / f"picture.{ending}")
    pixels = read_image(path, TINY)
    assert pixels[4, 0].tolist() == left
    assert pixels[4, 7].tolist() == right


def test_lossy_kinds_come_close(tmp_path: Path) -> None:
    for name, image in (
        ("a.jpg", plain("RGB", (250, 10, 10))),
        ("b.webp", plain("RGB", (250, 10, 10))),
        ("c.jpg", plain("CMYK", (5, 245, 245, 0))),
    ):
        image.save(tmp_path / name, quality=95)
        assert np.abs(read_image(tmp_path / name, TINY).mean((0, 1)) - [250, 10, 10]).max() < 8, name


def test_grey_wanted_from_colour_is_its_brightness(tmp_path: Path) -> None:
    plain("RGB", (0, 255, 0)).save(tmp_path / "green.png")
    pixels = read_image(tmp_path / "green.png", Data(image_size=8, channels=1))
    assert pixels.shape == (8, 8, 1)
    assert pixels[0, 0, 0] == 150


def test_the_background_shows_through(tmp_path: Path) -> None:
    plain("RGBA", (255, 0, 0, 0)).save(tmp_path / "clear.png")
    assert (read_image(tmp_path / "clear.png", Data(image_size=8, background="#1e1e1e")) == 30).all()


@pytest.mark.parametrize("ending", ["jpg", "png", "tiff", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_come_out_upright(tmp_path: Path, orientation: int, ending: str) -> None:
    upright = np.full((32, 32), 20, np.uint8)
    upright[:16, :16] = 230  # only the top left quarter is light
    stored = {
        1: upright,
        2: np.fliplr(upright),
        3: np.rot90(upright, 2),
        4: np.flipud(upright),
        5: upright.T,
        6: np.rot90(upright, 1),
        7: np.rot90(upright, 2).T,
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).convert("RGB").save(tmp_path / f"a.{ending}", exif=exif)
    pixels = read_image(tmp_path / f"a.{ending}", Data(image_size=32, channels=1))[:, :, 0]
    quarters = pixels[8, 8] > 200, pixels[8, 24] < 50, pixels[24, 8] < 50, pixels[24, 24] < 50
    assert quarters == (True, True, True, True)


def circle(size: tuple[int, int]) -> Image.Image:
    y, x = np.mgrid[: size[1], : size[0]]
    distance = np.hypot(x - (size[0] - 1) / 2, y - (size[1] - 1) / 2)
    return Image.fromarray(np.where(distance < min(size) * 0.4, 255, 0).astype(np.uint8))


@pytest.mark.parametrize("fit", ["crop", "pad"])
@pytest.mark.parametrize("size", [(256, 128), (128, 256), (301, 97), (64, 64), (2001, 777), (40, 20)])
def test_a_circle_stays_a_circle(tmp_path: Path, size: tuple[int, int], fit: str) -> None:
    drawn = circle(size)
    drawn.save(tmp_path / "circle.png")
    data = Data(image_size=64, fit="crop" if fit == "crop" else "pad", background="black")
    light = read_image(tmp_path / "circle.png", data)[:, :, 0] > 127
    wide, high = light.any(0).sum(), light.any(1).sum()
    diameter = (np.asarray(drawn) > 127).any(1).sum()
    expected = diameter * 64 / (min(size) if fit == "crop" else max(size))
    assert abs(wide - high) <= 1
    assert abs(wide - expected) <= 1.5
    rows, columns = np.nonzero(light)
    assert abs(rows.mean() - 31.5) < 0.8
    assert abs(columns.mean() - 31.5) < 0.8


def test_padding_fills_with_the_background(tmp_path: Path) -> None:
    plain("RGB", (255, 0, 0), (40, 20)).save(tmp_path / "wide.png")
    pixels = read_image(tmp_path / "wide.png", Data(image_size=16, fit="pad", background="#070707"))
    assert (pixels[:4] == 7).all()
    assert (pixels[12:] == 7).all()
    assert (pixels[4:12] == RED).all()


def test_fine_stripes_average_instead_of_aliasing(tmp_path: Path) -> None:
    stripes = np.zeros((512, 512), np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(tmp_path / "stripes.png")
    pixels = read_image(tmp_path / "stripes.png", Data(image_size=30)).astype(int)
    assert np.abs(pixels - 127).max() <= 3


def test_the_first_frame_of_an_animation_is_taken(tmp_path: Path) -> None:
    plain("L", 40).save(tmp_path / "a.gif", save_all=True, append_images=[plain("L", 200)])
    assert (read_image(tmp_path / "a.gif", TINY) == 40).all()


def broken_files(folder: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    for ending in ("png", "jpg", "webp", "gif", "tiff"):
        Image.fromarray(noise).save(whole := folder / f"whole.{ending}")
        (folder / f"cut_{ending}.{ending}").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
        whole.unlink()
    (folder / "empty.png").touch()
    (folder / "text.jpg").write_text("<html>404 not found</html>")
    (folder / "vector.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    plain("I", 70_000).save(folder / "deep.tiff")
    plain("F", 1).save(folder / "float.tiff")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    os.mkfifo(folder / "pipe.png")


def test_a_broken_file_has_a_reason_in_words(tmp_path: Path) -> None:
    broken_files(tmp_path)
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(UnreadableImage) as reason:
            read_image(path, TINY)
        assert str(reason.value).startswith("it"), path
        assert str(tmp_path) not in str(reason.value), "the name is reported beside the reason"


def test_a_huge_image_is_refused_before_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain("L", 0, (100, 50)).save(tmp_path / "huge.png")
    monkeypatch.setattr(Image.Image, "load", lambda image: pytest.fail("decoded"))
    with pytest.raises(UnreadableImage, match=r"100 x 50 = 5,000 pixels, more than data.max_pixels allows \(4,999"):
        read_image(tmp_path / "huge.png", Data(image_size=8, max_pixels=4_999))


def test_pillows_bomb_warning_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain("L", 0, (100, 50)).save(tmp_path / "huge.png")
    for limit in (4_000, 1_000):  # a warning and an error of Pillow
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(UnreadableImage, match=r"more pixels than data.max_pixels allows"):
            read_image(tmp_path / "huge.png", TINY)
