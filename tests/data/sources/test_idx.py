"""idx files: labels found beside the images, and every kind of damage refused in words."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from image_sets import NOISE, picture, read_set, write_idx

from safelight.data.sources import idx
from safelight.errors import DataError


def test_fashion_mnist_is_found_where_debian_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_idx(tmp_path / "train-images-idx3-ubyte.gz", NOISE, packed=True)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.arange(6, dtype=np.uint8), packed=True)
    monkeypatch.setattr(idx, "FASHION_MNIST", file)
    images = read_set("fashion-mnist")
    assert images.class_names[9] == "ankle boot"
    assert images.labels is not None
    assert images.labels.tolist() == list(range(6))


def test_missing_fashion_mnist_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idx, "FASHION_MNIST", tmp_path / "nowhere.gz")
    with pytest.raises(DataError, match="apt-get install dataset-fashion-mnist"):
        read_set("fashion-mnist")


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
    images = read_set(tmp_path / images_name)
    assert (images.pixels[..., 0] == NOISE).all()
    assert images.class_names == ("1", "2", "5")
    assert images.labels is not None
    assert images.labels.tolist() == [0, 1, 1, 2, 0, 0]


def test_idx_without_labels_and_in_colour(tmp_path: Path) -> None:
    colour = np.random.default_rng(1).integers(0, 256, (3, 10, 20, 3), np.uint8)
    images = read_set(write_idx(tmp_path / "photos.idx", colour))
    assert images.pixels.shape == (3, 8, 8, 3)
    assert images.labels is None
    assert images.class_names == ()
    assert read_set(tmp_path / "photos.idx", channels=1).pixels.shape == (3, 8, 8, 1)


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
        read_set(tmp_path / "train-images")
    assert str(tmp_path) in str(error.value)
    assert error.value.exit_code == 3


def test_labels_that_do_not_belong_to_the_images(tmp_path: Path) -> None:
    file = write_idx(tmp_path / "images", NOISE)
    write_idx(tmp_path / "labels", np.arange(5, dtype=np.uint8))
    with pytest.raises(DataError, match="6 images and its labels file has 5 labels"):
        read_set(file)
    write_idx(tmp_path / "labels", np.zeros((6, 2), np.float32))
    with pytest.raises(DataError, match="one whole number per image"):
        read_set(file)


def test_one_image_instead_of_its_folder(tmp_path: Path) -> None:
    picture(tmp_path / "cat.PNG")
    with pytest.raises(DataError, match=f"give the folder that holds them: {tmp_path}"):
        read_set(tmp_path / "cat.PNG")
