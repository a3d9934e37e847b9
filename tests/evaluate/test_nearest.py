"""The nearest training images against loops, in any number of pieces."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.evaluate import nearest


def real(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 12))


@pytest.mark.parametrize("chunk", [7, 4096])
def test_nearest_against_a_loop(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "_CHUNK", chunk)
    x, y = real(20, 5), real(50, 6)
    every = np.array([[np.linalg.norm(a - b) for b in y] for a in x])
    found = nearest.find_nearest(x, y)
    assert (found.places == np.argsort(every, axis=1)[:, :8]).all()
    assert np.allclose(found.distances, np.sort(every, axis=1)[:, :8])
    others = nearest.find_nearest_others(y, np.array([3, 11, 12, 49]))
    assert not (others.places == np.array([[3], [11], [12], [49]])).any()
    assert (others.distances > 0).all()


def test_the_usual_distance_leaves_duplicates_out() -> None:
    line = np.array([[0.0], [0.0], [3.0], [6.0], [9.0]])
    everyone = np.arange(len(line))
    assert nearest.find_nearest_others(line, everyone).usual_distance() == 3
    assert nearest.find_nearest_others(np.zeros((5, 1)), everyone).usual_distance() == 0


@pytest.mark.parametrize(("twins", "ratio"), [(0.5, 0.2), (0.05, 1.0)], ids=["a twin is skipped", "no twin"])
def test_the_second_nearest_is_no_twin_of_the_nearest(twins: float, ratio: float) -> None:
    trained = np.array([[1.0], [1.1], [-5.0]])
    found = nearest.find_nearest(np.array([[0.0]]), trained).ratios(trained, twins)
    assert found == pytest.approx([ratio], rel=0.1)


def test_a_copy_far_from_0_has_distance_0() -> None:
    trained = real(20, 0) + 1e6
    found = nearest.find_nearest(trained[:3], trained)
    assert (found.distances[:, 0] == 0).all()
    assert (found.ratios(trained, 0.0) == 0).all()
