"""Checkpoints on their way to all processes: read by the first and sent to the others, or by each what it holds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from safelight.checkpoints.folder import candidates, place
from safelight.checkpoints.manifest import NAME
from safelight.checkpoints.reader import load, load_newest, read_twice
from safelight.checkpoints.snapshot import Loaded
from safelight.checkpoints.tensorfile import KINDS, NAMES
from safelight.errors import CheckpointError, UsageError
from safelight.files import DISK, Disk, Unreadable
from safelight.processes.group import ProcessGroup
from safelight.processes.slices import EVERYTHING, Shard

SHARED_DISK = (
    "Where weights are divided (train.weights), every process writes and reads its own part of a checkpoint: the run "
    "folder must lie on a disk that all of them share."
)


def load_once(group: ProcessGroup, read: Callable[[], Loaded | None]) -> Loaded | None:
    """Read by the first process; the others get the tensors one by one, as they are restored: none holds all of them
    beside what it trains."""
    loaded = read() if group.is_main else None
    head = group.broadcast(lambda: loaded and _describe(loaded))
    if head is None:
        return None
    if loaded is None:
        tensors = {
            stem: {name: torch.empty(shape, dtype=KINDS[kind], device="meta") for name, kind, shape in rows}
            for stem, rows in head["tensors"].items()
        }
        loaded = Loaded(head["step"], Path(head["path"]), tensors, head["state"], head["manifest"])
    if group.size == 1:
        return loaded
    known = loaded.tensors
    return replace(loaded, send=lambda stem: _SentTensors(group, known.get(stem, {})))


class _SentTensors(Mapping[str, Tensor]):
    """Whoever asks for one takes part in sending it."""

    def __init__(self, group: ProcessGroup, known: Mapping[str, Tensor]) -> None:
        self._group, self._known = group, known

    def __getitem__(self, name: str) -> Tensor:
        value = self._known[name]
        return self._group.broadcast_tensor(torch.empty_like(value, device="cpu") if value.is_meta else value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _describe(loaded: Loaded) -> dict[str, Any]:
    tensors = {
        stem: [[name, NAMES[value.dtype], list(value.shape)] for name, value in group.items()]
        for stem, group in loaded.tensors.items()
    }
    whole = {"step": loaded.step, "path": str(loaded.path), "state": loaded.state, "manifest": loaded.manifest}
    return whole | {"tensors": tensors}


def load_latest(
    group: ProcessGroup, folder: Path, shard: Shard | None, say: Callable[[str], None], disk: Disk = DISK
) -> Loaded | None:
    """The newest checkpoint that is whole, or what this process holds of it."""
    if shard is None:
        return load_once(group, lambda: load_newest(folder, say, disk=disk))
    return load_rows_newest(group, folder, shard, say, disk)


def load_rows_newest(
    group: ProcessGroup, folder: Path, shard: Shard, say: Callable[[str], None], disk: Disk = DISK
) -> Loaded | None:
    """As `load_newest`, where every process holds some rows and reads no more than those. A checkpoint in which one of
    them finds damage is refused by all; the first one sets it aside."""
    paths = [Path(path) for path in group.broadcast(lambda: [str(path) for path in candidates(folder)])]

    def read(path: Path) -> Loaded:
        visible = group.all_gather_object((path / NAME).is_file())
        if visible[0] and not all(visible):
            raise Unreadable(f"Process {visible.index(False)} does not see {path}. {SHARED_DISK}")
        found: list[Loaded] = []
        failed: tuple[str | None, bool] = (None, False)  # why, and whether another try may succeed
        try:
            found.append(read_twice(functools.partial(load, disk=disk), path, shard))
        except CheckpointError as error:
            failed = str(error), isinstance(error, Unreadable)
        for reason, unreadable in sorted(group.all_gather_object(failed), key=lambda each: not each[1]):
            if reason is not None:
                raise Unreadable(reason) if unreadable else CheckpointError(reason)
        return found[0]

    return load_newest(folder, say, read=read, paths=paths, disk=disk if group.is_main else ReadOnlyDisk(disk.root))


def load_ema(group: ProcessGroup, folder: Path, step: int, shard: Shard | None, disk: Disk = DISK) -> dict[str, Tensor]:
    """The EMA of a checkpoint, or the rows of it that this process holds; all refuse what one cannot read."""
    loaded, failed = None, None
    if shard is not None or group.is_main:
        try:
            loaded = load(place(folder, step), EVERYTHING if shard is None else shard, stems={"ema"}, disk=disk)
        except CheckpointError as error:
            failed = str(error)
    reasons = group.all_gather_object(failed)
    if (reason := next((each for each in reasons if each is not None), None)) is not None:
        raise CheckpointError(reason)
    if shard is None:
        loaded = load_once(group, lambda: loaded)
    assert loaded is not None, "what could not be loaded was refused"
    return dict(loaded.contents("ema"))


class ReadOnlyDisk(Disk):
    """The disk of a process that leaves what it finds where it is."""

    def rename(self, source: Path, target: Path) -> None: ...

    def sync_directory(self, path: Path) -> None: ...


def require_shared_folder(group: ProcessGroup, folder: Path) -> None:
    """Before the first step: what is saved together must be seen by all."""
    visible = group.all_gather_object(folder.is_dir())
    if not all(visible):
        raise UsageError(f"Process {visible.index(False)} does not see the run folder {folder}. {SHARED_DISK}")
