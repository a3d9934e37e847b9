"""The newest distance with its error."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import make_run

from safelight.pages.data.overview import overview
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
    assert found["distance_name"] == "FD-lite0"
    assert found["distance"] == [distances[-1][1], 2.1, 201 + distances[-1][0]]
