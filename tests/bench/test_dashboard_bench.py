"""The benchmark of the dashboard works, and its judgement can be bad."""

from __future__ import annotations

from pathlib import Path

from bench.dashboard import SIGNALS, Sizes, fill, judged, measure_server, windows
from bench.measure import spread
from safelight.record.history import open_history
from safelight.run import RunFolder


def test_the_server_is_measured(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "a")
    fill(folder, 2000)
    with open_history(folder.record) as history:
        assert history.signals() == sorted(SIGNALS)
        assert len(SIGNALS) == 50
        assert history.ends("loss/mean") == (0, 1999)
    found = measure_server(folder, Sizes(steps=2000, cold=1, zooms=3))
    assert len(found) == 5
    assert all(" ms, judged " in str(each.row[1]) for each in found)


def test_zooms_lie_in_the_run() -> None:
    found = list(windows(10_000, 50))
    assert len(set(found)) == 50
    assert all(0 <= first < last <= 10_000 for first, last in found)


def test_what_is_too_slow_is_not_good() -> None:
    assert judged("x", spread([1.0, 2.0]), 2.0, 3.0).good
    assert not judged("x", spread([1.0, 2.0]), 4.0, 3.0).good
