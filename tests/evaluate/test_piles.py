"""Piles of images as people have them: all that can be read, in the order of names, each at its own size."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from safelight.data.decode import decode_whole
from safelight.errors import DataError
from safelight.evaluate import features, piles
from safelight.evaluate.features import Extractor, extract, own_extractor
from safelight.evaluate.piles import pile_features


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)


class Corners(nn.Module):
    """The mean colours of nine fields: turning, swapping or squashing a picture changes them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool2d(x, 3).flatten(1)


@pytest.fixture(scope="module")
def extractor() -> Extractor:
    return own_extractor(Corners(), name="corners", side=12)


def features_of(extractor: Extractor, *pictures: np.ndarray) -> np.ndarray:
    """Of pixels [height, width, channels], given directly and one at a time."""
    return np.concatenate([extract(extractor, p.transpose(2, 0, 1)[None].copy()) for p in pictures])


def make_pile(top: Path) -> list[tuple[str, np.ndarray]]:
    """(name, the pixels that are seen), by name."""
    (top / "b" / "deep").mkdir(parents=True)
    (top / "c").mkdir()
    colour, wide, grey = noise(20, 20, seed=1), noise(10, 31, seed=2), noise(20, 20, 1, seed=3)
    Image.fromarray(colour).save(top / "a.png")
    Image.fromarray(wide).save(top / "b" / "deep" / "wide.png")
    Image.fromarray(grey[..., 0]).save(top / "b" / "grey.png")
    palette = Image.fromarray(noise(16, 24, seed=4)).quantize(17)
    palette.save(top / "c" / "palette.png")
    clear = noise(9, 13, 4, seed=5)
    Image.fromarray(clear, "RGBA").save(top / "c" / "rgba.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    photograph = Image.fromarray(noise(14, 22, seed=6)).resize((44, 28), Image.Resampling.BICUBIC)
    photograph.save(top / "c" / "turned.jpg", quality=95, exif=exif)
    photograph.save(top / "plain.jpg", quality=95)
    with Image.open(top / "plain.jpg") as image:
        lying = np.asarray(image)
    solid = Image.alpha_composite(Image.new("RGBA", (13, 9), (255, 255, 255, 255)), Image.fromarray(clear, "RGBA"))
    (top / "plain.jpg").unlink()
    return [
        ("a.png", colour),
        ("b/deep/wide.png", wide),
        ("b/grey.png", grey),
        ("c/palette.png", np.asarray(palette.convert("RGB"))),
        ("c/rgba.png", np.asarray(solid.convert("RGB"))),
        ("c/turned.jpg", np.rot90(lying, -1)),
    ]


@pytest.fixture(scope="module")
def pile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, np.ndarray]]]:
    top = tmp_path_factory.mktemp("pile")
    return top, make_pile(top)


def zipped(top: Path, place: Path) -> Path:
    with zipfile.ZipFile(place, "w") as archive:
        for path in sorted(top.rglob("*"), reverse=True):
            if path.is_file():
                archive.write(path, path.relative_to(top))
    return place


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_every_kind_of_picture_in_the_order_of_names(
    pile: tuple[Path, list[tuple[str, np.ndarray]]], extractor: Extractor, tmp_path: Path, kind: str
) -> None:
    top, pictures = pile
    source = top if kind == "folder" else zipped(top, tmp_path / "pile.zip")
    said, done = list[str](), list[int]()
    found = pile_features(str(source), extractor, say=said.append, on_image=done.append)
    expected = features_of(extractor, *(pixels for _, pixels in pictures))
    assert found.dtype == np.float32
    assert np.allclose(found, expected, atol=1e-6), [name for name, _ in pictures]
    assert said == []
    assert done == sorted(done)
    assert done[-1] == len(pictures)
    assert np.abs(found[:, None] - found).max(2)[~np.eye(len(found), dtype=bool)].min() > 1e-2, "none is another's twin"


def test_a_picture_that_lies_on_its_side_would_be_noticed(
    pile: tuple[Path, list[tuple[str, np.ndarray]]], extractor: Extractor
) -> None:
    """The negative control of the row above: these features know up from left."""
    [turned] = [pixels for name, pixels in pile[1] if name == "c/turned.jpg"]
    upright, lying = features_of(extractor, turned, np.rot90(turned))
    assert not np.allclose(upright, lying, atol=1e-2)


