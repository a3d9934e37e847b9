"""Run folders: made once, found again, and never written over."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from safelight.errors import UsageError
from safelight.run import (
    ReadOnlyRunFolder,
    RunFolder,
    create_run,
    free_name,
    is_run,
    move_used_aside,
    open_recorded,
    open_run,
    point_latest,
    prepare_to_write,
    refuse_used,
)


def test_facts_are_merged_into_the_status(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run")
    folder.update_status(status="training", step=1)
    folder.update_status(step=2)
    status = folder.status()
    assert (status["status"], status["step"], status["pid"]) == ("training", 2, os.getpid())
    ReadOnlyRunFolder(folder.path).update_status(step=3)
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


@pytest.mark.parametrize(
    "held", ["record.sqlite", "checkpoints/step_00000004/model.safetensors", "thesis.tex", "samples/mine.png", "sub/"]
)
def test_a_folder_that_holds_something_is_refused(tmp_path: Path, held: str) -> None:
    path = tmp_path / "x" / held
    (path if held.endswith("/") else path.parent).mkdir(parents=True)
    if not held.endswith("/"):
        path.write_bytes(b"precious")
    with pytest.raises(UsageError, match="is not empty and not a run"):
        create_run(tmp_path / "x")
    aside = move_used_aside(tmp_path / "x")
    assert aside == tmp_path / "x-before-1"
    assert (aside / held).exists()
    create_run(tmp_path / "x")


def test_what_a_kill_left_before_the_run_began_is_no_obstacle(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "x")
    folder.update_status(status="training")
    (folder.path / "lock").touch()
    (folder.path / ".tmp-config.yaml-aa").touch()
    create_run(tmp_path / "x")
    assert move_used_aside(tmp_path / "x") is None
    folder.update_status(step=3)  # a copy of a run that broke off
    with pytest.raises(UsageError, match=r"holds run\.json"):
        create_run(tmp_path / "x")


def test_a_linked_folder_is_moved_aside_behind_its_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").touch()
    (tmp_path / "x").symlink_to("real")
    assert move_used_aside(tmp_path / "x") == tmp_path / "real-before-1"
    assert (tmp_path / "x").is_symlink()
    assert not list((tmp_path / "real").iterdir())
    assert move_used_aside(tmp_path / "nothing") is None


@pytest.mark.parametrize("name", ["checkpoints", "ema", "samples", "tensorboard", "wandb"])
def test_a_folder_that_leads_elsewhere_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    folder = create_run(tmp_path / "x")
    (tmp_path / "other").mkdir()
    if (folder.path / name).exists():
        (folder.path / name).rmdir()
    (folder.path / name).symlink_to(tmp_path / "other")
    with pytest.raises(UsageError, match=f"{name} is a symbolic link"):
        prepare_to_write(folder)


def test_what_was_left_unfinished_is_removed_at_the_next_start(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "x")
    for name in (".tmp-run.json-aa", "samples/.tmp-step_00000001.png-bb", "samples/mine.png"):
        (folder.path / name).touch()
    prepare_to_write(folder)
    assert sorted(p.name for p in folder.path.rglob("*")) == ["checkpoints", "mine.png", "samples"]
