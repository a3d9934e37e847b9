"""Runs are found wherever they lie, each once."""

from __future__ import annotations

from pathlib import Path

from folders import make_run

from safelight.pages.data.runs import find_runs


def test_runs_are_found_once_at_every_depth(tmp_path: Path) -> None:
    for name in ("one", "group/two", "too/far/down/four"):
        make_run(tmp_path / name, steps=4, pictures=False)
    (tmp_path / "latest").symlink_to("one")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "run.json").write_text("{}")
    found = find_runs([tmp_path, tmp_path / "one"])
    assert [run.name for run in found] == ["group/two", "one"]
    assert len({run.id for run in found}) == 2
    assert [run.name for run in find_runs([tmp_path / "one"])] == ["one"]
    assert find_runs([tmp_path / "one"])[0].id == found[1].id
    assert find_runs([tmp_path / "none"]) == []