def test_broken_files_are_left_out_and_told(tmp_path: Path, extractor: Extractor) -> None:
    for number in range(4):
        Image.fromarray(noise(8, 8, seed=number)).save(tmp_path / f"{number}.png")
    whole = (tmp_path / "1.png").read_bytes()
    (tmp_path / "1.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "2.png").write_bytes(b"")
    (tmp_path / "2b.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "notes.txt").write_text("no picture, and nobody's business")
    said: list[str] = []
    found = pile_features(str(tmp_path), extractor, say=said.append)
    assert np.allclose(found, features_of(extractor, noise(8, 8, seed=0), noise(8, 8, seed=3)), atol=1e-6)
    assert len(said) == 3
    for text, name, reason in zip(said, ("1.png", "2.png", "2b.png"), ("damaged", "empty", "broken link"), strict=True):
        assert text.startswith(f"Left out {name}: ")
        assert reason in text


def test_a_folder_that_cannot_be_listed_is_told(
    tmp_path: Path, extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locked").mkdir()
    Image.fromarray(noise(8, 8)).save(tmp_path / "a.png")
    scandir = os.scandir

    def refuse(place: Path) -> object:
        if Path(place).name == "locked":
            raise PermissionError(13, "Permission denied")
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refuse)
    said: list[str] = []
    assert len(pile_features(str(tmp_path), extractor, say=said.append)) == 1
    assert any("locked" in text for text in said)


def nothing(_: Path) -> None:
    pass


def other_files(top: Path) -> None:
    (top / "notes.txt").write_text("words")


def only_broken(top: Path) -> None:
    (top / "a.png").write_bytes(b"broken")
    (top / "b.png").write_bytes(b"")


@pytest.mark.parametrize(
    ("fill", "words"),
    [
        (nothing, "is empty. Put images into it"),
        (other_files, "1 other files (1 .txt)"),
        (only_broken, "has no image that can be read"),
    ],
)
def test_a_pile_without_images_is_refused_in_words(tmp_path: Path, extractor: Extractor, fill, words: str) -> None:
    fill(tmp_path)
    with pytest.raises(DataError) as refused:
        pile_features(str(tmp_path), extractor, say=lambda _: None)
    assert words in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_a_place_that_is_not_there_is_refused_in_words(tmp_path: Path, extractor: Extractor) -> None:
    with pytest.raises(DataError, match="no file or folder"):
        pile_features(str(tmp_path / "nowhere"), extractor, say=lambda _: None)


def test_a_known_set_is_a_pile_too(extractor: Extractor) -> None:
    found = pile_features("digits", extractor, most=70, say=lambda _: None)
    assert found.shape == (70, 27)


def numbered(top: Path, count: int, side: int = 8) -> list[np.ndarray]:
    pictures = [noise(side, side, seed=number) for number in range(count)]
    for number, pixels in enumerate(pictures):
        Image.fromarray(pixels).save(top / f"{number:03}.png")
    return pictures


@pytest.mark.parametrize(("most", "count"), [(1, 1), (3, 3), (6, 6), (7, 7), (8, 7), (None, 7)])
def test_most_takes_the_first_that_can_be_read(
    tmp_path: Path, extractor: Extractor, most: int | None, count: int
) -> None:
    pictures = numbered(tmp_path, 8)
    (tmp_path / "001.png").write_bytes(b"broken")
    readable = [pixels for number, pixels in enumerate(pictures) if number != 1]
    found = pile_features(str(tmp_path), extractor, most=most, say=lambda _: None)
    assert np.allclose(found, features_of(extractor, *readable[:count]), atol=1e-6)


def test_no_more_is_read_than_was_asked_for(
    tmp_path: Path, extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered(tmp_path, 8)
    read: list[int] = []
    monkeypatch.setattr(piles, "decode_whole", lambda *given: read.append(1) or decode_whole(*given))
    pile_features(str(tmp_path), extractor, most=3, say=lambda _: None)
    assert len(read) == 3


def batch_shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Filled with the shape of every batch that an extractor is given."""
    shapes, run = list[tuple[int, ...]](), features._run
    monkeypatch.setattr(features, "_run", lambda who, batch: shapes.append(tuple(batch.shape)) or run(who, batch))
    return shapes


@pytest.mark.parametrize(
    ("pixels", "sizes"),
    [
        (1, [1] * 7),  # even one is beyond the limit: it is looked at alone
        (64, [1] * 7),
        (127, [1] * 7),
        (128, [2, 2, 2, 1]),
        (200, [3, 3, 1]),
        (1 << 22, [7]),
    ],
)
def test_no_more_pixels_are_looked_at_together_than_allowed(
    tmp_path: Path, extractor: Extractor, monkeypatch: pytest.MonkeyPatch, pixels: int, sizes: list[int]
) -> None:
    pictures, seen = numbered(tmp_path, 7), batch_shapes(monkeypatch)
    monkeypatch.setattr(piles, "MOST_PIXELS", pixels)
    found = pile_features(str(tmp_path), extractor, say=lambda _: None)
    assert [shape[0] for shape in seen] == sizes
    assert np.allclose(found, features_of(extractor, *pictures), atol=1e-6)


def test_a_batch_has_one_shape_and_at_most_64(
    tmp_path: Path, extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures, seen = numbered(tmp_path, 70, side=4), batch_shapes(monkeypatch)
    pictures[10] = noise(4, 4, 1, seed=99)  # grey: another shape
    Image.fromarray(pictures[10][..., 0]).save(tmp_path / "010.png")
    found = pile_features(str(tmp_path), extractor, say=lambda _: None)
    assert seen == [(10, 3, 4, 4), (1, 1, 4, 4), (59, 3, 4, 4)]
    assert np.allclose(found, features_of(extractor, *pictures), atol=1e-6)
    seen.clear()
    pile_features("digits", extractor, most=70, say=lambda _: None)
    assert [shape[0] for shape in seen] == [64, 6]
