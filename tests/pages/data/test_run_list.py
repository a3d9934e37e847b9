"""Several runs at once: what differs between them."""

from __future__ import annotations

from pathlib import Path

from folders import make_run

from safelight.pages.data.run_list import compare_runs
from safelight.pages.data.runs import describe


def test_runs_are_compared_by_what_differs(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one")
    two = make_run(tmp_path / "two", config="train:\n  batch_size: 16\n  steps: 200\n")
    watched = make_run(tmp_path / "watched", config=None)
    found = compare_runs([describe(each) for each in (one, two, watched)])
    assert found["settings"] == {"train.batch_size": [8, 16, None]}
    assert [run["name"] for run in found["runs"]] == ["one", "two", "watched"]
    assert all(run["pictures"] and run["signals"] for run in found["runs"])
