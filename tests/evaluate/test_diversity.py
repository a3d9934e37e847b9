"""Variety: healthy samples are left alone, lacking ones are named."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.errors import UsageError
from safelight.evaluate import diversity
from safelight.evaluate.diversity import mean_distance, vendi


def real(count: int, seed: int, kinds: int = 10, width: float = 0.3) -> np.ndarray:
    chance = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(10, 8)) * 2
    return centres[chance.integers(0, kinds, count)] + width * chance.normal(size=(count, 8))


def test_measures_against_loops() -> None:
    x = np.random.default_rng(0).normal(size=(30, 4)) + 1e5
    wanted = np.mean([np.linalg.norm(a - b) for i, a in enumerate(x) for j, b in enumerate(x) if i != j])
    assert mean_distance(x) == pytest.approx(wanted, rel=1e-7)
    units = (x - x.mean(0)) / np.linalg.norm(x - x.mean(0), axis=1, keepdims=True)
    values = np.linalg.eigvalsh(units @ units.T / 30)
    values = values[values > 1e-12]
    assert vendi(x - x.mean(0)) == pytest.approx(np.exp(-(values * np.log(values)).sum()))
    assert vendi(np.eye(4)) == pytest.approx(4)
    assert vendi(np.ones((9, 3))) == pytest.approx(1)


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (real(400, 1), ("as real images do",) * 3),
        (real(150, 1).astype(np.float32), ("as real images do",) * 3),
        (real(400, 1, kinds=2), ("part of the variety is missing",) * 3),
        (np.repeat(real(4, 1), 100, 0), ("", "", "part of the variety is missing")),
        (np.ones((400, 8)), ("part of the variety is missing",) * 3),
        (real(400, 1, width=2.0), ("they vary more than real images",) * 3),
    ],
    ids=["real", "few real", "two kinds", "four images", "one image", "noise"],
)
def test_variety(samples: np.ndarray, words: tuple[str, ...]) -> None:
    found = diversity(samples, real(1000, 0))
    for figure, wanted in zip((found.variance, found.distance, found.vendi), words, strict=True):
        assert wanted in figure.sentence
        assert figure.baseline[0] < 1 < figure.baseline[1]
        assert figure.low <= figure.value <= figure.high


def test_real_images_are_rarely_accused() -> None:
    y = real(600, 0)
    found = [diversity(real(200, seed), y) for seed in range(1, 21)]
    wrong = ["as real" not in each.sentence for one in found for each in (one.variance, one.distance, one.vendi)]
    assert np.mean(wrong) <= 0.05


def test_refusals() -> None:
    y = real(100, 0)
    with pytest.raises(UsageError, match="at least 8 real images"):
        diversity(y, y[:6])
    with pytest.raises(UsageError, match="do not vary at all"):
        diversity(y, np.ones((100, 8)))
    with pytest.raises(UsageError, match="came 2"):
        diversity(y[:2], y)
    with pytest.raises(UsageError, match="NaN"):
        diversity(np.where(y > 0, np.nan, y), y)
