"""Pixels of samples against real images: each gross fault moves its own number far out of the range of real ones."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.diagnosis.sample_appearance import judge_appearance
from safelight.evaluate.appearance import RealAppearance, pixel_statistics


def images(count: int, seed: int) -> np.ndarray:
    """Discs of any colour and place on grey."""
    draws = np.random.default_rng(seed)
    rows, columns = np.mgrid[:16, :16]
    found = np.full((count, 3, 16, 16), 128, np.uint8)
    for image in found:
        place, radius = draws.uniform(4, 12, 2), draws.uniform(3, 6)
        disc = (rows - place[0]) ** 2 + (columns - place[1]) ** 2 < radius**2
        image[:, disc] = draws.integers(20, 236, 3, dtype=np.uint8)[:, None]
    return found


REAL, OTHERS = images(300, 0), images(64, 1)
NOISE = np.random.default_rng(2).normal(0, 60, OTHERS.shape)


def levels(numbers: np.ndarray) -> np.ndarray:
    return numbers.clip(0, 255).astype(np.uint8)


ROWS = {
    "other real images": (OTHERS, None),
    "a tenth paler": (levels(128 + 0.9 * (OTHERS - 128.0)), None),
    "a little noise": (levels(OTHERS + 0.05 * NOISE), None),
    "slightly brighter": (levels(OTHERS + 5.0), None),
    "blank": (levels(128 + 0.1 * (OTHERS - 128.0)), "blank"),
    "one image again and again": (np.repeat(OTHERS[:1], 64, axis=0), "alike"),
    "at both ends": (np.where(OTHERS > 127, 255, 0).astype(np.uint8), "saturated"),
    "noise": (levels(128 + NOISE), "noisy"),
    "too bright": (levels(OTHERS + 60.0), "off-colour"),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_fault_is_named(name: str) -> None:
    samples, kind = ROWS[name]
    looks = RealAppearance(REAL).measure(samples)
    found = judge_appearance({"nonfinite": 0.0, "count": 64} | {name: look.to_json() for name, look in looks.items()})
    assert found.kind == kind, (name, looks)


def test_real_images_against_real_ones_are_never_named() -> None:
    real = RealAppearance(REAL)
    for seed in range(2, 42):
        looks = real.measure(images(64, seed))
        assert (
            judge_appearance({"nonfinite": 0.0, "count": 64} | {n: look.to_json() for n, look in looks.items()}).kind
            is None
        )


def test_the_same_images_have_the_same_numbers() -> None:
    assert RealAppearance(REAL).measure(OTHERS) == RealAppearance(REAL).measure(OTHERS)


def test_blank_data_makes_finite_numbers() -> None:
    looks = RealAppearance(np.zeros((20, 1, 8, 8), np.uint8)).measure(np.zeros((4, 1, 8, 8), np.uint8))
    assert all(np.isfinite([look.value, look.low, look.high]).all() for look in looks.values())


def test_statistics_of_one_image() -> None:
    image = np.zeros((1, 1, 2, 2), np.uint8)
    image[0, 0, :, 1] = 100
    found = pixel_statistics(image)
    assert found.contrast[0] == pytest.approx(50)
    assert found.grain[0] == pytest.approx(np.sqrt((0 + 100**2) / 2))
    assert (found.saturated[0], found.colour[0, 0]) == (0.5, 50)
