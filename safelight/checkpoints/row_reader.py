"""Rows of a checkpoint, read by a process that holds no more of it: every file is hashed whole, only they are kept."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from safelight.checkpoints import manifest, tensorfile
from safelight.checkpoints.manifest import Entry
from safelight.checkpoints.snapshot import Loaded, refuse_nonfinite
from safelight.checkpoints.tensorfile import KINDS
from safelight.errors import CheckpointError
from safelight.files import DISK, Disk
from safelight.processes.slices import Shard, file_stem, holders, join


def load_rows(path: Path, shard: Shard, *, stems: Container[str] | None = None, disk: Disk = DISK) -> Loaded:
    """What the process at this place among so many holds of a checkpoint, however many wrote it, and in whichever way.
    Files without any of its rows are not read: each has some for another process. `stems`: only these groups."""
    found = manifest.read(path, disk)
    entries = {entry.name.removesuffix(".safetensors"): entry for entry in manifest.entries(found)}
    manifest.check_sizes(path, list(entries.values()), disk)
    state = manifest.parse_json(manifest.read_file(path, entries.pop(manifest.STATE), disk), path / manifest.STATE)
    reader = _Reader(path, shard, disk)
    if found["format"] == manifest.DIVIDED:
        sharded, count = found["divided"]["tensors"], found["divided"]["count"]
        groups = {stem: group for stem, group in sharded.items() if stems is None or stem in stems}
        tensors = {stem: reader.read_sharded(stem, group, count, entries) for stem, group in groups.items()}
    else:
        tensors = {stem: reader.read_whole(stem, e) for stem, e in entries.items() if stems is None or stem in stems}
    refuse_nonfinite(tensors, state, str(path))
    return Loaded(found["step"], path, tensors, state, found)


class _Reader:
    """Of one checkpoint, for one process."""

    def __init__(self, path: Path, shard: Shard, disk: Disk) -> None:
        self._path, self._cut, self._disk = path, shard, disk

    def read_whole(self, stem: str, entry: Entry) -> dict[str, Tensor]:
        """A group as a process writes it that holds all of it."""
        return self._pick(entry, lambda name, shape: self._rows(stem, name, shape))

    def read_sharded(
        self, stem: str, group: Mapping[str, Any], count: int, entries: Mapping[str, Entry]
    ) -> dict[str, Tensor]:
        """A group that lies in several files."""
        wanted = {name: self._rows(stem, name, spec["shape"]) for name, spec in group.items()}
        pieces: dict[str, list[tuple[int, Tensor]]] = {name: [] for name in group}
        files = {index for name, spec in group.items() for index in holders(spec, *wanted[name])}
        for index in sorted(files, key=lambda index: -1 if index is None else index):
            file = file_stem(stem, index, count)
            if file not in entries:
                raise CheckpointError(f"{self._path} has no {file}.safetensors, which its manifest speaks of.")
            for name, piece in self._pick(entries[file], self._chooser(group, wanted, index)).items():
                pieces[name].append((max(_first_row(group[name], index), wanted[name][0]), piece))
        return {name: self._join(stem, name, spec, pieces[name], wanted[name]) for name, spec in group.items()}

    def _chooser(
        self, group: Mapping[str, Any], wanted: Mapping[str, tuple[int, int]], index: int | None
    ) -> tensorfile.Choice:
        def choose(name: str, shape: list[int]) -> tuple[int, int] | None:
            if name not in group or (group[name]["rows"] is None) != (index is None):
                raise CheckpointError(f"{self._path}: {name!r:.80} lies where its manifest does not have it.")
            first, (start, stop) = _first_row(group[name], index), wanted[name]
            start, stop = max(0, start - first), min(shape[0] if shape else 1, stop - first)
            return (start, stop) if start < stop else None

        return choose

    def _join(
        self, stem: str, name: str, spec: Mapping[str, Any], pieces: list[tuple[int, Tensor]], wanted: tuple[int, int]
    ) -> Tensor:
        where = f"{self._path}, {stem} tensor {name}"
        if spec["dtype"] not in KINDS:
            raise CheckpointError(f"{where} is {spec['dtype']!r:.40}, which is not among {', '.join(KINDS)}.")
        like = torch.empty([0, *spec["shape"][1:]], dtype=KINDS[spec["dtype"]])
        if spec["shape"]:
            return join(pieces, like, *wanted, where)
        if len(pieces) != 1 or pieces[0][1].dim() or pieces[0][1].dtype != like.dtype:
            raise CheckpointError(f"{where}: one number of {spec['dtype']} was expected.")
        return pieces[0][1]

    def _rows(self, stem: str, name: str, shape: list[int]) -> tuple[int, int]:
        size = shape[0] if shape else 1
        return (0, size) if self._cut.whole_shape(stem, name) is None or not shape else self._cut.slicing.rows(size)

    def _pick(self, entry: Entry, choose: tensorfile.Choice) -> dict[str, Tensor]:
        chunks = manifest.stream_file(self._path, entry, self._disk)
        return tensorfile.pick(chunks, entry.size, choose, str(self._path / entry.name))


def _first_row(spec: Mapping[str, Any], index: int | None) -> int:
    """Of a tensor, in one of its files."""
    return 0 if index is None else index * spec["rows"]
