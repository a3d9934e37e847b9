"""Whose images and labels a step has: told where they are not those of the set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tiny import parts_of

from safelight.data.batches import Batches
from safelight.monitors.reading_buffer import ReadingBuffer
from safelight.observing.batch_check import CLOSE, EVERY, BatchCheck
from safelight.training.build import Setup

LABELLED: dict[str, Any] = {"model.conditional": True, "model.label_drop": 0.5, "data.held_out": 0.2}


class Readings(dict[int, dict[str, float]]):
    def add(self, step: int, numbers: dict[str, float]) -> None:
        self.setdefault(step, {}).update(numbers)


def told(parts: Setup, spoil: Any = lambda micro: micro, steps: int = 3) -> Readings:
    readings, ledger = Readings(), BatchCheck(parts.config, parts.images, parts.held_out_ids, parts.runtime.to_device)
    pool = ReadingBuffer(readings)
    for step in range(steps):
        view = parts.stepper.step([spoil(micro) for micro in parts.loader.load(step)], step)
        pool.add(step, ledger.check(view), {})
    pool.flush()
    return readings


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_sound_run_has_the_labels_of_its_images_and_none_that_is_held_out(pieces: int) -> None:
    readings = told(parts_of(**LABELLED, **{"train.accumulate": pieces}))
    assert [readings[step] for step in range(3)] == [
        {"check/rows/held_out": 0.0, "check/rows/labels_moved": 0.0} for _ in range(3)
    ]


def test_labels_of_other_images() -> None:
    """Half of them are dropped, which is not counted; of the others a tenth has the right one by chance."""
    parts = parts_of(**LABELLED, **{"train.batch_size": 64})

    def turned(micro: Any) -> Any:
        there = micro.labels != parts.config.data.classes
        return replace(micro, labels=micro.labels.where(~there, (micro.labels + 1) % 10))

    moved = [numbers["check/rows/labels_moved"] for numbers in told(parts, turned).values()]
    assert all(0.3 < share < 0.7 for share in moved)


def test_images_that_are_held_out() -> None:
    parts = parts_of(**LABELLED, **{"train.batch_size": 64})
    parts.loader.batches = Batches(parts.images, seed=0, batch_size=64)
    assert np.mean([numbers["check/rows/held_out"] for numbers in told(parts).values()]) == pytest.approx(0.2, abs=0.1)


def test_few_steps_are_compared_and_nothing_where_there_is_nothing_to_compare() -> None:
    assert not any(told(parts_of(**{"data.held_out": 0.0})).values())
    readings = told(parts_of(**LABELLED), steps=CLOSE + EVERY + 1)
    assert [step for step, numbers in readings.items() if numbers] == [*range(CLOSE + 1), CLOSE + EVERY]
