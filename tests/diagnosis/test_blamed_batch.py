"""The batch of a finding, from facts that anybody may have written."""

from __future__ import annotations

import math
from typing import Any

import pytest

from safelight.diagnosis.blamed_batch import MOST_IN_WORDS, MOST_SAMPLES, batch_at, blamed_batch
from safelight.diagnosis.run_history import InMemoryReadings

IMAGES = {"image_min": -1.0, "image_max": 1.0, "image_mean": 0.1, "image_std": 0.5}
ANSWER = {"prediction_min": -2.0, "prediction_max": 3.0, "prediction_mean": 0.0, "prediction_std": 1.0,
          "prediction_nonfinite": 0.25}  # fmt: skip
WHOLE = {"samples": [4, 8], "timesteps": [10, 0.5], "picture": "samples/refused_00000004.png"} | IMAGES | ANSWER


def test_all_of_it_is_told() -> None:
    found = blamed_batch(3, WHOLE)
    assert found is not None
    assert found.words() == [
        "batch of step 3: images 4 (t 10), 8 (t 0.5)",
        "images: -1 to 1, mean 0.1, deviation 0.5",
        "prediction: -2 to 3, mean 0, deviation 1, 25.00% not finite",
        "picture: samples/refused_00000004.png",
    ]


def test_an_older_record_has_less_of_it() -> None:
    found = blamed_batch(3, {"samples": [4], "timesteps": [10]} | IMAGES)
    assert found is not None
    assert found.words() == ["batch of step 3: images 4 (t 10)", "images: -1 to 1, mean 0.1, deviation 0.5"]


def test_where_nothing_is_finite_it_says_so() -> None:
    found = blamed_batch(3, WHOLE | dict.fromkeys(ANSWER, "NaN") | {"prediction_nonfinite": 1.0})
    assert found is not None
    assert math.isnan(found.prediction["min"])
    assert "prediction: nothing is finite, 100.00% not finite" in found.words()


def test_large_batches_are_cut() -> None:
    found = blamed_batch(3, WHOLE | {"samples": list(range(999)), "timesteps": [1] * 999})
    assert found is not None
    assert len(found.samples) == len(found.timesteps) == MOST_SAMPLES
    assert found.words()[0].count("(t 1)") == MOST_IN_WORDS
    assert found.words()[0].endswith(" …")


@pytest.mark.parametrize(
    "facts",
    [{}, {"samples": []}, {"samples": 5, "timesteps": 5}, {"samples": ["a"], "timesteps": [1]},
     {"samples": [1, 2], "timesteps": [1]}, {"samples": [math.inf], "timesteps": [1]},
     {"samples": [[1]], "timesteps": [1]}],
)  # fmt: skip
def test_facts_of_another_kind_are_no_batch(facts: dict[str, Any]) -> None:
    assert blamed_batch(3, facts) is None


@pytest.mark.parametrize(
    ("event", "is_there"),
    [((3, "refused", WHOLE), True), ((4, "refused", WHOLE), False), ((3, "evaluated", WHOLE), False),
     ((3, "refused", WHOLE | {"overflow": True}), False)],
    ids=["refused", "another step", "another event", "an overflow of fp16"],
)  # fmt: skip
def test_a_finding_has_the_batch_of_its_step(event: tuple[int, str, dict[str, Any]], is_there: bool) -> None:
    assert (batch_at(InMemoryReadings({}, [event]), 3) is not None) == is_there


@pytest.mark.parametrize("changed", [{"image_min": "x"}, {"prediction_max": None}, {"picture": 5}])
def test_what_is_forged_is_shown_as_unknown(changed: dict[str, Any]) -> None:
    found = blamed_batch(3, WHOLE | changed)
    assert found is not None
    assert found.words()
