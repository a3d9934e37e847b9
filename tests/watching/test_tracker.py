"""The tracker of accelerate: numbers, words and pictures in one record."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from safelight.errors import UsageError
from safelight.record.reading import open_reader, read_events, read_signal


def test_a_tracker_takes_all_that_accelerate_gives(tmp_path: Path) -> None:
    from accelerate import Accelerator

    from safelight.watching.tracker import Tracker

    tracker = Tracker(tmp_path / "run")
    accelerator = Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("mine", config={"lr": 0.1, "name": "first"})
    for step in range(3):
        told = {"loss": torch.tensor(step / 4), "bad": math.nan, "note": f"step {step}", "many": torch.ones(2)}
        accelerator.log(told, step=step)
    gray, colour = torch.rand(2, 1, 6, 5), np.full((1, 4, 5, 3), 200, np.uint8)
    for each in accelerator.trackers:
        each.log_images({"gray": gray, "a/colour": colour}, step=2)
    accelerator.end_training()
    path = tmp_path / "run" / "record.sqlite"
    assert read_signal(path, "loss") == [(0, 0.0), (1, 0.25), (2, 0.5)]
    assert all(math.isnan(value) for _, value in read_signal(path, "bad"))
    assert read_events(path, "config") == [(0, "config", {"lr": 0.1, "name": "first"})]
    assert [facts["note"] for _, _, facts in read_events(path, "log")] == ["step 0", "step 1", "step 2"]
    rows = open_reader(path).execute("SELECT kind, step, path, width, height FROM picture ORDER BY kind").fetchall()
    assert [(kind, step, width, height) for kind, step, _, width, height in rows] == [
        ("a/colour/0", 2, 5, 4),
        ("gray/0", 2, 5, 6),
        ("gray/1", 2, 5, 6),
    ]
    with Image.open(tmp_path / "run" / rows[1][2]) as image:
        assert np.array_equal(np.asarray(image), (gray[0, 0] * 255).round().byte().numpy())
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


def test_a_tracker_does_not_write_over_a_record(tmp_path: Path) -> None:
    from safelight.watching.tracker import Tracker

    first = Tracker(tmp_path / "run")
    first.start()
    first.finish()
    with pytest.raises(UsageError, match="already holds a record"):
        Tracker(tmp_path / "run").start()


def test_a_tracker_counts_for_those_who_do_not(tmp_path: Path) -> None:
    from safelight.watching.tracker import Tracker

    tracker = Tracker(tmp_path / "run")
    for number in range(3):
        tracker.log({"mine": number})
    tracker.log_images({"bf16": torch.rand(1, 3, 4, 4).bfloat16(), "two": torch.rand(1, 2, 4, 4)}, step=1)
    tracker.finish()
    assert read_signal(tmp_path / "run" / "record.sqlite", "mine") == [(0, 0.0), (1, 1.0), (2, 2.0)]
