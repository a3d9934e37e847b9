"""Images as bytes: the range is seen, held and said, and what has another is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from safelight.data.tensors import PixelRange, chunks_of, image_of
from safelight.errors import DataError

LEVELS = torch.arange(256).reshape(1, 1, 16, 16)
BYTES = LEVELS.to(torch.uint8)
UNIT = LEVELS / 255


@pytest.mark.parametrize(
    ("images", "words"),
    [(BYTES, "uint8"), (UNIT, "[0, 1]"), (UNIT * 2 - 1, "[-1, 1]"), ((UNIT * 2 - 1).to(torch.float64), "[-1, 1]")],
)
def test_every_range_gives_the_same_bytes(images: torch.Tensor, words: str) -> None:
    range_ = PixelRange("samples")
    assert torch.equal(range_.to_bytes(images), BYTES)
    assert range_.words == words


@pytest.mark.parametrize(
    ("images", "given", "words"),
    [
        (LEVELS.float(), None, "neither"),
        (UNIT * 2, None, "scale them"),
        (LEVELS, None, "int64"),
        (UNIT.clone().fill_(torch.nan), None, "not finite"),
        (torch.zeros(2, 5, 4, 4), None, "shape"),
        (UNIT, "[0, 2]", "value_range"),
    ],
)
def test_other_images_are_refused(images: torch.Tensor, given: str | None, words: str) -> None:
    with pytest.raises(DataError, match=words):
        PixelRange("samples", given).to_bytes(images)


def test_a_range_is_held_and_what_is_clamped_is_said() -> None:
    range_ = PixelRange("samples")
    range_.to_bytes(UNIT)
    assert range_.to_bytes(UNIT - 0.01).min() == 0  # an overshoot of a sampler
    with pytest.raises(DataError, match="value_range"):
        range_.to_bytes(UNIT * 2 - 1)
    both = PixelRange("samples")
    both.to_bytes(UNIT * 2 - 1)
    assert both.to_bytes(UNIT).min() == 128  # still [-1, 1]: a bright batch
    assert both.to_bytes((UNIT * 2 - 1) * 1.2).max() == 255
    assert "clamped" in both.words
    assert PixelRange("samples", "[-1, 1]").to_bytes(UNIT).min() == 128


def test_channels_may_be_last_or_left_out() -> None:
    range_ = PixelRange("samples")
    assert range_.to_bytes(torch.zeros(2, 8, 6, 3)).shape == (2, 3, 8, 6)
    assert range_.to_bytes(torch.zeros(4, 8, 8)).shape == (4, 1, 8, 8)


IMAGES = torch.rand(300, 1, 4, 4)


@pytest.mark.parametrize(
    "data",
    [
        IMAGES,
        IMAGES.numpy(),
        list(IMAGES),
        [(image, 0) for image in IMAGES],
        [{"image": image.numpy()} for image in IMAGES],
        TensorDataset(IMAGES, torch.zeros(300)),
        DataLoader(TensorDataset(IMAGES), batch_size=7),
        iter(IMAGES.split(11)),
    ],
    ids=lambda data: type(data).__name__,
)
def test_all_kinds_of_sets_are_read(data: Any) -> None:
    assert torch.equal(torch.cat(list(chunks_of(data, "samples"))), IMAGES)


def test_pictures_are_read_and_nonsense_is_refused() -> None:
    [found] = chunks_of([Image.new("L", (4, 4), 7)], "samples")
    assert found.shape == (1, 3, 4, 4)
    for data in (3, "word", [3], [torch.zeros(1, 4, 4), torch.zeros(1, 5, 5)]):
        with pytest.raises(DataError):
            list(chunks_of(data, "samples"))


def test_the_image_of_an_item() -> None:
    image = np.zeros((1, 4, 4), np.float32)
    for item in (image, (image, 3), {"pixel_values": image}, torch.zeros(1, 4, 4)):
        found = image_of(item)
        assert found is not None
        assert found.shape == (1, 4, 4)
    assert image_of("word") is None
