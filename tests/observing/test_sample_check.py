"""Samples of pictures: what is recorded of them, and at which price."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny import parts_of

from safelight.observing import sample_check
from safelight.observing.sample_check import SHORTER, SampleCheck


class Notes:
    """What a record was given."""

    def __init__(self) -> None:
        self.numbers: dict[int, dict[str, float]] = {}
        self.events: list[tuple[int, str, dict[str, Any]]] = []

    def add(self, step: int, numbers: dict[str, float]) -> None:
        self.numbers.setdefault(step, {}).update(numbers)

    def event(self, step: int, kind: str, **facts: Any) -> None:
        self.events.append((step, kind, facts))


def check_of(**settings: Any) -> tuple[SampleCheck, Notes, list[str]]:
    parts, notes, said = parts_of(**{"evaluate.every": None} | settings), Notes(), []
    record: Any = notes
    return SampleCheck(parts.config, parts.images, parts.fixed_set.denoisers, record, said.append), notes, said


def test_pixels_are_recorded_under_the_number_of_the_update() -> None:
    check, notes, _ = check_of()
    samples = torch.rand(8, 1, 8, 8) * 2 - 1
    samples[0, 0, 0, 0] = torch.nan
    check.measure_pixels(samples, after=30, ended=True)
    [(step, kind, facts)] = notes.events
    assert (step, kind, facts["after"], facts["ended"], facts["count"]) == (29, "appearance", 30, True, 8)
    names = ("contrast", "apart", "saturated", "colour", "grain")
    assert set(notes.numbers) == {29}
    assert notes.numbers[29] == {f"check/samples/{name}": facts[name]["value"] for name in names} | {
        "check/samples/nonfinite": pytest.approx(1 / 512)
    }
    assert all(facts[name]["low"] <= facts[name]["high"] for name in names)


def test_one_sample_cannot_be_compared() -> None:
    check, notes, _ = check_of()
    check.measure_pixels(torch.zeros(1, 1, 8, 8), after=1, ended=True)
    assert not notes.events


@pytest.fixture
def by_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels in place of the features of a network."""
    flat = lambda _, images: np.asarray(images, np.float64).reshape(len(images), -1) / 255  # noqa: E731
    monkeypatch.setattr(sample_check, "load_extractor", lambda *_, **__: SimpleNamespace(dimension=64))
    monkeypatch.setattr(sample_check, "extract", flat)
    take = lambda images, rows, *_, **__: flat(None, images.take(rows))  # noqa: E731
    monkeypatch.setattr(sample_check, "real_features", take)


@pytest.mark.usefixtures("by_pixels")
def test_a_short_evaluation_says_what_it_compared_and_what_it_took() -> None:
    check, notes, said = check_of()
    seconds = check.evaluate_shortly(torch.zeros(64, 1, 8, 8), after=30, trained=40.0)
    [(step, kind, facts)] = notes.events
    assert (step, kind, facts["after"], facts["count"]) == (29, "evaluated_shortly", 30, 64)
    assert facts["kernel"]["value"] > 4 * facts["gaussian"]["kernel"]["value"], (
        "grey images are further than Gaussian ones"
    )
    assert set(notes.numbers[29]) == {"quality/kernel", "quality/kernel_error", "quality/gaussian_kernel"}
    assert facts["seconds"] == seconds > 0
    assert "64 samples against" in said[0]
    assert "of the time" in said[0]


@pytest.mark.usefixtures("by_pixels")
@pytest.mark.parametrize(
    ("settings", "count", "trained", "evaluated"),
    [
        ({}, 64, 0.1, True),
        ({"evaluate.every": 0}, 64, 1e6, False),
        ({}, 4, 1e6, False),
        ({"data.image_size": 32}, 64, 0.1, True),
        ({"data.image_size": 64}, 64, 0.1, False),
        ({"data.image_size": 64}, 64, 1000.0, True),
    ],
    ids=["cheap", "not wanted", "few samples", "with fewer images", "too dear", "dear, of a long run"],
)
def test_its_price_is_bounded(settings: dict[str, Any], count: int, trained: float, evaluated: bool) -> None:
    check, notes, _ = check_of(**settings)
    side = check.config.data.image_size
    check.evaluate_shortly(torch.zeros(count, 1, side, side), after=30, trained=trained)
    assert bool(notes.events) is evaluated


@pytest.mark.usefixtures("by_pixels")
def test_the_end_of_a_run_has_a_number_at_a_price_that_is_said_before() -> None:
    check, notes, said = check_of(**{"data.image_size": 64})
    check.evaluate_shortly(torch.zeros(64, 1, 64, 64), after=30, trained=0.1, always=True)
    [(_, _, facts)] = notes.events
    assert (facts["count"], facts["reference_count"]) == SHORTER
    assert "comparing 32 samples with real images, which takes about 8 s" in said[0]
    assert "--evaluate-every 0" in said[0]
    assert len(said) == 2
