"""Crashes and errors at every call, kills, and every power loss that the order of writing allows."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safelight.checkpoints import writer as checkpoint
from safelight.checkpoints.coordinator import SaveCoordinator
from safelight.checkpoints.folder import clean, retain
from safelight.checkpoints.reader import load_newest
from safelight.checkpoints.snapshot import Snapshot, prepare
from safelight.checkpoints.writer import write
from safelight.errors import CheckpointError
from safelight.files import Disk
from torture.disks import FAULTS, Died, FaultyDisk, places
from torture.moments import QUICK, Saved, moment, newest
from torture.operations import (
    Op,
    committed_first,
    flushed_after_sync,
    manifest_first,
    without_directory_syncs,
    without_file_syncs,
    without_sync_of_deletion,
)
from torture.scenarios.calls import save_again, save_next
from torture.scenarios.power import DAMAGED, LOST, Script, as_we_do, lose_power, old_deleted_first, record, simply

SAVES = {"next step": (save_next, (3, 0), 65), "same step": (save_again, (2, 1), 44)}


# Crashes and errors at every call


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two") / "checkpoints"
    for step in (1, 2):
        write(folder, moment(step), disk=QUICK)
    return folder


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("which", SAVES)
def test_a_fault_at_every_call_leaves_the_previous_or_the_new_one(
    tmp_path: Path, two: Path, which: str, fault: str
) -> None:
    action, new, calls = SAVES[which]
    numbers = places(fault, lambda disk: action(shutil.copytree(two, tmp_path / "all"), disk))
    assert len(numbers) > (calls if fault == "exit" else 6)
    for at in numbers:
        folder, disk, returned = tmp_path / str(at), FaultyDisk(at, fault), True
        shutil.copytree(two, folder)
        try:
            action(folder, disk)
        except (Died, OSError, CheckpointError):
            returned = False
        assert disk.reached == (at != numbers[-1])
        found = newest(folder)
        assert found == new if returned else found in ((2, 0), new)
        clean(folder, disk=QUICK)
        assert newest(folder) == found
        write(folder, moment(4), disk=QUICK)
        assert newest(folder) == (4, 0)
        assert not list(folder.glob(".*"))
    assert returned


def test_one_failed_read_does_not_cost_a_checkpoint(two: Path, tmp_path: Path) -> None:
    """An error that comes again does: only then is the newest left for the one before it."""
    numbers = places("EIO once", lambda disk: load_newest(two, pytest.fail, disk=disk))
    assert len(numbers) > 10
    for at in numbers:
        loaded = load_newest(two, pytest.fail, disk=FaultyDisk(at, "EIO once"))
        assert loaded is not None
        assert loaded.step == 2
    said: list[str] = []
    with pytest.raises(CheckpointError, match="No checkpoint in"):
        load_newest(shutil.copytree(two, tmp_path / "dead"), said.append, disk=FaultyDisk(1, "EIO from now on"))
    assert "Input/output error" in said[0]


def test_a_lying_disk_is_found_by_reading_back(two: Path, tmp_path: Path) -> None:
    reasons = Counter[str]()
    for at in range(1, 25):
        shutil.copytree(two, tmp_path / str(at))
        try:
            write(tmp_path / str(at), moment(3), disk=FaultyDisk(at, "lying write"))
        except CheckpointError as error:
            reasons["damaged" if "is damaged" in str(error) else "cut or changed"] += 1
    assert reasons["damaged"] >= 5  # the space was taken before: the size is right and the content is not
    assert reasons.total() >= 6


def test_crash_test_can_fail(two: Path, tmp_path: Path) -> None:
    """Negative control: written in place, a crash leaves a bad checkpoint in sight."""
    said: list[str] = []
    for at in range(1, 25):
        shutil.copytree(two, tmp_path / str(at))
        with contextlib.suppress(Died):
            folder, disk = tmp_path / str(at) / "step_00000003", FaultyDisk(at, "exit")
            checkpoint._write_files(folder, prepare(moment(3)), disk, SaveCoordinator())
        load_newest(tmp_path / str(at), said.append, disk=QUICK)
    assert len(said) > 15


# Killed for real


class Deadly(FaultyDisk):
    """Kills the process at call number `at`, in the middle of a write where it is one."""

    def answer(self, name: str, real: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        if self.reached:
            if name == "write":
                real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)


def _save_until_killed(folder: Path, report: int, at: int) -> None:
    newest_step = (load_newest(folder, lambda words: os._exit(9), disk=QUICK) or moment(0)).step
    clean(folder, disk=QUICK)
    disk: Disk = QUICK  # every life saves once
    while True:
        newest_step += 1
        write(folder, moment(newest_step), disk=disk)
        os.write(report, newest_step.to_bytes(4, "little"))
        retain(folder, last=2, every=0, best=None, disk=disk)
        disk = disk if isinstance(disk, Deadly) else Deadly(at, "exit")


def test_kill_at_any_moment_loses_nothing_that_was_reported(tmp_path: Path) -> None:
    """In the second of several saves or in one after it: at every fifth call of two rounds."""
    last, saves = 0, set[int]()
    for at in range(1, 180, 5):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _save_until_killed(tmp_path / "run", writing, at)
            finally:
                os._exit(8)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            reported = pipe.read()  # to its end
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        found = newest(tmp_path / "run")[0]
        assert found >= int.from_bytes(reported[-4:], "little") > last
        saves.add(len(reported) // 4)
        last = found  # a save may have ended just before it could be reported
    assert {1, 2} <= saves


# Power loss; the sequences and the judge are those of the torture suite


def known(saved: Saved) -> Snapshot:
    return moment(*saved)


def test_power_loss_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    wrong, tried, complete = lose_power(record(tmp_path / "run", as_we_do), tmp_path / "disks", known, hidden=5)
    assert wrong == []
    assert complete
    assert tried > 150


SICK: dict[str, tuple[Script, Callable[[list[Op]], list[Op]], set[str]]] = {
    "fsync of files removed": (simply, without_file_syncs, {DAMAGED}),
    "fsync of folders removed": (simply, without_directory_syncs, {LOST, DAMAGED}),
    "flush after fsync": (simply, flushed_after_sync, {DAMAGED}),
    "old deleted first": (old_deleted_first, list, {LOST}),
    "manifest and name before the files": (simply, committed_first, {DAMAGED}),
    "deletion not synced": (as_we_do, without_sync_of_deletion, {DAMAGED}),
}


@pytest.mark.parametrize(("script", "change", "symptoms"), SICK.values(), ids=SICK.keys())
def test_power_loss_test_can_fail(tmp_path: Path, script: Script, change: Any, symptoms: set[str]) -> None:
    log = change(record(tmp_path / "run", script))
    wrong, _, _ = lose_power(log, tmp_path / "disks", known, enough=60, hidden=5)
    assert symptoms <= {words.partition(" (")[0] for words in wrong}


def test_near_miss_manifest_before_its_files_but_all_before_the_rename(tmp_path: Path) -> None:
    log = manifest_first(record(tmp_path / "run", simply))
    wrong, _, complete = lose_power(log, tmp_path / "disks", known, hidden=5)
    assert wrong == []
    assert complete
