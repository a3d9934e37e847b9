"""Copies of training images are found, and held-out images are not taken for copies."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.errors import UsageError
from safelight.evaluate import memorisation, nearest


def real(count: int, seed: int) -> np.ndarray:
    """On a curved surface of 12 dimensions in 32."""
    mix = np.random.default_rng(99).normal(size=(12, 32)) / 12**0.5
    chance = np.random.default_rng(seed)
    return np.tanh(chance.normal(size=(count, 12)) @ mix) + 0.01 * chance.normal(size=(count, 32))


TRAINED, LOOSE = real(800, 0), real(300, 1)


def copied(share: float, how: str, count: int = 200, seed: int = 2) -> np.ndarray:
    samples, copies = real(count, seed), round(share * count)
    copy = TRAINED[np.random.default_rng(seed).integers(0, len(TRAINED), copies)]
    if how == "noise":
        copy = copy + 0.03 * np.random.default_rng(seed).normal(size=copy.shape)
    if how == "quantised":
        copy = np.round(copy * 20) / 20
    samples[:copies] = copy
    return samples


@pytest.mark.parametrize("loose", [LOOSE, None], ids=["held out", "nothing held out"])
@pytest.mark.parametrize("how", ["exact", "noise", "quantised"])
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_copies_raise_the_alarm(share: float, how: str, loose: np.ndarray | None) -> None:
    found = memorisation(copied(share, how), TRAINED, loose)
    assert found.alarm
    assert found.copied.value == pytest.approx(share, abs=0.01)
    assert "copies training images" in found.sentence
    assert set(found.closest[:10, 0].tolist()) <= set(range(round(share * 200)))
    assert ("No image was held out" in found.sentence) == (loose is None)
    assert found.smallest <= share


@pytest.mark.parametrize("loose", [True, False])
def test_held_out_images_do_not(loose: bool) -> None:
    found = [memorisation(real(200, s), TRAINED, real(300, s + 100) if loose else None) for s in range(3, 33)]
    assert sum(each.alarm for each in found) <= 1
    assert sum(each.closer for each in found) <= 1


def test_twins_in_the_training_set_hide_no_copies() -> None:
    """Every image twice: the second nearest is as near as the nearest, and a plain ratio would see nothing."""
    twice = np.concatenate([TRAINED, TRAINED + 1e-4])
    found = memorisation(copied(0.05, "exact"), twice, LOOSE)
    assert found.alarm
    plain = nearest.find_nearest(copied(0.05, "noise"), twice).distances
    assert (plain[:, 0] / plain[:, 1] < 1 / 3).sum() == 0


def test_all_a_little_too_near_is_a_second_opinion_only() -> None:
    """Half way to the nearest training image; and too little variety looks just so, which is why it is no alarm."""
    samples = real(300, 2)
    half = nearest.find_nearest(samples, TRAINED)
    dull = memorisation(real(300, 2) * 0.5, TRAINED, LOOSE)
    pulled = memorisation(0.6 * samples + 0.4 * TRAINED[half.places[:, 0]], TRAINED, LOOSE)
    for found in (dull, pulled):
        assert found.closer
        assert found.likeness < -2
        assert "or its samples vary too little" in found.sentence or found.alarm
    assert not dull.alarm
    assert not memorisation(samples, TRAINED, LOOSE).closer


def test_pixels_work_as_well_and_copies_have_distance_0() -> None:
    chance = np.random.default_rng(0)
    images = chance.integers(0, 256, (300, 4, 4, 3), np.uint8)
    samples = chance.integers(0, 256, (200, 4, 4, 3), np.uint8)
    samples[:10] = images[:10]
    found = memorisation(samples, images[:200], images[200:])
    assert found.alarm
    assert (found.ratios[:10] == 0).all()
    assert found.closest[:10].tolist() == [[i, i] for i in range(10)]


def test_few_samples_say_what_they_could_not_see() -> None:
    assert memorisation(real(8, 5), TRAINED, real(8, 6)).smallest > 0.3


@pytest.mark.parametrize(
    ("samples", "trained", "loose", "words"),
    [
        (real(3, 0), TRAINED, None, "at least 4 rows of features, came 3"),
        (real(9, 0), TRAINED[:, :5], None, "5 dimensions as in the training images, came 32"),
        (real(9, 0), TRAINED[:5], None, "at least 10 rows of training images, came 5"),
        (real(9, 0), TRAINED[:0], LOOSE, "at least 1 rows of training images"),
        (real(9, 0), TRAINED, LOOSE[:2], "rows of held-out images, came 2"),
        (real(9, 0), np.where(np.arange(800)[:, None] == 700, np.nan, TRAINED), LOOSE, "32 NaN or infinite values"),
    ],
)
def test_refusals(samples: np.ndarray, trained: np.ndarray, loose: np.ndarray | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        memorisation(samples, trained, loose)
