"""A checkpoint that several processes write together: whole or not at all."""

from __future__ import annotations

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from joint_saves import Board, Notes, assert_same, part, whole, write_together
from moments import QUICK

from safelight.checkpoints.coordinator import SaveCoordinator
from safelight.checkpoints.folder import retain, steps
from safelight.checkpoints.reader import load, load_newest
from safelight.checkpoints.writer import Writer
from torture.disks import FaultyDisk, QuickDisk


class Full(QuickDisk):
    """Has no room for the first so many files."""

    def __init__(self, files: int) -> None:
        self.left = files

    def allocate(self, descriptor: int, size: int) -> None:
        self.left -= 1
        if self.left >= 0:
            raise OSError(errno.ENOSPC, "No space left on device")


def test_failure_of_another_process_is_told_and_tried_again(tmp_path: Path) -> None:
    said, saved = write_together(tmp_path, whole(3), 2, others=Full(1))
    assert saved == [3, 3]
    assert len(said) == 1
    assert "process 1: [Errno 28] No space left" in said[0]
    assert_same(load(tmp_path / "step_00000003", disk=QUICK), whole(3))


class Slow(QuickDisk):
    """Writes nothing before the first process waits for this one to end its first attempt, or has ended that itself."""

    def __init__(self, notes: Notes, rank: int) -> None:
        self._notes, self._own = notes, f"checkpoints/0/{rank}"

    def allocate(self, descriptor: int, size: int) -> None:
        self._notes.wait_for(lambda: {self._notes.awaited, *self._notes} & {self._own, "checkpoints/0/end"})


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_nobody_writes_any_more_where_a_failed_attempt_is_removed(failing: int, tmp_path: Path) -> None:
    notes = Notes()
    disks = [Full(99) if rank == failing else Slow(notes, rank) for rank in range(3)]
    write_together(tmp_path, whole(3), 3, notes, first=disks[0] if failing == 0 else QUICK, others=disks[1:])
    assert json.loads(notes["checkpoints/0/end"])["error"]
    told = list(notes)
    assert max(told.index("checkpoints/0/1"), told.index("checkpoints/0/2")) < told.index("checkpoints/0/end")


@pytest.mark.parametrize("who", ["first", "others"])
def test_disk_that_stays_full_leaves_the_checkpoint_before(who: str, tmp_path: Path) -> None:
    write_together(tmp_path, whole(3), 3)
    said, saved = write_together(tmp_path, whole(6), 3, **{who: Full(99)})
    assert saved == [None] * 3
    assert "Training continues unsaved; the newest checkpoint is step 3." in said[-1]
    assert steps(tmp_path) == [3]
    assert not list(tmp_path.glob(".tmp-*"))
    assert_same(load(tmp_path / "step_00000003", disk=QUICK), whole(3))


def test_weights_that_are_not_finite_in_one_part_are_not_saved(tmp_path: Path) -> None:
    full = whole(3)
    full.tensors["model"]["weight"][2] = torch.nan  # of the last process
    said, saved = write_together(tmp_path, full, 2)
    assert saved == [None, None]
    assert "process 1: Checkpoint of step 3: model tensor weight holds 2 NaN or Inf" in said[-1]
    assert steps(tmp_path) == []


def test_process_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    write_together(tmp_path, whole(3), 2)
    board: Any = Board(Notes(), 0, 2, gone_at="checkpoints/0/1")
    said: list[str] = []
    coordinator = SaveCoordinator(board, "checkpoints")
    writer = Writer(tmp_path, last=1, every=0, say=said.append, disk=QUICK, coordinator=coordinator)
    writer.submit(part(whole(6), 0, 2), None)
    writer.wait()
    assert "Process 1 is gone" in said[-1]
    assert steps(tmp_path) == [3]
    assert not list(tmp_path.glob(".tmp-*"))
    assert_same(load(tmp_path / "step_00000003", disk=QUICK), whole(3))


def test_old_ones_are_deleted_whole(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write_together(tmp_path, whole(step), 2)
    assert retain(tmp_path, last=1, every=0, best=2, disk=QUICK) == [1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_00000002", "step_00000003"]


@pytest.mark.parametrize("who", ["first", "others"])
def test_fault_at_any_call_leaves_a_whole_checkpoint(who: str, tmp_path: Path) -> None:
    """One error, of whichever process at whichever call: the second attempt saves, or the one before is left."""
    small = {step: replace(whole(step), tensors={"model": whole(step).tensors["model"]}) for step in (3, 7)}
    write_together(tmp_path / "before", small[3], 2)
    for at in range(1, 200):
        folder, disk = shutil.copytree(tmp_path / "before", tmp_path / str(at)), FaultyDisk(at, "EIO once")
        said, saved = write_together(folder, small[7], 2, **{who: disk})
        found = load_newest(folder, pytest.fail, disk=QUICK)
        assert found is not None
        assert_same(found, small[7 if saved[0] else 3])
        assert len(set(saved)) == 1
        if not disk.reached:
            break
        assert saved == [7, 7] or said
    else:
        pytest.fail("no end of calls")
