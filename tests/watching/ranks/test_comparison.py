"""What processes tell, compared: tables of sick, healthy and near misses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from safelight.vocabulary import DATA_APART, DRIFT, GRADIENTS_APART, OVERLAP, REDUCTION, SAME_NOISE
from safelight.watching.ranks.comparison import MIN_LOOKS_AT_DATA, Comparison, reduction

OWN = np.random.default_rng(0).normal(size=(2, 8))


def look(**other: Any) -> dict[str, np.ndarray]:
    found = {"weights": [5], "gradients": [6], "random": [1, 0]} | other
    return {name.replace("__", "/"): np.asarray(value) for name, value in found.items()}


def compare(*looks: dict[str, np.ndarray], pieces: tuple[str, ...] = ("whole", "whole"), bound: bool = True) -> Any:
    return Comparison([[piece] for piece in pieces], is_bound=bound).readings(looks)


def test_weights_and_gradients_are_compared_where_both_hold_the_same() -> None:
    assert compare(look(), look()) == {DRIFT.name: 0.0, GRADIENTS_APART.name: 0.0}
    assert compare(look(), look(weights=[9])) == {DRIFT.name: 1.0, GRADIENTS_APART.name: 0.0}
    assert compare(look(), look(gradients=[9])) == {DRIFT.name: 0.0, GRADIENTS_APART.name: 1.0}
    assert compare(look(), look(weights=[9]), pieces=("half", "other half")) == {}


def test_processes_that_begin_apart_are_bound_by_nothing() -> None:
    """Several models, trained side by side."""
    assert compare(look(), look(weights=[9]), bound=False) == {}
    apart = Comparison([["whole"], ["whole"]], is_bound=False)
    assert apart.readings([look(), look()])[DRIFT.name] == 0
    assert apart.readings([look(), look(weights=[9])])[DRIFT.name] == 1


def test_gradients_that_fsdp_keeps_are_counted() -> None:
    kept, given = look(withheld=[1]), look(withheld=[0])
    pieces = ("half", "other half")
    assert compare(given, given, pieces=pieces) == {GRADIENTS_APART.name: 0.0}
    assert compare(kept, kept, pieces=pieces) == {GRADIENTS_APART.name: 2.0}
    added = look(withheld=[0], multiple=[2.0])
    assert compare(added, added, pieces=pieces) == {GRADIENTS_APART.name: 0.0, REDUCTION.name: 2.0}


@pytest.mark.parametrize(
    ("reduced", "factor"),
    [
        (OWN.mean(0), 1.0),
        (OWN.sum(0), 2.0),
        (0.1 * OWN.mean(0), 0.1),  # clipped
        (OWN[0], None),  # not reduced
        (OWN.mean(0) * np.nan, None),
        (OWN.mean(0) * 0, None),
    ],
)
def test_the_multiple_of_the_mean(reduced: np.ndarray, factor: float | None) -> None:
    found = reduction([{"parts": np.stack([own, reduced])} for own in OWN])
    assert found == (None if factor is None else pytest.approx(factor))
    assert reduction([{}, {"parts": np.stack([OWN[1], reduced])}]) is None


def test_noise_is_compared_by_itself_and_else_by_a_generator_that_is_used() -> None:
    assert compare(look(noise=[3]), look(noise=[3]))[SAME_NOISE.name] == 1
    assert compare(look(noise=[3]), look(noise=[4]))[SAME_NOISE.name] == 0
    assert SAME_NOISE.name not in compare(look(random=[1, 0]), look(random=[1, 0])), "it draws nothing"
    assert compare(look(random=[1, 1]), look(random=[1, 1]))[SAME_NOISE.name] == 1
    assert compare(look(random=[1, 1], noise=[3]), look(random=[1, 1], noise=[4]))[SAME_NOISE.name] == 0


def told(mean: float, deviation: float, rows: tuple[int, ...] = (1, 2), source: str = "loaded") -> dict[str, Any]:
    return look(**{f"{source}__rows": rows, f"{source}__moments": [mean, mean**2 + deviation**2]})


def test_samples_and_their_moments_are_compared() -> None:
    comparison = Comparison([["whole"]] * 3, is_bound=True)
    for number in range(MIN_LOOKS_AT_DATA):
        rows = [(1, 2), (3, 4), (4, 5)]
        looks = [told(0, 1, each) for each in rows[:2]] + [told(0.5, 0.5, rows[2])]
        found = comparison.readings(looks)
        assert found[OVERLAP.name] == pytest.approx(2 / 6)
        assert any(name.startswith(DATA_APART.name) for name in found) == (number == MIN_LOOKS_AT_DATA - 1)
    apart = [found[f"{DATA_APART.name}/{rank:02d}"] for rank in range(3)]
    assert apart[2] == pytest.approx(np.log(2) / np.log(1.5))
    assert max(apart[:2]) < 1, "the others have two on their side"


def test_like_is_compared_with_like() -> None:
    """What one process passes and another only loads are not the same thing."""
    assert OVERLAP.name not in compare(told(0, 1, source="passed"), told(0, 1))
    both = told(0, 1, (7, 8), source="passed") | told(0, 1, (1, 2))
    assert compare(both, told(0, 1, (1, 2)))[OVERLAP.name] == 1
