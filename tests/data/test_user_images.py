"""Images from Python become a source: the same bytes whatever they were passed as, and errors in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from safelight.config.tree import Data
from safelight.data import user_images
from safelight.data.prepare import open_images
from safelight.data.user_images import keep
from safelight.errors import DataError

COUNT = 300
PIXELS = np.random.default_rng(0).integers(0, 256, (COUNT, 8, 8, 3), np.uint8)
PIXELS[0, 0, 0], PIXELS[0, 0, 1] = 0, 255
LABELS = np.arange(COUNT) % 3
TENSOR = torch.from_numpy(PIXELS).permute(0, 3, 1, 2)
SIGNED, UNIT = TENSOR.float() / 127.5 - 1, TENSOR.float() / 255


class Mapped(Dataset[Any]):
    classes = ("cat", "dog", "owl")

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, place: int) -> Any:
        return UNIT[place], int(LABELS[place])


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(UNIT[place], LABELS[place]) for place in range(COUNT)])


def collate(items: list[Any]) -> Any:
    return torch.stack([image for image, _ in items]), torch.tensor([label for _, label in items])


def kept(data: Any, folder: Path) -> tuple[Data, list[str], int | None]:
    said: list[str] = []
    found = keep(data, Data(cache=str(folder)), said.append)
    return Data(source=found.source, image_size=8, cache=str(folder)), said, found.side


UNLABELLED: dict[str, tuple[Callable[[], Any], str]] = {
    "bytes": (lambda: TENSOR, "a tensor, values taken for 0 to 255"),
    "signed": (lambda: SIGNED, "a tensor, values taken for [-1, 1]"),
    "unit": (lambda: UNIT, "a tensor, values taken for [0, 1]"),
    "float bytes": (lambda: TENSOR.double(), "a tensor, values taken for 0 to 255"),
    "integers": (lambda: TENSOR.long(), "a tensor, values taken for 0 to 255"),
    "array": (lambda: PIXELS, "an array, values taken for 0 to 255"),
    "channels first": (lambda: PIXELS.transpose(0, 3, 1, 2), "an array, values taken for 0 to 255"),
    "pictures": (lambda: [Image.fromarray(one) for one in PIXELS], "a list, values taken for 0 to 255"),
    "one tensor": (lambda: TensorDataset(SIGNED), "a TensorDataset, values taken for [-1, 1]"),
    "generator": (lambda: (one for one in PIXELS), "a generator, once, values taken for 0 to 255"),
    "loader": (
        lambda: DataLoader(TensorDataset(SIGNED), 32, shuffle=True),
        "the TensorDataset of a DataLoader, in order",
    ),
}
LABELLED: dict[str, Callable[[], Any]] = {
    "pair": lambda: (TENSOR, LABELS),
    "pair of tensors": lambda: (TENSOR, torch.from_numpy(LABELS)),
    "dataset": lambda: TensorDataset(SIGNED, torch.from_numpy(LABELS)),
    "stream": Streamed,
    "loader of a stream": lambda: DataLoader(Streamed(), 7),
    "own collate": lambda: DataLoader(TensorDataset(SIGNED, torch.from_numpy(LABELS)), 32, collate_fn=collate),
    "dictionaries": lambda: [{"image": i, "label": int(k)} for i, k in zip(PIXELS, LABELS, strict=True)],
}


@pytest.mark.parametrize("name", UNLABELLED)
def test_images_are_the_same_bytes(name: str, tmp_path: Path) -> None:
    make, words = UNLABELLED[name]
    data, said, side = kept(make(), tmp_path)
    images = open_images(data)
    assert (images.pixels == PIXELS).all()
    assert images.class_names == ()
    assert side == 8
    assert words in said[0], said
    assert "300 images of 8 × 8 px" in said[0]


@pytest.mark.parametrize("name", LABELLED)
def test_labels_come_along(name: str, tmp_path: Path) -> None:
    data, _, _ = kept(LABELLED[name](), tmp_path)
    images = open_images(data)
    assert (images.pixels == PIXELS).all()
    assert images.labels is not None
    assert (images.labels == LABELS).all()
    assert images.class_names == ("0", "1", "2")


def test_names_of_classes_and_words_as_labels(tmp_path: Path) -> None:
    assert open_images(kept(Mapped(), tmp_path)[0]).class_names == ("cat", "dog", "owl")
    words = [(one, ("b", "a")[place % 2]) for place, one in enumerate(PIXELS)]
    images = open_images(kept(words, tmp_path)[0])
    assert images.class_names == ("a", "b")
    assert images.labels is not None
    assert images.labels[:2].tolist() == [1, 0]


def test_the_same_images_have_the_same_place(tmp_path: Path) -> None:
    assert kept(TENSOR, tmp_path)[0].source == kept(SIGNED, tmp_path)[0].source
    assert kept(TENSOR.flip(0), tmp_path)[0].source != kept(TENSOR, tmp_path)[0].source
    assert not list(tmp_path.glob(".tmp*")), "nothing is left behind"


def test_sizes_may_differ_and_grey_stays_grey(tmp_path: Path) -> None:
    mixed = [np.zeros((8, 8), np.uint8), np.full((16, 12), 255, np.uint8), np.zeros((8, 8), np.uint8)]
    data, said, side = kept(mixed, tmp_path)
    assert side is None
    assert "3 images from a list" in said[0]
    images = open_images(data)
    assert images.pixels.shape == (3, 8, 8, 1)
    assert images.pixels[1].min() == 255


class Endless:
    def __iter__(self) -> Any:
        while True:
            yield PIXELS[0]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (SIGNED * 3, "values from -3 to 3, which is none of"),
        (torch.full((4, 1, 8, 8), float("nan")), "values from nan to nan"),
        (torch.cat([UNIT, SIGNED]), r"Image 300 has values from -\S+ to \S+, but the others were taken for \[0, 1\]"),
        (torch.zeros(4, 4), "have the shape 4 × 4"),
        (torch.zeros(4, 2, 8, 8), "Image 0 is a Tensor of 2 × 8 × 8"),
        ([], "holds no image"),
        ({"a": 1}, "data is a dict, but it must be"),
        (5, "data is a int, but it must be"),
        ([{"text": 1}], "has the keys text, but none of image"),
        ([(PIXELS[0], 1), (PIXELS[1], None)], "Image 1 has no label, but others have one"),
        ([(PIXELS[0], np.zeros(3))], "The label of image 0 is"),
        (["a.png"], "Image 0 is a str"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(data: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words):
        kept(data, tmp_path)
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_an_iterable_without_end_stops_at_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter([10**12, 10**12, 10**6])
    monkeypatch.setattr(user_images, "DISK", SimpleNamespace(free=lambda folder: next(free)))
    with pytest.raises(DataError, match=r"After 512 images .* has only 0\.00 GB free"):
        kept(Endless(), tmp_path)
