"""Reads checkpoints: only what is byte for byte as it was written, and the newest one that is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path

import psutil

from safelight.checkpoints import folder as retention
from safelight.checkpoints import manifest
from safelight.checkpoints.manifest import Entry
from safelight.checkpoints.row_reader import RowReader
from safelight.checkpoints.snapshot import Loaded, refuse_nonfinite
from safelight.errors import CheckpointError
from safelight.files import DISK, Disk, Unreadable
from safelight.processes.slices import EVERYTHING, Shard
from safelight.words import megabytes


def load(path: Path, shard: Shard = EVERYTHING, *, stems: Container[str] | None = None, disk: Disk = DISK) -> Loaded:
    """One checkpoint folder, or what one process holds of it, however many wrote it: parsed from the very bytes that
    were checked. `stems`: only these groups."""
    found = manifest.read(path, disk)
    entries = {entry.name.removesuffix(".safetensors"): entry for entry in manifest.entries(found)}
    manifest.check_sizes(path, entries.values(), disk)
    if shard is EVERYTHING:
        _check_memory(path, entries.values())
    try:
        state = manifest.parse_json(manifest.read_file(path, entries.pop(manifest.STATE), disk), path / manifest.STATE)
        sharded = found["divided"] if found["format"] == manifest.DIVIDED else None
        reader = RowReader(path, entries, shard, disk, sharded)
        groups = entries if sharded is None else sharded["tensors"]
        tensors = {stem: reader.read(stem) for stem in groups if stems is None or stem in stems}
    except MemoryError as error:
        raise Unreadable(f"{path} does not fit into memory. It was left as it is.") from error
    refuse_nonfinite(tensors, state, str(path))
    return Loaded(found["step"], path, tensors, state, found)


def _check_memory(path: Path, entries: Iterable[Entry]) -> None:
    """A file of 1 TB of holes is cheap to make and must not be read."""
    sizes = [entry.size for entry in entries]
    needed = sum(sizes) + max(sizes)
    available = psutil.virtual_memory().available + psutil.swap_memory().free
    if needed > available:
        raise Unreadable(
            f"{path} needs {megabytes(needed)} of memory to load and {megabytes(available)} are available. "
            "It was left as it is: close other programs or use a larger machine."
        )


def load_newest(
    folder: Path,
    say: Callable[[str], None],
    *,
    disk: Disk = DISK,
    read: Callable[[Path], Loaded] | None = None,
    paths: Sequence[Path] | None = None,
) -> Loaded | None:
    """The newest whole checkpoint. None only if there never was one: never a silent start from step 0. `read`: another
    way than to load all of it; `paths`: the only ones to try."""
    refused: list[str] = []
    for path in retention.candidates(folder) if paths is None else paths:
        try:
            return read_twice(read or functools.partial(load, disk=disk), path)
        except Unreadable:
            raise
        except CheckpointError as error:
            refused.append(str(error))
            aside = retention.set_aside(path, disk)
            done = f"It was set aside as {aside.name}" if aside else "It could not be set aside"
            say(f"Checkpoint {path.name} cannot be used. {error} {done}; the next older one is tried.")
    count = max(len(refused), len(retention.corrupt(folder)))
    if count == 0:
        return None
    raise CheckpointError(
        f"No checkpoint in {folder} can be loaded; {count} are damaged. {' '.join(refused[:3])} "
        f"Restore one from a backup, or move {folder} away to start again from step 0."
    )


def read_twice(read: Callable[..., Loaded], *arguments: object) -> Loaded:
    """A second time where the disk failed: an error that does not come again says nothing about the content."""
    try:
        return read(*arguments)
    except CheckpointError as error:
        if not isinstance(error.__cause__, OSError):
            raise
    return read(*arguments)


def find_good(folder: Path, newest: int | None, disk: Disk = DISK) -> Loaded | None:
    """The newest checkpoint up to this step that was found good when it was saved, and that verifies."""
    for step in reversed(retention.steps(folder)):
        if newest is not None and step <= newest:
            try:
                loaded = load(retention.place(folder, step), disk=disk)
            except CheckpointError:
                continue
            if loaded.state.get("good_step") == step:
                return loaded
    return None
