"""A few hundred images: their range, and what is empty, broken or there twice."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from safelight.probes import dataset
from safelight.probes.dataset import SeenImages, SeenInputs, measure_images, take_images
from safelight.yardstick.fixed_samples import SIZE

IMAGES = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1


class Pairs(Dataset[Any]):
    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, place: int) -> Any:
        if place >= len(IMAGES):
            raise IndexError(place)
        return self.kind(IMAGES[place])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a tensor", IMAGES),
        ("a tensor with a graph", IMAGES.clone().requires_grad_()),
        ("an array", IMAGES.numpy()),
        ("bf16", IMAGES.bfloat16()),
        ("images", Pairs(lambda image: image)),
        ("image and label", Pairs(lambda image: (image, 3))),
        ("a dictionary", Pairs(lambda image: {"label": 3, "pixel_values": image})),
        ("arrays", Pairs(lambda image: image.numpy())),
        ("torch's own", TensorDataset(IMAGES)),
        ("a list", list(IMAGES)),
    ],
)
def test_what_images_are_taken_from(name: str, data: Any) -> None:
    found = take_images(data)
    assert found is not None
    assert found.shape == (40, 1, 4, 4)
    assert np.allclose(found, IMAGES.numpy(), atol=0.01)


@pytest.mark.parametrize(
    "data", [None, 3, "photos", [], torch.zeros(0, 1, 4, 4), torch.zeros(5), [None, None], iter([])]
)
def test_what_cannot_be_looked_at(data: Any) -> None:
    assert take_images(data) is None


def test_images_of_several_sizes_are_left() -> None:
    assert take_images([torch.zeros(1, 4, 4), torch.zeros(1, 5, 5)]) is None


def test_a_part_is_taken_evenly() -> None:
    found = take_images(torch.arange(1000.0)[:, None].expand(-1, 4), 5)
    assert found is not None
    assert found[:, 0].tolist() == [0, 250, 500, 749, 999] or found[:, 0].tolist() == [0, 250, 500, 750, 999]


def changed(**changes: Any) -> np.ndarray:
    images = IMAGES.numpy().copy()
    for place, value in changes.items():
        images[: int(place[1:])] = value
    return images


@pytest.mark.parametrize(
    ("name", "images", "signal", "number"),
    [
        ("sound", changed(), "data/blank", 0),
        ("sound", changed(), "data/duplicates", 0),
        ("sound", changed(), "data/nonfinite", 0),
        ("not a number", changed(n4=np.nan), "data/nonfinite", 0.1),
        ("infinite", changed(n4=np.inf), "data/nonfinite", 0.1),
        ("blank", changed(n10=0.3), "data/blank", 0.25),
        ("copies", changed(n10=IMAGES[20].numpy()), "data/duplicates", 10 / 40),
        ("copies", changed(n10=IMAGES[20].numpy()), "data/largest_group", 11 / 40),
        ("nearly blank", changed(n10=0.3 + 0.01 * IMAGES[:10].numpy()), "data/blank", 0),
        ("nearly copies", changed(n10=IMAGES[20].numpy() + 1e-4 * IMAGES[:10].numpy()), "data/duplicates", 0),
        ("255", 255 * np.abs(changed()), "data/lowest", np.abs(IMAGES.numpy()).min() * 255),
        ("all broken", changed(n40=np.nan), "data/nonfinite", 1),
    ],
)
def test_answers(name: str, images: np.ndarray, signal: str, number: float) -> None:
    readings = measure_images(images)
    assert readings[signal] == pytest.approx(number, abs=1e-6)
    assert all(np.isfinite(value) for value in readings.values())


def test_the_range_is_that_of_the_sound_ones() -> None:
    readings = measure_images(changed(n4=np.inf))
    assert readings["data/highest"] <= 1
    assert readings["data/images"] == 40


def test_vectors_are_not_called_blank() -> None:
    assert measure_images(np.ones((8, 2), np.float32))["data/blank"] == 0


@pytest.mark.parametrize(
    ("name", "data", "integer"),
    [
        ("a tensor of bytes", (IMAGES * 127 + 128).to(torch.uint8), True),
        ("an array of bytes", (IMAGES * 127 + 128).to(torch.uint8).numpy(), True),
        ("truth values", IMAGES > 0, True),
        ("floats", IMAGES, False),
        ("doubles", IMAGES.double().numpy(), False),
        ("bf16", IMAGES.bfloat16(), False),
    ],
)
def test_images_of_an_integer_type(name: str, data: Any, integer: bool) -> None:
    images = take_images(data)
    assert images is not None
    assert measure_images(images)["data/integer"] == integer


def test_images_and_labels_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "MAX_IMAGES", SIZE + 10)
    seen = SeenImages()
    for start in range(0, 4 * SIZE, 50):
        labels = torch.arange(start, start + 50)
        seen.add(labels.half().view(-1, 1, 1, 1).expand(-1, 1, 2, 2), {"y": labels})
    assert seen.is_full
    assert len(seen) == len(seen.images()) == SIZE + 10
    assert seen.images().dtype == torch.float32
    assert seen.extras()["y"].tolist() == list(range(SIZE)) == seen.images()[:SIZE, 0, 0, 0].tolist()


def test_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "MAX_BYTES", 100 * 16)
    seen = SeenImages()
    for _ in range(9):
        seen.add(torch.zeros(30, 1, 2, 2), {})
    assert len(seen) == 100


def test_what_is_seen_is_a_copy() -> None:
    seen, x0 = SeenImages(), torch.zeros(4, 1, 2, 2)
    seen.add(x0, {})
    x0 += 1
    assert not seen.images().any()


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (0.5, 0.25), (-0.8, 0.5)])
def test_the_scale_of_clean_images_is_that_of_noisy_ones_without_their_noise(mean: float, deviation: float) -> None:
    drawn, seen = torch.Generator().manual_seed(0), SeenInputs()
    for _ in range(16):
        kept = torch.rand(16, 1, 1, 1, generator=drawn)
        x0, noise = (torch.randn(16, 1, 8, 8, generator=drawn) for _ in range(2))
        a, s = kept.sqrt(), (1 - kept).sqrt()
        seen.add(a * (mean + deviation * x0) + s * noise, a, s)
    assert seen.mean_and_deviation() == pytest.approx((mean, deviation), abs=0.05)


def test_nothing_seen_has_no_scale() -> None:
    assert all(map(math.isnan, SeenInputs().mean_and_deviation()))
