from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from safelight.errors import RunBusy, RunFolderLost, UsageError
from safelight.files import RunLock

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


@pytest.mark.parametrize("deed", ["moved", "deleted", "replaced"])
def test_a_folder_that_went_away_is_noticed(tmp_path: Path, deed: str) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    with RunLock(run) as lock:
        lock.check()
        if deed == "deleted":
            (run / "lock").unlink()
            run.rmdir()
        else:
            run.rename(elsewhere)
        if deed == "replaced":
            run.mkdir()
        with pytest.raises(RunFolderLost) as lost:
            lock.check()
    assert lost.value.moved_to == (None if deed == "deleted" else elsewhere)


def test_a_lock_that_was_only_removed_is_taken_again(tmp_path: Path) -> None:
    with RunLock(tmp_path) as lock:
        (tmp_path / "lock").unlink()
        lock.check()
        assert lock.guarded
        with pytest.raises(RunBusy, match=f"process {os.getpid()}"), RunLock(tmp_path):
            pass


def test_a_lock_that_another_process_took_ends_this_one(tmp_path: Path) -> None:
    with RunLock(tmp_path) as first:
        (tmp_path / "lock").unlink()
        with RunLock(tmp_path), pytest.raises(RunBusy, match="in use by process"):
            first.check()


@pytest.mark.parametrize("kind", ["link", "broken link", "folder", "pipe"])
def test_only_a_plain_file_is_locked(tmp_path: Path, kind: str) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    run.mkdir()
    victim.write_bytes(b"words")
    {
        "link": lambda: (run / "lock").symlink_to(victim),
        "broken link": lambda: (run / "lock").symlink_to(tmp_path / "nothing"),
        "folder": lambda: (run / "lock").mkdir(),
        "pipe": lambda: os.mkfifo(run / "lock"),
    }[kind]()
    with pytest.raises(UsageError, match="plain file to lock"), RunLock(run):
        pass
    assert victim.read_bytes() == b"words"
    assert not (tmp_path / "nothing").exists()


def test_a_lock_with_other_names_is_not_written_to(tmp_path: Path) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    run.mkdir()
    victim.write_bytes(b"words")
    (run / "lock").hardlink_to(victim)
    with RunLock(run) as lock:
        assert lock.guarded
        lock.check()
        assert victim.read_bytes() == b"words"
        with pytest.raises(RunBusy), RunLock(run):
            pass
    assert victim.read_bytes() == b"words"
