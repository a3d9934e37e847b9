"""Precision, recall, density and coverage against loops, and what each of them sees."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.errors import UsageError
from safelight.evaluate import neighbours, precision_recall


def oracle(x: np.ndarray, y: np.ndarray, k: int) -> tuple[float, float, float, float]:
    def reach(points: np.ndarray) -> list[float]:
        return [
            sorted(((p - q) ** 2).sum() for j, q in enumerate(points) if j != i)[k - 1] for i, p in enumerate(points)
        ]

    real, own = reach(y), reach(x)
    inside = [[((a - b) ** 2).sum() <= real[j] for j, b in enumerate(y)] for a in x]
    found = [any(((a - b) ** 2).sum() <= own[i] for i, a in enumerate(x)) for b in y]
    held = np.array(inside)
    return float(held.any(1).mean()), float(np.mean(found)), float(held.sum(1).mean() / k), float(held.any(0).mean())


@pytest.mark.parametrize("cells", [1, 100, 1 << 22])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_it_is_what_loops_find(cells: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "_CELLS", cells)
    chance = np.random.default_rng(k)
    x, y = chance.integers(0, 8, (40, 3)) * 0.25, chance.integers(1, 9, (40, 3)) * 0.25  # on a grid: rims are exact
    assert neighbours.score(x, y, k) == pytest.approx(oracle(x, y, k))


def test_twins_are_neighbours() -> None:
    """A strict comparison would give 0 for sets of equal points (prdc, issue 7)."""
    assert neighbours.score(np.ones((20, 2)), np.ones((20, 2)), 5) == (1, 1, 4, 1)
    four = np.random.default_rng(0).normal(100, 1, (4, 7))
    assert neighbours.score(np.repeat(four, 10, 0), np.repeat(four, 10, 0), 5) == (1, 1, 2, 1)


def sets(name: str) -> np.ndarray:
    chance = np.random.default_rng(5)
    x = chance.normal(size=(300, 6))
    if name == "collapsed":
        x *= 0.2
    if name == "stray":
        x[:150] += 8
    return x


@pytest.mark.parametrize(
    ("name", "lacking"),
    [("real", set()), ("collapsed", {"recall", "coverage"}), ("stray", {"precision", "density", "coverage"})],
)
def test_what_each_sees(name: str, lacking: set[str]) -> None:
    real = np.random.default_rng(0).normal(size=(700, 6))
    found = precision_recall(sets(name), real)
    figures = [found.precision, found.recall, found.density, found.coverage]
    low = {each.name for each in figures if each.high < each.baseline[0]}
    assert all(("as real images do" in each.sentence) == (name == "real") for each in figures if each.name in lacking)
    assert ("keep to the middle" in found.precision.sentence) == (name == "collapsed")
    assert low == lacking
    assert {each.count for each in figures} == {300}
    for each in figures:
        assert each.low <= each.value <= each.high
        assert 0.7 < each.baseline[0] <= each.baseline[1] < 1.2


def test_equal_numbers_always() -> None:
    """The larger set is thinned, always alike: the numbers depend on how many there are."""
    chance = np.random.default_rng(0)
    x, y = chance.normal(size=(500, 4)), chance.normal(size=(200, 4))
    assert precision_recall(x, y).recall.count == 100
    assert precision_recall(x, y) == precision_recall(x, y)
    assert neighbours.score(x, y, 5)[1] > precision_recall(x, y).recall.value + 0.01


def test_too_few_are_refused() -> None:
    y = np.random.default_rng(0).normal(size=(10, 2))
    with pytest.raises(UsageError, match="more than 5 images of each kind for 5 neighbours, came 5"):
        precision_recall(y, y)
    with pytest.raises(UsageError, match="came 3"):
        precision_recall(y[:3], y)
