"""Columns of a strip are evenly spread, and a timelapse is made of the stages that are asked for."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from PIL import Image

from safelight.errors import UsageError
from safelight.observing.stage_pictures import (
    STRIP_COLUMNS,
    Columns,
    after,
    draw_timelapse,
    planned_steps,
    save_stage,
    spread_over,
)


@pytest.mark.parametrize("calls", [1, 5, 9, 50, 129, 1000])
def test_a_strip_of_a_sampler_whose_length_nobody_knows(calls: int) -> None:
    columns = Columns(2)
    for t in reversed(range(calls)):
        columns.add(t, torch.full((2, 1, 4, 4), t / calls))
    frames, captions = columns.finish(torch.zeros(2, 1, 4, 4))
    assert captions[0] == f"t = {calls - 1}"
    assert captions[-1] == "image"
    assert len(frames) == len(captions) == min(calls, STRIP_COLUMNS - 1) + 1
    times = [int(caption.removeprefix("t = ")) for caption in captions[:-1]]
    assert times == sorted(times, reverse=True)
    if calls > STRIP_COLUMNS:
        gaps = [before - after for before, after in itertools.pairwise(times)]
        assert max(gaps) <= 2 * min(gaps) + 1


def test_the_columns_of_a_known_number_of_steps() -> None:
    columns = Columns(1, spread_over(50))
    for t in reversed(range(50)):
        columns.add(t, torch.zeros(1, 3, 4, 4))
    assert len(columns.finish(torch.zeros(1, 3, 4, 4))[1]) == STRIP_COLUMNS


def test_a_timelapse_of_chosen_stages_at_a_chosen_speed(tmp_path: Path) -> None:
    assert draw_timelapse(tmp_path) is None
    for step in (1, 2, 3, 8):
        assert save_stage(tmp_path, step, torch.full((2, 1, 8, 8), step / 8)).keys() == {"samples"}
    (tmp_path / "step_of_mine.png").write_bytes(b"")
    out = draw_timelapse(tmp_path, steps=(1, 3, 8), fps=2, out=tmp_path / "mine.gif")
    assert out == tmp_path / "mine.gif"
    with Image.open(out) as image:
        assert getattr(image, "n_frames", 0) == 3
        assert image.info["duration"] == 500
    with pytest.raises(UsageError, match=r"no picture of step 5\. It has: 1, 2, 3, 8"):
        draw_timelapse(tmp_path, steps=(5,))
    with pytest.raises(UsageError, match="fps is 0"):
        draw_timelapse(tmp_path, fps=0)


@pytest.mark.parametrize("every", [1, 3, 4, 10, 40])
@pytest.mark.parametrize("step", [0, 1, 4, 9, 10, 11, 30])
def test_how_many_are_still_to_come(every: int, step: int) -> None:
    steps = planned_steps(10, every, 5)
    assert after(steps, step) == len([each for each in steps if each > step])
    assert after({1, 4, 9}, 4) == 1
