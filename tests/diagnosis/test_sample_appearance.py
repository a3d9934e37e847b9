"""What pixels say: a table of sick, healthy and nearly sick looks."""

from __future__ import annotations

from typing import Any

import pytest

from safelight.diagnosis.sample_appearance import judge_appearance

RANGES = {"contrast": (0.95, 1.08), "apart": (0.93, 1.05), "saturated": (0.1, 0.2), "colour": (0.02, 0.26),
          "grain": (0.93, 1.06)}  # fmt: skip


def facts(**found: float) -> dict[str, Any]:
    own = {"contrast": 1.0, "apart": 1.0, "saturated": 0.15, "colour": 0.1, "grain": 1.0} | found
    looks = {name: {"value": own[name], "low": low, "high": high} for name, (low, high) in RANGES.items()}
    return looks | {"nonfinite": found.get("nonfinite", 0.0), "count": int(found.get("count", 64))}


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        ({}, None, "about those of real images"),
        ({"contrast": 0.2}, "blank", "0.20 times the contrast"),
        ({"contrast": 0.5}, None, ""),
        ({"apart": 0.1}, "alike", "differ 0.10 times as much"),
        ({"apart": 0.5}, None, ""),
        ({"saturated": 0.9}, "saturated", "90% of their values"),
        ({"saturated": 0.5}, None, ""),
        ({"nonfinite": 0.01}, "saturated", "1.0% of the values of the samples are not finite"),
        ({"colour": 1.8}, "off-colour", "1.80 times as far"),
        ({"colour": 0.53}, None, ""),
        ({"grain": 3.0}, "noisy", "3.00 times as much"),
        ({"grain": 1.67}, None, ""),
        ({"grain": 3.0, "count": 15}, None, "15 samples are too few"),
        ({"nonfinite": 0.5, "count": 4}, "saturated", "not finite"),
        ({"contrast": 0.1, "apart": 0.1, "colour": 3.0}, "blank", "blank"),
    ],
)
def test_every_look_has_its_sentence(found: dict[str, float], kind: str | None, words: str) -> None:
    judged = judge_appearance(facts(**found))
    assert judged.kind == kind
    assert words in judged.sentence
