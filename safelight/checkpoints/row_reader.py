"""The tensors of a checkpoint that a process holds rows of: every file is hashed whole, only the rows are kept."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from safelight.checkpoints import manifest, tensorfile
from safelight.checkpoints.manifest import Entry
from safelight.checkpoints.tensorfile import KINDS
from safelight.errors import CheckpointError
from safelight.files import Disk
from safelight.processes.slices import Shard, file_stem, holders, join

Rows = tuple[int, int]  # the first one, and the one after the last


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads one checkpoint for one process. Files without any of its rows are not read: each has some for another."""

    path: Path
    entries: Mapping[str, Entry]  # by stem
    shard: Shard
    disk: Disk
    sharded: Mapping[str, Any] | None  # what the manifest says of tensors that lie in several files

    def read(self, stem: str) -> dict[str, Tensor]:
        """One group of tensors."""
        if self.sharded is not None:
            return self._read_sharded(stem, self.sharded["tensors"][stem], self.sharded["count"])
        return self._pick(stem, functools.partial(self._rows, stem))

    def _read_sharded(self, stem: str, specs: Mapping[str, Any], count: int) -> dict[str, Tensor]:
        """A group that lies in several files."""
        wanted = {name: self._rows(stem, name, spec["shape"]) for name, spec in specs.items()}
        pieces: dict[str, list[tuple[int, Tensor]]] = {name: [] for name in specs}
        files = {index for name, spec in specs.items() for index in holders(spec, *wanted[name])}
        for index in sorted(files, key=lambda index: -1 if index is None else index):
            file = file_stem(stem, index, count)
            if file not in self.entries:
                raise CheckpointError(f"{self.path} has no {file}.safetensors, which its manifest names.")
            for name, piece in self._pick(file, functools.partial(self._choose, specs, wanted, index)).items():
                pieces[name].append((max(_first_row(specs[name], index), wanted[name][0]), piece))
        return {name: self._join(stem, name, spec, pieces[name], wanted[name]) for name, spec in specs.items()}

    def _choose(
        self, specs: Mapping[str, Any], wanted: Mapping[str, Rows], index: int | None, name: str, shape: list[int]
    ) -> Rows | None:
        if name not in specs or (specs[name]["rows"] is None) != (index is None):
            raise CheckpointError(f"{self.path}: {name!r:.80} lies where its manifest does not have it.")
        first, (start, stop) = _first_row(specs[name], index), wanted[name]
        start, stop = max(0, start - first), min(shape[0] if shape else 1, stop - first)
        return (start, stop) if start < stop else None

    def _join(
        self, stem: str, name: str, spec: Mapping[str, Any], pieces: list[tuple[int, Tensor]], wanted: Rows
    ) -> Tensor:
        where = f"{self.path}, {stem} tensor {name}"
        if spec["dtype"] not in KINDS:
            raise CheckpointError(f"{where} is {spec['dtype']!r:.40}, which is not among {', '.join(KINDS)}.")
        like = torch.empty([0, *spec["shape"][1:]], dtype=KINDS[spec["dtype"]])
        if spec["shape"]:
            return join(pieces, like, *wanted, where)
        if len(pieces) != 1 or pieces[0][1].dim() or pieces[0][1].dtype != like.dtype:
            raise CheckpointError(f"{where}: one number of {spec['dtype']} was expected.")
        return pieces[0][1]

    def _rows(self, stem: str, name: str, shape: list[int]) -> Rows:
        size = shape[0] if shape else 1
        is_whole = not shape or self.shard.whole_shape(stem, name) is None
        return (0, size) if is_whole else self.shard.rows(size)

    def _pick(self, file: str, choose: tensorfile.Choice) -> dict[str, Tensor]:
        entry = self.entries[file]
        chunks = manifest.stream_file(self.path, entry, self.disk)
        return tensorfile.pick(chunks, entry.size, choose, str(self.path / entry.name))


def _first_row(spec: Mapping[str, Any], index: int | None) -> int:
    """The first row of a tensor in one of its files."""
    return 0 if index is None else index * spec["rows"]
