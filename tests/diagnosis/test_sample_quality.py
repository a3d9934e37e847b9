"""What is said of samples in one sentence, of numbers as they are recorded."""

from __future__ import annotations

from typing import Any

import pytest

from safelight.diagnosis.sample_quality import distance_over_gaussian, judge_samples, missing_share


def distances(fd: float, kernel: float, error: float = 0.1) -> dict[str, Any]:
    return {"unbiased": {"value": fd, "error": error}, "kernel": {"value": kernel, "error": error}}


@pytest.mark.parametrize(
    ("own", "gaussian", "ratio"),
    [
        (distances(1, 1), distances(4, 10), 0.25),
        (distances(1, 9), distances(4, 10), 0.9),  # the worse of both
        (distances(-0.1, -0.2), distances(4, 10), 0.0),
        (distances(3, 9), distances(4, 0.3), 0.75),  # a kernel distance that could be 0 is no yardstick
        (distances(3, 9), distances(0.3, 0.3), None),
        (distances(3, 9), None, None),
    ],
)
def test_the_distance_over_that_of_a_gaussian(
    own: dict[str, Any], gaussian: dict[str, Any] | None, ratio: float | None
) -> None:
    found = distance_over_gaussian(own | {"gaussian": gaussian})
    assert found == (None if ratio is None else pytest.approx(ratio))


def test_kinds_count_as_missing_below_a_third_of_their_share() -> None:
    assert missing_share([[0.0, 0.2], [0.09, 0.3], [0.11, 0.3], [0.8, 0.2]]) == pytest.approx(0.5)
    assert missing_share([]) == 0


@pytest.mark.parametrize(
    ("near", "kind", "words"), [(0.1, None, "too few images to judge"), (1.1, "mush", "no better than a Gaussian")]
)
def test_without_figures_the_gaussian_is_left(near: float, kind: str | None, words: str) -> None:
    found = judge_samples(distances(10 * near, 10 * near) | {"gaussian": distances(10, 10), "figures": {}})
    assert found.kind == kind
    assert words in found.sentence
