"""Reads checkpoints: only what is byte for byte as it was written, and the newest one that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from torch import Tensor

from safelight.checkpoints import folder as retention
from safelight.checkpoints import manifest, tensorfile
from safelight.checkpoints.manifest import Entry
from safelight.checkpoints.row_reader import load_rows
from safelight.checkpoints.snapshot import Loaded, refuse_nonfinite
from safelight.errors import CheckpointError
from safelight.files import DISK, Disk, Unreadable
from safelight.processes.slices import EVERYTHING
from safelight.words import megabytes


def load(path: Path, *, disk: Disk = DISK) -> Loaded:
    """One checkpoint folder, every byte checked and then parsed from the very bytes that were checked."""
    found = manifest.read(path, disk)
    entries = manifest.entries(found)
    manifest.check_sizes(path, entries, disk)
    _check_memory(path, entries)
    tensors: dict[str, dict[str, Tensor]] = {}
    state: dict[str, Any] = {}
    try:
        if found["format"] == manifest.DIVIDED:
            return load_rows(path, EVERYTHING, disk=disk)
        for entry in entries:
            content = manifest.read_file(path, entry, disk)
            if entry.name == manifest.STATE:
                state = manifest.parse_json(content, path / entry.name)
            else:
                tensors[entry.name.removesuffix(".safetensors")] = tensorfile.parse(content, str(path / entry.name))
    except MemoryError as error:
        raise Unreadable(f"{path} does not fit into memory. It was left as it is.") from error
    refuse_nonfinite(tensors, state, str(path))
    return Loaded(found["step"], path, tensors, state, found)


def _check_memory(path: Path, entries: list[Entry]) -> None:
    """A file of 1 TB of holes is cheap to make and must not be read."""
    needed = sum(entry.size for entry in entries) + max(entry.size for entry in entries)
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
    way than to load all of it; `paths`: the only ones to look at."""
    refused: list[str] = []
    for path in retention.candidates(folder) if paths is None else paths:
        try:
            return read(path) if read is not None else patiently(lambda path=path: load(path, disk=disk))
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


def patiently(read: Callable[[], Loaded]) -> Loaded:
    """A second time where the disk failed: an error that does not come again says nothing about the content."""
    try:
        return read()
    except CheckpointError as error:
        if not isinstance(error.__cause__, OSError):
            raise
    return read()
