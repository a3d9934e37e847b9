"""Variety and kinds of images: healthy samples are left alone, lacking ones are named."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from safelight.errors import UsageError
from safelight.evaluate import diversity, modes
from safelight.evaluate.chances import holm, more_often
from safelight.evaluate.diversity import mean_distance, vendi
from safelight.evaluate.modes import count_different


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


def test_kinds_of_images() -> None:
    y = real(1000, 0)
    same, two = modes(real(500, 1), y, count=10), modes(real(500, 1, kinds=2), y, count=10)
    assert same.coverage.value == 1
    assert "as real images do" in same.coverage.sentence
    assert "no crowding" in same.largest.sentence
    assert same.different.value == 0
    assert two.coverage.value <= 0.5
    assert "kinds are missing" in two.coverage.sentence
    assert "crowd" in two.largest.sentence
    assert two.different.value >= 8
    assert "not that of real images" in two.different.sentence
    assert np.allclose(two.shares.sum(0), 1)
    assert len(modes(real(500, 1), y).shares) == 25  # one per 20 of half the real images
    # Fitted on the samples themselves, every kind would be visited, whatever is missing.
    own = KMeans(10, random_state=0).fit(real(500, 1, kinds=2))
    assert len(set(own.labels_.tolist())) == 10


def test_more_samples_do_not_visit_more_by_their_number() -> None:
    y = real(400, 0)
    few, many = modes(real(200, 1), y, count=60), modes(real(4000, 1), y, count=60)
    assert many.coverage.value == pytest.approx(few.coverage.value, abs=0.08)


def test_false_differences_are_rare() -> None:
    chance = np.random.default_rng(0)
    false = [count_different(*chance.multinomial(400, np.full(40, 1 / 40), size=2)) > 0 for _ in range(400)]
    assert np.mean(false) <= 0.05
    assert holm(np.array([0.001, 0.04, 0.011, 0.9]), 0.05).tolist() == [True, False, True, False]
    assert holm(np.array([0.013, 0.013, 0.013]), 0.05).tolist() == [True] * 3


@pytest.mark.parametrize("table", [(5, 100, 0, 100), (3, 64, 0, 1000), (0, 10, 3, 10), (10, 10, 0, 5), (7, 50, 6, 40)])
def test_the_exact_chance(table: tuple[int, int, int, int]) -> None:
    from scipy.stats import fisher_exact

    hits, count, other, others = table
    wanted = fisher_exact([[hits, count - hits], [other, others - other]], alternative="greater")[1]
    assert more_often(*table) == pytest.approx(wanted)


def test_refusals() -> None:
    y = real(100, 0)
    with pytest.raises(UsageError, match="at least 8 real images"):
        diversity(y, y[:6])
    with pytest.raises(UsageError, match="do not vary at all"):
        diversity(y, np.ones((100, 8)))
    with pytest.raises(UsageError, match="came 30 real images and 0 modes"):
        modes(y, y[:30])
    for function in (diversity, modes):
        with pytest.raises(UsageError, match="came 2"):
            function(y[:2], y)
        with pytest.raises(UsageError, match="NaN"):
            function(np.where(y > 0, np.nan, y), y)
