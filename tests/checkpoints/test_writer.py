from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest
from moments import NAN, QUICK, assert_equal, newest, poisoned, save, snapshot

from safelight.checkpoints.folder import KEEP_ALL, steps
from safelight.checkpoints.writer import Writer
from safelight.files import Disk
from torture.disks import FaultyDisk, QuickDisk


class Gate(QuickDisk):
    """Waits at the first call until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def free(self, folder: Path) -> int | None:
        self.opened.wait()
        return super().free(folder)


class Full(QuickDisk):
    """Says how much is free, and fails every new file while `broken`."""

    def __init__(self, free: int | None = None, number: int = errno.ENOSPC) -> None:
        self.space, self.number, self.broken, self.attempts = free, number, True, 0

    def free(self, folder: Path) -> int | None:
        return self.space if self.broken else super().free(folder)

    def create(self, path: Path) -> int:
        if self.broken:
            self.attempts += 1
            raise OSError(self.number, os.strerror(self.number))
        return super().create(path)


class Spoken(list[str]):
    """What was said, and that it was said by the thread that trains."""

    def __call__(self, words: str) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.append(words)


def writer(folder: Path, disk: Disk = QUICK, last: int = 2, every: int = 0) -> tuple[Writer, Spoken]:
    spoken = Spoken()
    return Writer(folder, last=last, every=every, say=spoken, disk=disk), spoken


def test_writer_saves_and_thins_out(tmp_path: Path) -> None:
    saving, spoken = writer(tmp_path)
    for step in (1, 2, 3, 4):
        assert saving.submit(snapshot(step), best=1)
        saving.wait()
    saving.wait()
    assert (saving.last_saved, saving.failures, spoken) == (4, 0, [])
    assert steps(tmp_path) == [1, 3, 4]
    assert_equal(newest(tmp_path), snapshot(4))


def test_writer_takes_one_at_a_time_and_never_queues(tmp_path: Path) -> None:
    gate = Gate()
    saving, _ = writer(tmp_path, gate)
    assert not saving.busy
    assert saving.submit(snapshot(1), None)
    assert saving.busy
    assert not saving.submit(snapshot(2), None)
    saving.poll()
    gate.opened.set()
    saving.wait()
    assert not saving.busy
    assert steps(tmp_path) == [1]
    assert saving.submit(snapshot(3), None)
    saving.wait()
    assert steps(tmp_path) == [1, 3]


def test_writer_on_a_full_disk_keeps_two_and_says_so_with_numbers(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3, 4)
    disk = Full(free=1_000_000)
    saving, spoken = writer(tmp_path, disk, last=4)
    saving.submit(snapshot(5), None)
    saving.wait()
    assert (saving.failures, saving.last_saved) == (1, None)
    assert "has 1.0 MB free and 33.6 MB are needed" in spoken[0]
    assert "Removed steps [1, 2] to make room. It is tried once more." in spoken[0]
    assert "It needs 33.6 MB; 1.0 MB are free. Training continues unsaved; the newest checkpoint is step 4" in spoken[1]
    assert steps(tmp_path) == [3, 4]
    disk.broken = False
    saving.submit(snapshot(6), None)
    saving.wait()
    assert (saving.failures, saving.last_saved) == (1, 6)
    assert spoken[2:] == ["Saving works again: step 6 is saved."]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE])
def test_writer_survives_any_error_of_the_disk(tmp_path: Path, number: int) -> None:
    save(tmp_path, 1, 2)
    disk = Full(number=number)
    saving, spoken = writer(tmp_path, disk)
    saving.submit(snapshot(3), None)
    saving.wait()
    assert (saving.failures, disk.attempts, len(spoken)) == (1, 2, 2)
    assert os.strerror(number) in spoken[1]
    assert newest(tmp_path).step == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_00000001", "step_00000002"]


def test_writer_spares_what_was_asked_to_be_kept(tmp_path: Path) -> None:
    save(tmp_path, 10, 15, 20, 25, 30)
    saving, _ = writer(tmp_path, Full(), last=9, every=10)
    saving.submit(snapshot(35), best=15)
    saving.wait()
    assert steps(tmp_path) == [10, 15, 20, 25, 30]
    saving.submit(snapshot(40), best=None)
    saving.wait()
    assert steps(tmp_path) == [10, 20, 25, 30]


def test_writer_that_keeps_all_deletes_nothing_to_make_room(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3, 4)
    saving, _ = writer(tmp_path, Full(), last=KEEP_ALL)
    saving.submit(snapshot(5), None)
    saving.wait()
    assert saving.failures == 1
    assert steps(tmp_path) == [1, 2, 3, 4]


def test_writer_counts_only_verified_ones_when_it_makes_room(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3, 4)
    file = tmp_path / "step_00000004" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")  # right size, wrong bit
    saving, _ = writer(tmp_path, Full(), last=4)
    saving.submit(snapshot(5), None)
    saving.wait()
    assert steps(tmp_path) == [2, 3, 4]


def test_writer_pauses_longer_after_every_failure_and_wait_cuts_it_short(tmp_path: Path) -> None:
    saving, spoken = writer(tmp_path, Full())
    for step in range(1, 9):
        saving.submit(snapshot(step), None)
        saving.wait()
    pauses = [words.rsplit(" once more", 1)[1] for words in spoken if "once more" in words]
    assert pauses == [".", *(f" in {pause} s." for pause in (2, 4, 8, 16, 32, 60, 60))]
    assert saving.failures == 8


def test_writer_says_a_failure_at_the_next_poll(tmp_path: Path) -> None:
    saving, spoken = writer(tmp_path, Full())
    saving.submit(snapshot(1), None)
    assert saving._thread is not None
    saving._thread.join()
    assert spoken == []
    saving.poll()
    assert len(spoken) == 2
    saving.poll()
    assert len(spoken) == 2


def test_writer_refuses_nan_once_and_goes_on(tmp_path: Path) -> None:
    saving, spoken = writer(tmp_path)
    saving.submit(poisoned("model", NAN), None)
    saving.wait()
    assert (saving.failures, len(spoken)) == (1, 1)
    assert "NaN or Inf" in spoken[0]
    assert "there is no checkpoint yet" in spoken[0]
    assert "Free space" not in spoken[0]
    saving.submit(snapshot(4), None)
    saving.wait()
    assert saving.last_saved == 4


class Keeping(QuickDisk):
    def unlink(self, path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_writer_reports_old_ones_that_cannot_be_removed(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    saving, spoken = writer(tmp_path, Keeping())
    saving.submit(snapshot(3), None)
    saving.wait()
    assert (saving.failures, saving.last_saved) == (0, 3)
    assert "could not be removed" in spoken[0]


def test_writer_says_that_a_future_was_given_up(tmp_path: Path) -> None:
    save(tmp_path, 10, 20, 30)
    saving, spoken = writer(tmp_path)
    saving.submit(snapshot(15), None)
    saving.wait()
    assert steps(tmp_path) == [10, 15]
    assert spoken == ["Removed checkpoints [20, 30]: training went back to before step 15."]


def test_writer_with_one_fault_at_every_call_saves_all_the_same(tmp_path: Path) -> None:
    two = tmp_path / "two"
    save(two, 1, 2)
    at, reached = 0, True
    while reached:
        at += 1
        folder, disk = tmp_path / str(at), FaultyDisk(at, "EIO once")
        shutil.copytree(two, folder)
        saving, _ = writer(folder, disk)
        saving.submit(snapshot(3), None)
        saving.wait()
        assert (saving.failures, saving.last_saved) == (0, 3)
        assert_equal(newest(folder), snapshot(3))
        reached = disk.reached
    assert at > 60


def test_what_must_come_first_is_waited_for(tmp_path: Path) -> None:
    """The record is cut at the checkpoint by a resume: a checkpoint must not be there before its readings are."""
    begun, stored, seen = threading.Event(), threading.Event(), list[list[int]]()

    def before_commit() -> None:
        begun.set()
        stored.wait()
        seen.append(steps(tmp_path))

    saving = Writer(tmp_path, last=2, every=0, say=Spoken(), disk=QUICK, before_commit=before_commit)
    saving.submit(snapshot(1), None)
    begun.wait()
    assert steps(tmp_path) == []
    stored.set()
    saving.wait()
    assert (seen, steps(tmp_path)) == ([[]], [1])
