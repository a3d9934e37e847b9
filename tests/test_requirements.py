"""What a run would need: counted from the very step of training, and said in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from safelight.config.resolve import resolve
from safelight.model.memory import Memory
from safelight.requirements import Estimate, empty_inputs, estimate, parts_for, trace_step

SMALL = {"model.widths": (16,), "model.norm_groups": 8, "model.attention": (), "train.batch_size": 4}


def test_memory_grows_with_the_images_and_its_weights_do_not() -> None:
    config = resolve(preset="digits", settings=SMALL)
    one, four = trace_step(config, 1), trace_step(config, 4)
    assert one.parameters == four.parameters == one.gradients
    assert four.activations > 2 * one.activations
    assert four.peak > one.peak


def test_disk_counts_the_checkpoints_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safelight.requirements.largest_batch", lambda budget, trace: 7)
    few, many = (
        estimate(resolve(preset="digits", settings=SMALL | {"checkpoint.keep_last": kept}), timed=False)
        for kept in (1, 4)
    )
    assert many.disk - few.disk == 3 * few.checkpoint
    assert (few.seconds, few.largest_micro_batch) == (None, 7)


@pytest.mark.parametrize(("source", "channels"), [("digits", 1), ("shapes:5", 3), ("a-idx3-ubyte", 1), ("photos", 3)])
def test_the_stand_in_has_the_shape_of_the_data(source: str, channels: int) -> None:
    parts = parts_for(resolve(preset="tiny", settings=SMALL | {"data.source": source, "data.image_size": 8}))
    assert parts.images.pixels.shape == (1, 8, 8, channels)
    assert empty_inputs(parts.config, 2).x0.shape == (2, channels, 8, 8)


def test_what_does_not_fit_and_what_was_not_timed_is_said() -> None:
    memory = Memory(4000, 4000, 8000, 4000, 100, 20_100)
    found = Estimate(1000, memory, 4, 10_000, 0, 20_000, 60_000, None, None, 5)
    assert "not even one image at a time" in found.in_words()
    assert "time       not measured" in found.in_words()
    timed = replace(found, largest_micro_batch=9, seconds_per_step=0.5, seconds=60.0)
    assert "up to 9 images at a time" in timed.in_words()
    assert "1:00 (0.5 s a step, and 5 pictures)" in timed.in_words()
