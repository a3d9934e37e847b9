from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from safelight.errors import CheckpointError, RunBusy
from safelight.files import (
    Disk,
    RunLock,
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


HOLDER = """
import signal, sys
from pathlib import Path
from safelight.files import RunLock
with RunLock(Path(sys.argv[1])):
    print("locked", flush=True)
    while True:
        signal.pause()
"""


def test_lock_names_its_holder_and_dies_with_it(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline() == "locked\n"
        with (
            pytest.raises(RunBusy, match=rf"process {holder.pid} on {os.uname().nodename}"),
            RunLock(tmp_path),
        ):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with RunLock(tmp_path) as lock:
        assert lock.guarded
        assert (tmp_path / "lock").read_text().split()[0] == str(os.getpid())


def test_lock_excludes_the_same_process_and_can_be_taken_again(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    with RunLock(folder), pytest.raises(RunBusy, match=f"process {os.getpid()}"), RunLock(folder):
        pass
    with RunLock(folder):
        pass


def test_a_forked_child_does_not_keep_the_lock_of_a_dead_parent(tmp_path: Path) -> None:
    ready, is_ready = os.pipe()
    go, is_go = os.pipe()
    parent = os.fork()
    if parent == 0:
        lock = RunLock(tmp_path).__enter__()
        if os.fork() == 0:
            os.close(is_go)
            os.write(is_ready, b"x")
            os.read(go, 1)  # until the test closes its end
            os._exit(0)
        os.read(ready, 1)
        os._exit(0 if lock.guarded else 1)  # no __exit__: as if it was killed
    assert os.waitpid(parent, 0)[1] == 0
    with RunLock(tmp_path) as lock:
        assert lock.guarded
    for end in (ready, is_ready, go, is_go):
        os.close(end)


def test_leaving_frees_the_lock_whoever_still_has_a_copy(tmp_path: Path) -> None:
    with RunLock(tmp_path) as lock:
        assert lock._descriptor is not None
        copy = os.dup(lock._descriptor)
        with pytest.raises(RunBusy), RunLock(tmp_path):
            pass
    with RunLock(tmp_path):
        os.close(copy)
