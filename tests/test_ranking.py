"""The verdict of a comparison: who is better, by how much, and whether that is more than chance."""

from __future__ import annotations

import math

import pytest

from safelight.ranking import Result, p_value, rank


def result(name: str, distance: float | None, error: float | None = 0.1, **more: object) -> Result:
    return Result(name, 100, "images", "FID", distance, error, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("results", "best", "words"),
    [
        (
            [result("a", 0.81), result("b", 0.15)],
            1,
            "b is better than a: FID 0.15 ± 0.10 against 0.81 ± 0.10, p < 0.0001.",
        ),
        ([result("a", 0.21), result("b", 0.15)], None, "No clear difference between b and a"),
        ([result("a", 0.8), result("b", 0.1), result("c", 2.0)], 1, "b is the best of 3"),
        ([result("a", 0.3), result("b", 0.1), result("c", 2.0)], None, "b is ahead, but not clearly better than a"),
        ([result("a", 0.3), result("b", None)], None, "b has no evaluation"),
        ([result("a", 0.3), Result("b", 100, "others", "FID", 0.1, 0.1)], None, "different images"),
        ([result("a", 0.3), Result("b", 100, "images", "FD-lite0", 0.1, 0.1)], None, "evaluated in different ways"),
        ([result("a", None, skill=1.2), result("b", None, skill=1.5)], None, "1.50 (b) against 1.20 (a)"),
    ],
)
def test_a_better_run_is_named_only_where_chance_is_ruled_out(
    results: list[Result], best: int | None, words: str
) -> None:
    found = rank(results)
    assert found["best"] == best
    assert words in found["sentence"]
    assert "steps differ" not in found["sentence"]


def test_different_lengths_are_said() -> None:
    found = rank([result("a", 0.8), Result("b", 200, "images", "FID", 0.1, 0.1)])
    assert found["sentence"].endswith("Their steps differ: a 100, b 200.")


def test_p_is_that_of_two_normal_errors() -> None:
    apart = 1.96 * math.hypot(0.1, 0.2)
    assert p_value(result("a", 1.0, 0.1), result("b", 1.0 + apart, 0.2)) == pytest.approx(0.05, abs=1e-3)


def test_one_test_for_each_other_run() -> None:
    """2.1 standard errors apart: clear for a pair, not among ten."""
    apart = 2.1 * math.hypot(0.1, 0.1)
    pair = [result("a", 1.0), result("b", 1.0 + apart)]
    assert rank(pair)["best"] == 0
    assert rank([*pair, *(result(f"c{n}", 9.0 + n) for n in range(8))])["best"] is None
