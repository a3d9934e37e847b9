"""The kernel distance against all pairs one by one, and its error against repeated draws."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.errors import UsageError
from safelight.evaluate import kernel, kernel_distance
from safelight.evaluate.kernel import fit_kernel_reference


def oracle(x: np.ndarray, y: np.ndarray) -> float:
    def k(a: np.ndarray, b: np.ndarray) -> float:
        return (a @ b / len(a) + 1) ** 3

    own = np.mean([k(a, b) for i, a in enumerate(x) for j, b in enumerate(x) if i != j])
    other = np.mean([k(a, b) for i, a in enumerate(y) for j, b in enumerate(y) if i != j])
    return float(own + other - 2 * np.mean([k(a, b) for a in x for b in y]))


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "m", "chunk"), [(4, 4, 1024), (30, 17, 8), (16, 40, 16), (33, 33, 32)])
def test_it_is_the_mean_over_all_pairs(n: int, m: int, chunk: int, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_CHUNK", chunk)
    chance = np.random.default_rng(n)
    x, y = chance.normal(0.3, 1, (n, 5)).astype(kind), chance.normal(size=(m, 5)).astype(kind)
    wanted = oracle(x.astype(np.float64), y.astype(np.float64))
    assert kernel_distance(x, y).value == pytest.approx(wanted)
    assert kernel_distance(x, fit_kernel_reference(y)).value == pytest.approx(wanted)


@pytest.mark.parametrize("shift", [0.0, 0.3])
@pytest.mark.parametrize("fixed", [True, False])
def test_the_error_is_the_deviation_over_draws(shift: float, fixed: bool) -> None:
    """Also of two sets of one kind, where the first order vanishes; there values below 0 are half of all."""
    kept = fit_kernel_reference(np.random.default_rng(0).normal(size=(150, 4)))
    values, errors = [], []
    for seed in range(1, 200):
        chance = np.random.default_rng(seed)
        x = chance.normal(shift, 1, (100, 4))
        found = kernel_distance(x, kept if fixed else chance.normal(size=(150, 4)))
        values.append(found.value)
        errors.append(found.error)
    assert np.mean(np.square(errors)) ** 0.5 == pytest.approx(np.std(values), rel=0.25)
    if not fixed:
        assert (np.mean(np.array(values) < 0) > 0.3) == (shift == 0)


def test_words_and_refusals() -> None:
    chance = np.random.default_rng(0)
    x, y = chance.normal(size=(200, 4)), chance.normal(size=(200, 4))
    assert "not clearly different from 0" in kernel_distance(x, y).sentence
    assert "clearly more than 0" in kernel_distance(x + 1, y).sentence
    with pytest.raises(UsageError, match="came 3"):
        kernel_distance(x[:3], y)
    with pytest.raises(UsageError, match="of 4 dimensions as in the reference, came 2"):
        kernel_distance(x[:, :2], y)
