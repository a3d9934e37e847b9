"""Whole sets: what a word, an idx file or a folder becomes, and what is said when it becomes nothing."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from safelight.config.tree import Data
from safelight.data.cache_writer import fingerprint
from safelight.data.images import Images
from safelight.data.prepare import open_images
from safelight.data.sources import idx
from safelight.errors import DataError


def picture(path: Path, colour: int | tuple[int, int, int] = 100, size: tuple[int, int] = (8, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if isinstance(colour, int) else "RGB", size, colour).save(path)


def read(source: Path | str, **settings: object) -> Images:
    return open_images(Data(source=str(source), **({"image_size": 8} | settings)))  # type: ignore[arg-type]


def names(images: Images) -> tuple[str, ...]:
    assert images.names is not None
    return tuple(images.names[row] for row in range(len(images)))


def write_idx(path: Path, array: np.ndarray, packed: bool = False) -> Path:
    scalar = {"uint8": 0x08, "int32": 0x0C, "float32": 0x0D}[array.dtype.name]
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, scalar, array.ndim, *array.shape)
    body = header + array.astype(array.dtype.newbyteorder(">")).tobytes()
    path.write_bytes(gzip.compress(body) if packed else body)
    return path


NOISE = np.random.default_rng(0).integers(0, 256, (6, 8, 8), np.uint8)


def test_digits() -> None:
    images = read("digits")
    assert images.pixels.shape == (1797, 8, 8, 1)
    assert images.pixels.dtype == np.uint8
    assert (images.pixels.min(), images.pixels.max()) == (0, 255)
    assert images.pixels[0, 0, :, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]  # 0 0 5 13 9 1 0 0 of 16
    assert images.labels is not None
    assert images.labels.dtype == np.int32
    assert np.bincount(images.labels).min() == 174
    assert images.class_names == tuple("0123456789")
    assert images.names is None
    assert not images.rejected


def test_digits_at_another_size_in_colour_tell_their_progress() -> None:
    told: list[tuple[int, int]] = []
    images = open_images(Data(image_size=12, channels=3), lambda done, total: told.append((done, total)))
    assert images.pixels.shape == (1797, 12, 12, 3)
    assert (images.pixels[..., 0] == images.pixels[..., 2]).all()
    assert told[-1] == (1797, 1797)
    assert told == sorted(told)


def test_fashion_mnist_is_found_where_debian_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_idx(tmp_path / "train-images-idx3-ubyte.gz", NOISE, packed=True)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.arange(6, dtype=np.uint8), packed=True)
    monkeypatch.setattr(idx, "FASHION_MNIST", file)
    images = read("fashion-mnist")
    assert images.class_names[9] == "ankle boot"
    assert images.labels is not None
    assert images.labels.tolist() == list(range(6))


def test_missing_fashion_mnist_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idx, "FASHION_MNIST", tmp_path / "nowhere.gz")
    with pytest.raises(DataError, match="apt-get install dataset-fashion-mnist"):
        read("fashion-mnist")


@pytest.mark.parametrize(
    ("images_name", "labels_name"),
    [
        ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
        ("train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz"),
        ("t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte"),
        ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte"),
    ],
)
def test_idx_labels_are_found_beside_the_images(tmp_path: Path, images_name: str, labels_name: str) -> None:
    write_idx(tmp_path / images_name, NOISE, packed=images_name.endswith(".gz"))
    letters = np.array([1, 2, 2, 5, 1, 1], np.uint8)  # counted from 1, with a hole, like EMNIST
    write_idx(tmp_path / labels_name, letters, packed=labels_name.endswith(".gz"))
    images = read(tmp_path / images_name)
    assert (images.pixels[..., 0] == NOISE).all()
    assert images.class_names == ("1", "2", "5")
    assert images.labels is not None
    assert images.labels.tolist() == [0, 1, 1, 2, 0, 0]


def test_idx_without_labels_and_in_colour(tmp_path: Path) -> None:
    colour = np.random.default_rng(1).integers(0, 256, (3, 10, 20, 3), np.uint8)
    images = read(write_idx(tmp_path / "photos.idx", colour))
    assert images.pixels.shape == (3, 8, 8, 3)
    assert images.labels is None
    assert images.class_names == ()
    assert read(tmp_path / "photos.idx", channels=1).pixels.shape == (3, 8, 8, 1)


BAD_IDX = [
    (lambda path: path.write_bytes(b""), "the file is empty"),
    (lambda path: path.write_bytes(b"hello, world"), "first bytes should be 00 00 08 03 and are 68 65 6c 6c"),
    (lambda path: path.write_bytes(b"\0\0\x08\x03\0\0"), "cannot be read to its end"),
    (lambda path: path.write_bytes(b"\0\0\x08\x03" + b"\xff" * 12 + b"few"), "bytes; 3 follow"),
    (lambda path: path.write_bytes(write_idx(path, NOISE).read_bytes() + b"!"), "more than 384 follow"),
    (lambda path: path.write_bytes(gzip.compress(bytes(5000))[:-9]), "is no idx file"),
    (lambda path: path.write_bytes(write_idx(path, NOISE, packed=True).read_bytes()[:-20]), "to its end"),
    (lambda path: write_idx(path, np.arange(5, dtype=np.uint8)), "It holds uint8 of shape 5."),
    (lambda path: write_idx(path, np.zeros((2, 8, 8), np.float32)), "It holds float32 of shape 2 x 8 x 8"),
    (lambda path: write_idx(path, np.zeros((0, 8, 8), np.uint8)), "of shape 0 x 8 x 8"),
]


@pytest.mark.parametrize(("write", "words"), BAD_IDX)
def test_a_file_that_is_no_idx_is_refused_in_words(tmp_path: Path, write, words: str) -> None:
    write(tmp_path / "train-images")
    with pytest.raises(DataError, match=words) as error:
        read(tmp_path / "train-images")
    assert str(tmp_path) in str(error.value)
    assert error.value.exit_code == 3


def test_labels_that_do_not_belong_to_the_images(tmp_path: Path) -> None:
    file = write_idx(tmp_path / "images", NOISE)
    write_idx(tmp_path / "labels", np.arange(5, dtype=np.uint8))
    with pytest.raises(DataError, match="6 images and its labels file has 5 labels"):
        read(file)
    write_idx(tmp_path / "labels", np.zeros((6, 2), np.float32))
    with pytest.raises(DataError, match="one whole number per image"):
        read(file)


def test_one_image_instead_of_its_folder(tmp_path: Path) -> None:
    picture(tmp_path / "cat.PNG")
    with pytest.raises(DataError, match=f"give the folder that holds them: {tmp_path}"):
        read(tmp_path / "cat.PNG")


def test_a_folder_is_read_whole_sorted_and_in_any_case(tmp_path: Path) -> None:
    for level, name in enumerate(("b.JPG", "a.png", "c.WebP", "d.tif", "e.TIFF", "f.bmp", "g.gif", "h.jpeg")):
        picture(tmp_path / name, level * 30, (20, 8))
    (tmp_path / "notes.txt").write_text("not an image")
    picture(tmp_path / ".thumbnails" / "a.png")
    images = read(tmp_path)
    assert names(images) == ("a.png", "b.JPG", "c.WebP", "d.tif", "e.TIFF", "f.bmp", "g.gif", "h.jpeg")
    assert images.pixels.shape == (8, 8, 8, 1)
    assert np.abs(images.pixels[:, 4, 4, 0].astype(int) - [30, 0, 60, 90, 120, 150, 180, 210]).max() <= 2
    assert images.labels is None
    assert images.class_names == ()
    assert not images.rejected


def test_one_coloured_image_makes_the_folder_coloured(tmp_path: Path) -> None:
    picture(tmp_path / "grey.png", 50)
    picture(tmp_path / "stored_as_colour.png", (60, 60, 60))
    assert read(tmp_path).pixels.shape == (2, 8, 8, 1)
    picture(tmp_path / "red.png", (255, 0, 0))
    images = read(tmp_path)
    assert images.pixels.shape == (3, 8, 8, 3)
    assert images.pixels[0, 0, 0].tolist() == [50, 50, 50]
    assert images.pixels[1, 0, 0].tolist() == [255, 0, 0]
    assert read(tmp_path, channels=1).pixels.shape == (3, 8, 8, 1)


def test_top_subfolders_are_classes(tmp_path: Path) -> None:
    picture(tmp_path / "dog" / "deep" / "1.png", 1)
    picture(tmp_path / "cat" / "2.png", 2)
    picture(tmp_path / "cat" / "1.png", 3)
    (tmp_path / "empty").mkdir()
    images = read(tmp_path)
    assert names(images) == ("cat/1.png", "cat/2.png", "dog/deep/1.png")
    assert images.class_names == ("cat", "dog")
    assert images.labels is not None
    assert images.labels.tolist() == [0, 0, 1]
    picture(tmp_path / "stray.png", 4)
    assert read(tmp_path).class_names == (".", "cat", "dog")
    with pytest.raises(DataError, match=r"data.classes is 2, but .* has 3 classes. Set it to 3"):
        read(tmp_path, classes=2)


def test_links_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    picture(tmp_path / "set" / "zebra" / "1.png", 1)
    picture(tmp_path / "outside" / "2.png", 2)
    (tmp_path / "set" / "ant").symlink_to(tmp_path / "outside")
    (tmp_path / "set" / "all").symlink_to(tmp_path / "set" / "zebra")
    picture(tmp_path / "set" / "bear" / "3.png", 3)
    (tmp_path / "set" / "yak").symlink_to(tmp_path / "set" / "bear")
    (tmp_path / "set" / "zebra" / "up").symlink_to(tmp_path / "set")
    (tmp_path / "set" / "self").symlink_to(tmp_path / "set" / "self")
    assert names(read(tmp_path / "set")) == ("ant/2.png", "bear/3.png", "zebra/1.png")


def test_a_file_name_that_is_no_text_can_still_be_told(tmp_path: Path) -> None:
    picture(tmp_path / "ok.png")
    (tmp_path / "ok.png").rename(tmp_path / "caf\udce9.png")
    images = read(tmp_path)
    assert names(images) == ("caf\udce9.png",)


def test_bad_files_are_named_and_left_out(tmp_path: Path) -> None:
    for index in range(18):
        picture(tmp_path / f"{index:02}.png", index)
    (tmp_path / "03a.png").touch()
    (tmp_path / "07a.jpg").write_text("<html>")
    told: list[tuple[int, int]] = []
    images = open_images(Data(source=str(tmp_path), image_size=8), lambda *counts: told.append(counts))
    assert images.pixels[:, 0, 0, 0].tolist() == list(range(18))
    assert names(images) == tuple(f"{index:02}.png" for index in range(18))
    assert tuple(images.rejected) == (
        ("03a.png", "it is empty (0 bytes)"),
        ("07a.jpg", "it is no PNG, JPEG, WebP, BMP, TIFF or GIF (it starts with 3c 68 74 6d 6c 3e)"),
    )
    assert told[-1] == (20, 20)


def test_too_many_bad_files_end_it_with_their_names(tmp_path: Path) -> None:
    for index in range(10):
        picture(tmp_path / f"{index}.png", index)
        (tmp_path / f"{index}.jpg").touch()
    with pytest.raises(DataError) as error:
        read(tmp_path)
    words = str(error.value)
    assert "10 of 20 files" in words
    assert "(50.0%); data.max_bad allows 10.0%" in words
    assert "4.jpg: it is empty (0 bytes)" in words
    assert "5.jpg" not in words
    assert "and 5 more" in words
    assert len(read(tmp_path, max_bad=0.5).pixels) == 10


def test_nothing_but_bad_files_is_refused_at_any_share(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    with pytest.raises(DataError, match="none is left to train on"):
        read(tmp_path, max_bad=1.0)


def test_folders_without_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is empty. Put images into it"):
        read(tmp_path)
    (tmp_path / "a.heic").touch()
    with pytest.raises(DataError, match=r"holds 1 other files \(1 .heic\). Convert them"):
        read(tmp_path)
    write_idx(tmp_path / "train-images-idx3-ubyte", NOISE)
    with pytest.raises(DataError, match=r"To read an idx file, name it: .*/train-images-idx3-ubyte"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("source", "meant"),
    [
        ("digts", "'digits'"),
        ("fashion_mnist", "'fashion-mnist'"),
        ("./fotos", "'./photos'"),
        ("photo", "'photos'"),
    ],
)
def test_a_mistyped_source_is_answered_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, meant: str
) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=f"Did you mean {meant}\\?") as error:
        read(source)
    assert error.value.exit_code == 3


@pytest.mark.parametrize("source", ["", "/no/such/place", "x" * 5000, "a\0b"])
def test_a_source_that_is_nothing_is_refused(source: str) -> None:
    with pytest.raises(DataError, match="Give a known set, a folder of images, a zip of one, or an idx file"):
        read(source)


def test_the_fingerprint_knows_pixels_order_shape_and_labels(tmp_path: Path) -> None:
    labels = np.arange(6)
    prints = [
        fingerprint(NOISE, labels),
        fingerprint(NOISE[::-1], labels),
        fingerprint(NOISE, labels[::-1]),
        fingerprint(NOISE, None),
        fingerprint(NOISE.reshape(6, 4, 16), labels),
    ]
    assert len(set(prints)) == len(prints)
    assert fingerprint(NOISE.copy(), labels.astype(np.int32)) == prints[0]
    picture(tmp_path / "one" / "a.png", 5)
    picture(tmp_path / "two" / "b.png", 5)
    assert read(tmp_path / "one").fingerprint == read(tmp_path / "two").fingerprint
