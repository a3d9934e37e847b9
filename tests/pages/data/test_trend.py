"""The newest distance with its error, and at which noise levels the loss still falls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from folders import make_run

from safelight.pages.data.overview import overview
from safelight.pages.data.trend import falling
from safelight.record.history import open_history
from safelight.record.store import RecordWriter
from safelight.run import RunFolder


@pytest.mark.parametrize(
    ("distances", "words"),
    [
        ([(50, 40.0, None)], "FD-lite0 40 ± 2."),
        ([(50, 40.0, None), (100, 31.2, True)], "FD-lite0 31 ± 2 and improving."),
        ([(50, 40.0, None), (100, 41.0, False)], "FD-lite0 41 ± 2, no better than at step 50."),
    ],
)
def test_the_distance_is_told_with_its_error(tmp_path: Path, distances, words) -> None:
    run = make_run(tmp_path / "a", status={"status": "training", "step": 300})
    record = RecordWriter(run / "record.sqlite", from_step=200, say=print)
    for step, value, better in distances:
        against = {} if better is None else {"against": {"step": 50, "better": better, "p": 0.01}}
        record.add(200 + step, {"quality/distance": value, "quality/distance_error": 2.1})
        record.event(200 + step, "evaluated", after=201 + step, label="FD-lite0", **against)
    record.close()
    found = overview(RunFolder(run))
    assert found["verdict"]["sentence"].endswith(words)
    assert found["distance"] == [distances[-1][1], 2.1, 201 + distances[-1][0]]


@pytest.mark.parametrize(
    ("slopes", "words"),
    [
        ({}, None),
        ({"loss/mean": 0.0}, []),
        ({"loss/mean": -1.0}, ["all noise levels"]),
        ({"loss/level/02": -1.0, "loss/level/07": 0.0, "loss/level/15": 0.0}, ["low noise"]),
        ({"loss/level/02": 0.0, "loss/level/07": 1.0, "loss/mean": -1.0}, []),  # levels are known: they decide
    ],
)
def test_where_the_loss_still_falls(tmp_path: Path, slopes: dict[str, float], words: list[str] | None) -> None:
    record = RecordWriter(tmp_path / "record.sqlite", from_step=0, say=print)
    draw = np.random.default_rng(0)
    for step in range(64):
        record.add(step, {name: 5 + slope * step / 64 + 0.01 * draw.normal() for name, slope in slopes.items()})
    record.event(0, "note")
    record.close()
    with open_history(tmp_path / "record.sqlite") as history:
        assert falling(history) == words
