from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from safelight.errors import CheckpointError
from safelight.files import (
    Disk,
    Unreadable,
    make_directories,
    read_plain,
    remove_tree,
    write_atomically,
)
from torture.disks import FAULTS, Died, FaultyDisk, places
from torture.operations import (
    RecordingDisk,
    flushed_after_sync,
    power_losses,
    without_directory_syncs,
    without_file_syncs,
)

OLD, NEW = b"the old words", b"new words, and more of them"


def test_writing_replaces_whole_content_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_atomically(path, OLD)
    write_atomically(path, NEW)
    write_atomically(tmp_path / "empty", b"")
    assert path.read_bytes() == NEW
    assert (tmp_path / "empty").read_bytes() == b""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "run.json"]


def test_new_files_have_the_usual_mode(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_atomically(tmp_path / "ours", NEW)
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "lying write"])
def test_a_fault_at_every_call_leaves_old_or_new(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "run.json"
    numbers = places(fault, lambda disk: write_atomically(path, OLD, disk))
    assert len(numbers) > (6 if fault == "exit" else 1)
    for at in numbers:
        path.write_bytes(OLD)
        try:
            write_atomically(path, NEW, FaultyDisk(at, fault))
            returned = True
        except (OSError, Died):
            returned = False
        assert path.read_bytes() in ((NEW,) if returned else (OLD, NEW))
        if fault.endswith("once"):
            assert [p.name for p in tmp_path.iterdir()] == ["run.json"]
    assert returned


def _save_twice(disk: RecordingDisk) -> None:
    for content in (OLD, NEW):
        write_atomically(disk.root / "run.json", content, disk)
        disk.mark(content)


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        (list, True),
        (without_file_syncs, False),
        (without_directory_syncs, False),
        (flushed_after_sync, False),
    ],
)
def test_power_loss_leaves_old_or_new(tmp_path: Path, change, holds: bool) -> None:
    disk = RecordingDisk(tmp_path)
    _save_twice(disk)
    allowed = {None: {None, OLD, NEW}, OLD: {OLD, NEW}, NEW: {NEW}}
    states = [(mark, dict(tree).get("run.json")) for mark, tree, _ in power_losses(change(disk.log))]
    assert len(states) > 10
    assert all(found in allowed[mark] for mark, found in states) == holds


def test_directories_are_made_durable_one_by_one(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    make_directories(tmp_path / "a" / "b", disk)
    make_directories(tmp_path / "a" / "b", disk)
    assert [op.kind for op in disk.log] == ["mkdir", "syncdir", "mkdir", "syncdir"]


def test_removing_does_not_follow_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "inner" / "link").symlink_to(precious)
    remove_tree(tmp_path / "tree")
    assert (precious / "file").exists()
    assert not (tmp_path / "tree").exists()


class Forbidding(Disk):
    def open(self, path: Path) -> int:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def test_reading_is_bounded_and_plain(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_plain(path, 5) == b"12345"
    with pytest.raises(CheckpointError, match="has 5 bytes; at most 4"):
        read_plain(path, 4)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(CheckpointError, match="symbolic link"):
        read_plain(tmp_path / "link", 5)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_plain(tmp_path / "pipe", 5)
    with pytest.raises(CheckpointError, match="missing"):
        read_plain(tmp_path / "nothing", 5)
    with pytest.raises(CheckpointError, match="is a file; a checkpoint is a folder"):
        read_plain(path / "manifest.json", 5)
    with pytest.raises(Unreadable, match="Permission denied"):
        read_plain(path, 5, Forbidding())


@pytest.mark.parametrize("kind", ["file", "pipe", "link"])
def test_a_folder_is_not_made_where_something_else_is(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    {"file": place.touch, "pipe": lambda: os.mkfifo(place), "link": lambda: place.symlink_to("nowhere")}[kind]()
    with pytest.raises(NotADirectoryError):
        make_directories(place)
    with pytest.raises(NotADirectoryError):
        make_directories(place, Disk(tmp_path)) if kind != "link" else make_directories(place)
