"""Folders of images: sorted, with classes, links and files that are no images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from image_sets import NOISE, names_of, picture, read_set, write_idx

from safelight.config.tree import Data
from safelight.data.prepare import open_images
from safelight.errors import DataError


def test_a_folder_is_read_whole_sorted_and_in_any_case(tmp_path: Path) -> None:
    for level, name in enumerate(("b.JPG", "a.png", "c.WebP", "d.tif", "e.TIFF", "f.bmp", "g.gif", "h.jpeg")):
        picture(tmp_path / name, level * 30, (20, 8))
    (tmp_path / "notes.txt").write_text("not an image")
    picture(tmp_path / ".thumbnails" / "a.png")
    images = read_set(tmp_path)
    assert names_of(images) == ("a.png", "b.JPG", "c.WebP", "d.tif", "e.TIFF", "f.bmp", "g.gif", "h.jpeg")
    assert images.pixels.shape == (8, 8, 8, 1)
    assert np.abs(images.pixels[:, 4, 4, 0].astype(int) - [30, 0, 60, 90, 120, 150, 180, 210]).max() <= 2
    assert images.labels is None
    assert images.class_names == ()
    assert not images.rejected


def test_one_coloured_image_makes_the_folder_coloured(tmp_path: Path) -> None:
    picture(tmp_path / "grey.png", 50)
    picture(tmp_path / "stored_as_colour.png", (60, 60, 60))
    assert read_set(tmp_path).pixels.shape == (2, 8, 8, 1)
    picture(tmp_path / "red.png", (255, 0, 0))
    images = read_set(tmp_path)
    assert images.pixels.shape == (3, 8, 8, 3)
    assert images.pixels[0, 0, 0].tolist() == [50, 50, 50]
    assert images.pixels[1, 0, 0].tolist() == [255, 0, 0]
    assert read_set(tmp_path, channels=1).pixels.shape == (3, 8, 8, 1)


def test_top_subfolders_are_classes(tmp_path: Path) -> None:
    picture(tmp_path / "dog" / "deep" / "1.png", 1)
    picture(tmp_path / "cat" / "2.png", 2)
    picture(tmp_path / "cat" / "1.png", 3)
    (tmp_path / "empty").mkdir()
    images = read_set(tmp_path)
    assert names_of(images) == ("cat/1.png", "cat/2.png", "dog/deep/1.png")
    assert images.class_names == ("cat", "dog")
    assert images.labels is not None
    assert images.labels.tolist() == [0, 0, 1]
    picture(tmp_path / "stray.png", 4)
    assert read_set(tmp_path).class_names == (".", "cat", "dog")
    with pytest.raises(DataError, match=r"data.classes is 2, but .* has 3 classes. Set it to 3"):
        read_set(tmp_path, classes=2)


def test_links_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    picture(tmp_path / "set" / "zebra" / "1.png", 1)
    picture(tmp_path / "outside" / "2.png", 2)
    (tmp_path / "set" / "ant").symlink_to(tmp_path / "outside")
    (tmp_path / "set" / "all").symlink_to(tmp_path / "set" / "zebra")
    picture(tmp_path / "set" / "bear" / "3.png", 3)
    (tmp_path / "set" / "yak").symlink_to(tmp_path / "set" / "bear")
    (tmp_path / "set" / "zebra" / "up").symlink_to(tmp_path / "set")
    (tmp_path / "set" / "self").symlink_to(tmp_path / "set" / "self")
    assert names_of(read_set(tmp_path / "set")) == ("ant/2.png", "bear/3.png", "zebra/1.png")


def test_a_file_name_that_is_no_text_can_still_be_reported(tmp_path: Path) -> None:
    picture(tmp_path / "ok.png")
    (tmp_path / "ok.png").rename(tmp_path / "caf\udce9.png")
    images = read_set(tmp_path)
    assert names_of(images) == ("caf\udce9.png",)


def test_bad_files_are_named_and_left_out(tmp_path: Path) -> None:
    for index in range(18):
        picture(tmp_path / f"{index:02}.png", index)
    (tmp_path / "03a.png").touch()
    (tmp_path / "07a.jpg").write_text("<html>")
    reported: list[tuple[int, int]] = []
    images = open_images(Data(source=str(tmp_path), image_size=8), lambda *counts: reported.append(counts))
    assert images.pixels[:, 0, 0, 0].tolist() == list(range(18))
    assert names_of(images) == tuple(f"{index:02}.png" for index in range(18))
    assert tuple(images.rejected) == (
        ("03a.png", "it is empty (0 bytes)"),
        ("07a.jpg", "it is no PNG, JPEG, WebP, BMP, TIFF or GIF (it starts with 3c 68 74 6d 6c 3e)"),
    )
    assert reported[-1] == (20, 20)


def test_folders_without_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is empty. Put images into it"):
        read_set(tmp_path)
    (tmp_path / "a.heic").touch()
    with pytest.raises(DataError, match=r"holds 1 other files \(1 .heic\). Convert them"):
        read_set(tmp_path)
    write_idx(tmp_path / "train-images-idx3-ubyte", NOISE)
    with pytest.raises(DataError, match=r"To read an idx file, name it: .*/train-images-idx3-ubyte"):
        read_set(tmp_path)
