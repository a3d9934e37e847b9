"""Run folders: made once, found again, and never written over."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from safelight.errors import UsageError
from safelight.run import (
    RunFolder,
    SilentFolder,
    create_run,
    free_name,
    is_run,
    open_recorded,
    open_run,
    point_latest,
    refuse_used,
)


def test_facts_are_merged_into_the_status(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run")
    folder.update_status(status="training", step=1)
    folder.update_status(step=2)
    status = folder.status()
    assert (status["status"], status["step"], status["pid"]) == ("training", 2, os.getpid())
    SilentFolder(folder.path).update_status(step=3)
    assert folder.status()["step"] == 2


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[1]"])
def test_a_damaged_status_is_none(tmp_path: Path, content: bytes) -> None:
    folder = RunFolder(tmp_path)
    folder.status_file.write_bytes(content)
    assert folder.status() == {}
    folder.update_status(step=1)
    assert json.loads(folder.status_file.read_text())["step"] == 1


def test_a_disk_that_takes_no_status_does_not_end_the_run(tmp_path: Path) -> None:
    RunFolder(tmp_path / "missing").update_status(step=1)
    assert not (tmp_path / "missing").exists()


def test_what_holds_a_run_is_not_written_over(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run")
    create_run(tmp_path / "run")  # nothing has been started there
    folder.config.write_text("")
    for refuse in (refuse_used, create_run):
        with pytest.raises(UsageError, match="already holds a run"):
            refuse(folder.path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be made"):
        create_run(tmp_path / "file" / "run")


def test_only_runs_are_opened(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run")
    with pytest.raises(UsageError, match="is no folder"):
        open_run(tmp_path / "other")
    with pytest.raises(UsageError, match="is no folder"):
        open_run(tmp_path / ("x" * 5000))
    for opened in (open_run, open_recorded):
        with pytest.raises(UsageError, match=r"has no config\.yaml"):
            opened(folder.path)
    folder.record.write_bytes(b"")
    assert open_recorded(folder.path) == folder
    with pytest.raises(UsageError, match=r"has no config\.yaml"):
        open_run(folder.path)
    folder.config.write_text("")
    assert open_run(folder.path) == folder


@pytest.mark.parametrize(
    ("path", "file", "expected"),
    [("a", "config.yaml", True), ("a", "record.sqlite", True), ("a", None, False), ("runs/a", None, True)],
)
def test_what_counts_as_a_run(tmp_path: Path, path: str, file: str | None, expected: bool) -> None:
    (tmp_path / path).mkdir(parents=True)
    if file is not None:
        (tmp_path / path / file).write_text("")
    assert is_run(tmp_path / path) is expected


def test_names_are_counted_up(tmp_path: Path) -> None:
    assert free_name(tmp_path / "missing", "digits") == tmp_path / "missing" / "digits-1"
    for name in ("digits-1", "digits-3"):
        (tmp_path / name).mkdir()
    assert free_name(tmp_path, "digits").name == "digits-2"


def test_latest_points_to_the_newest_and_never_replaces_a_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        point_latest(create_run(tmp_path / name))
        assert (tmp_path / "latest").resolve().name == name
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").mkdir()
    point_latest(RunFolder(tmp_path / "a"))
    assert not (tmp_path / "latest").is_symlink()


def test_pictures_are_listed_by_step(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run")
    for step in (20, 3):
        folder.picture(step).write_bytes(b"")
    folder.picture(5, "strip").write_bytes(b"")
    assert [step for step, _ in folder.pictures()] == [3, 20]


def test_a_run_that_is_not_there_is_told_with_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "photos-1").mkdir(parents=True)
    (tmp_path / "runs" / "photos-1" / "config.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    for wrong in ("runs/photo-1", "photos-1", "runs/photos"):
        with pytest.raises(UsageError, match=r"is no folder\. Did you mean runs/photos-1\?"):
            open_run(Path(wrong))
    with pytest.raises(UsageError, match=r"such as runs/latest"):
        open_run(Path("elsewhere/xyzzy"))
