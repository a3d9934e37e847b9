"""A checkpoint that several processes write together: whole or not at all, and read by any number in any share."""

from __future__ import annotations

import errno
import json
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from moments import QUICK, same, snapshot
from torch import Tensor

from safelight.checkpoints import manifest
from safelight.checkpoints.coordinator import SaveCoordinator
from safelight.checkpoints.folder import retain, steps
from safelight.checkpoints.joint_writer import PartWriter
from safelight.checkpoints.reader import load, load_newest
from safelight.checkpoints.snapshot import Loaded, Snapshot
from safelight.checkpoints.writer import Writer, write
from safelight.errors import CheckpointError, ProcessLost
from safelight.files import Disk
from safelight.processes.slices import Shard
from torture.disks import FaultyDisk, QuickDisk

SHAPES = {"weight": (3, 2), "bias": (2,), "row": (1, 4)}
LIMIT = 300.0  # seconds after which a test is taken to hang


class Notes(dict[str, str]):
    """In the order in which they were left; and which of them the first process waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()
        self.awaited: str | None = None

    def wait_for(self, happens: Callable[[], object]) -> None:
        with self.changed:
            assert self.changed.wait_for(happens, LIMIT), "it never happened"


class Board:
    """The notes of processes that are threads; `gone_at`: where the first one learns that another is gone."""

    def __init__(self, notes: Notes, rank: int, count: int, gone_at: str | None = None) -> None:
        self.notes, self.rank, self.size, self.is_broken, self._gone_at = notes, rank, count, False, gone_at

    def post(self, key: str, value: Any) -> None:
        with self.notes.changed:
            self.notes[key] = json.dumps(value)
            self.notes.changed.notify_all()

    def wait_for_note(self, *keys: str) -> Any:
        if self.rank == 0:
            with self.notes.changed:
                self.notes.awaited = keys[0]
                self.notes.changed.notify_all()
        if self._gone_at in keys:
            self.is_broken = True
        if self.is_broken:
            raise ProcessLost("Process 1 is gone.")
        self.notes.wait_for(lambda: any(key in self.notes for key in keys))
        return json.loads(next(self.notes[key] for key in keys if key in self.notes))


def whole(step: int) -> Snapshot:
    plain = snapshot(step)
    draw = torch.Generator().manual_seed(step)

    def fill(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=draw)

    groups: dict[str, dict[str, Tensor]] = {
        "model": {**{name: fill(shape) for name, shape in SHAPES.items()}, "counter": torch.tensor(step)},
        "ema": {name: fill(shape) for name, shape in SHAPES.items()},
        "profiles": {f"0.05/{name}": fill(shape) for name, shape in SHAPES.items()},
        "optimizer": {f"{name}/exp_avg": fill(shape) for name, shape in SHAPES.items()}
        | {f"{name}/step": torch.tensor(float(step)) for name in SHAPES},
        "monitors": {"loss/usual": fill((5,)).double()},
    }
    return replace(plain, tensors=groups)


def part(full: Snapshot, index: int, count: int) -> Snapshot:
    """What one of several processes has of a moment."""
    shard = Shard(index, count, SHAPES)

    def rows(stem: str, name: str, value: Tensor) -> Tensor:
        if shard.whole_shape(stem, name) is None:
            return value
        start, stop = shard.rows(len(value))
        return value[start:stop].clone()

    tensors = {s: {n: rows(s, n, v) for n, v in group.items()} for s, group in full.tensors.items()}
    return replace(full, tensors=tensors, shard=shard)


def write_together(
    folder: Path, full: Snapshot, count: int, notes: Notes | None = None, **disks: Disk | Sequence[Disk]
) -> tuple[list[str], list[int | None]]:
    """What the first one says, and which step each process believes to be saved. `notes`: to look at."""
    notes = Notes() if notes is None else notes

    def disk_of(rank: int) -> Disk:
        disk = disks.get("others" if rank else "first", QUICK)
        return disk if isinstance(disk, Disk) else disk[rank - 1]

    boards = [Board(notes, rank, count) for rank in range(count)]
    said: list[str] = []
    coordinators = [SaveCoordinator(cast(Any, board), "checkpoints") for board in boards]
    folder.mkdir(exist_ok=True)
    first = Writer(folder, last=9, every=0, say=said.append, disk=disk_of(0), coordinator=coordinators[0])
    others = [PartWriter(folder, each, disk=disk_of(rank)) for rank, each in enumerate(coordinators[1:], 1)]
    for rank, writer in enumerate((first, *others)):
        writer.submit(part(full, rank, count), None)
    for writer in (first, *others):
        writer.wait()
    return said, [writer.last_saved for writer in (first, *others)]


def assert_same(loaded: Loaded, expected: Snapshot) -> None:
    assert loaded.step == expected.step
    assert loaded.tensors.keys() == expected.tensors.keys()
    for stem, group in expected.tensors.items():
        assert loaded.tensors[stem].keys() == group.keys()
        for name, value in group.items():
            assert same(loaded.tensors[stem][name], value), (stem, name)


@pytest.mark.parametrize("written_by", [1, 2, 3, 5])
@pytest.mark.parametrize("read_by", [1, 2, 3, 4])
def test_any_number_reads_what_any_number_wrote(written_by: int, read_by: int, tmp_path: Path) -> None:
    full = whole(7)
    if written_by == 1:
        write(tmp_path, full, disk=QUICK)
    else:
        assert write_together(tmp_path, full, written_by) == ([], [7] * written_by)
    path = tmp_path / "step_00000007"
    assert_same(load(path, disk=QUICK), full)
    for index in range(read_by):
        assert_same(load(path, Shard(index, read_by, SHAPES), disk=QUICK), part(full, index, read_by))
    assert_same(
        load(path, Shard(0, 2, SHAPES), stems={"ema"}, disk=QUICK),
        replace(part(full, 0, 2), tensors={"ema": part(full, 0, 2).tensors["ema"]}),
    )


def test_process_reads_no_file_that_holds_none_of_its_rows(tmp_path: Path) -> None:
    write_together(tmp_path, whole(7), 2)
    path = tmp_path / "step_00000007"
    opened: list[str] = []

    class Watched(QuickDisk):
        def read(self, descriptor: int, count: int) -> bytes:
            opened.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
            return super().read(descriptor, count)

    load(path, Shard(1, 2, SHAPES), stems={"ema"}, disk=Watched())
    assert set(opened) == {"manifest.json", "state.json", "ema.1-of-2.safetensors"}


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


def forge(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """A manifest that says something else and matches its own sha256."""
    body = json.loads((path / manifest.NAME).read_bytes())
    del body["sha256"]
    change(body)
    (path / manifest.NAME).write_bytes(manifest.seal(body))


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no layout": (lambda m: m.pop("divided"), "does not say how its tensors are divided"),
    "no files": (lambda m: m["divided"].update(count=0), "does not say how its tensors are divided"),
    "more files": (lambda m: m["divided"].update(count=3), "has no .*-of-3.safetensors"),
    "other rows": (lambda m: m["divided"]["tensors"]["model"]["weight"].update(rows=1), "has no model.2-of-2"),
    "rows of nothing": (lambda m: m["divided"]["tensors"]["model"]["counter"].update(rows=1), "is not described"),
    "more rows": (lambda m: m["divided"]["tensors"]["model"]["weight"].update(shape=[4, 2]), "rows 0 to 4"),
    "wider": (lambda m: m["divided"]["tensors"]["model"]["weight"].update(shape=[3, 3]), "rows"),
    "endless": (lambda m: m["divided"]["tensors"]["model"]["weight"].update(shape=[2**40] * 3), "is not described"),
    "another kind": (lambda m: m["divided"]["tensors"]["model"]["weight"].update(dtype="F16"), "rows"),
    "an unknown kind": (lambda m: m["divided"]["tensors"]["model"]["weight"].update(dtype="F1"), "not among"),
    "a tensor more": (
        lambda m: m["divided"]["tensors"]["model"].update(more={"dtype": "F32", "shape": [4], "rows": 2}),
        "rows 0 to 4",
    ),
    "a tensor less": (lambda m: m["divided"]["tensors"]["model"].pop("weight"), "lies where its manifest"),
    "called whole": (lambda m: m.update(format=1), "model"),
}


@pytest.mark.parametrize(("change", "words"), FORGERIES.values(), ids=FORGERIES.keys())
def test_manifest_that_does_not_fit_its_files_is_refused_in_words(
    change: Callable[[dict[str, Any]], object], words: str, tmp_path: Path
) -> None:
    write_together(tmp_path, whole(7), 2)
    forge(path := tmp_path / "step_00000007", lambda body: None)
    assert_same(load(path, disk=QUICK), whole(7))
    forge(path, change)
    if words == "model":  # files in parts are groups of their own then, which no run knows
        assert "model" not in load(path, disk=QUICK).tensors
        return
    with pytest.raises(CheckpointError, match=words):
        load(path, disk=QUICK)


def test_every_byte_of_every_part_is_guarded(tmp_path: Path) -> None:
    write_together(tmp_path, whole(3), 2)
    write_together(tmp_path, whole(7), 2)
    path = tmp_path / "step_00000007"
    for file in sorted(path.iterdir()):
        content = file.read_bytes()
        for place in (0, 9, len(content) // 2, len(content) - 1):
            file.write_bytes(bytes([*content[:place], content[place] ^ 64, *content[place + 1 :]]))
            with pytest.raises(CheckpointError):
                load(path, disk=QUICK)
        file.write_bytes(content)
    assert_same(load(path, disk=QUICK), whole(7))
    (path / "optimizer.1-of-2.safetensors").unlink()
    said: list[str] = []
    found = load_newest(tmp_path, said.append, disk=QUICK)
    assert found is not None
    assert_same(found, whole(3))
    assert "optimizer.1-of-2.safetensors is missing" in said[0]


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
