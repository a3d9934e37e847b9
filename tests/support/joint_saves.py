"""Checkpoints that several processes write, played by threads."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from moments import QUICK, same, snapshot
from torch import Tensor

from safelight.checkpoints.coordinator import SaveCoordinator
from safelight.checkpoints.snapshot import Loaded, Snapshot
from safelight.checkpoints.writer import PartWriter, Writer
from safelight.errors import ProcessLost
from safelight.files import Disk
from safelight.processes.slices import Shard

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
