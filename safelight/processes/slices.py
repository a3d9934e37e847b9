"""Rows of tensors that are divided among processes: who holds which, and how a checkpoint of them is put together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from safelight.errors import CheckpointError

MAX_PROCESSES, MAX_NUMBERS = 1 << 20, 1 << 48  # processes and numbers that a manifest may describe


def rows_each(size: int, count: int) -> int:
    """As `torch.chunk` and FSDP cut it."""
    return max(1, -(-size // count))


@dataclass(frozen=True, slots=True)
class Shard:
    """What one of several processes holds of the tensors of a checkpoint: some rows of those that are sharded."""

    index: int
    count: int
    shapes: Mapping[str, tuple[int, ...]]  # of the parameters that are sharded, whole

    def rows(self, size: int) -> tuple[int, int]:
        """First row and the one after the last, of so many; the last processes may have fewer, or none."""
        each = rows_each(size, self.count)
        return min(size, self.index * each), min(size, (self.index + 1) * each)

    def whole_shape(self, stem: str, name: str) -> tuple[int, ...] | None:
        """None of what every process has whole."""
        return self.shapes.get(parameter_of(stem, name) or "")


EVERYTHING = Shard(0, 1, {})  # of one process that holds all


def parameter_of(stem: str, name: str) -> str | None:
    """The parameter that a tensor of a checkpoint has the shape of, if it has that of any."""
    if stem == "monitors":
        return None
    if stem == "profiles":
        return name.partition("/")[2]
    if stem == "optimizer":
        parameter, _, moment = name.rpartition("/")
        return None if moment == "step" else parameter
    return name


def file_stem(stem: str, index: int | None, count: int) -> str:
    """The stem of the file with the rows of one process, or with what every process has whole."""
    return f"{stem}.whole" if index is None else f"{stem}.{index}-of-{count}"


def describe(
    tensors: Mapping[str, Mapping[str, Tensor]], shard: Shard, names: Mapping[torch.dtype, str]
) -> dict[str, Any]:
    """What a manifest says of sharded tensors, the same on all processes that hold at least a row of each: by stem and
    name the `dtype`, the `shape` of the whole tensor, and the `rows` in each file; None: it lies whole in one."""

    def describe_one(stem: str, name: str, value: Tensor) -> dict[str, Any]:
        whole = shard.whole_shape(stem, name)
        rows = None if whole is None else rows_each(whole[0], shard.count)
        return {"dtype": names[value.dtype], "shape": list(value.shape if whole is None else whole), "rows": rows}

    described = {s: {n: describe_one(s, n, value) for n, value in group.items()} for s, group in tensors.items()}
    return {"count": shard.count, "tensors": described}


def check_layout(sharded: Any, files: int, where: str) -> None:
    """Checks the layout of a manifest; what it says is compared with what the files hold when they are read. `files`:
    that there are, which no tensor can lie in more of."""
    count = sharded.get("count") if isinstance(sharded, dict) else None
    tensors = sharded.get("tensors") if isinstance(sharded, dict) else None
    if not is_whole_number(count, 1, MAX_PROCESSES) or not isinstance(tensors, dict):
        raise CheckpointError(f"{where} does not say how its tensors are divided, or among how many files.")
    for stem, group in tensors.items():
        if not isinstance(group, dict) or not all(_is_described(each, files) for each in group.values()):
            raise CheckpointError(f"{where}: a tensor of {stem!r:.80} is not described by dtype, shape and rows.")


def _is_described(spec: Any, files: int) -> bool:
    if not isinstance(spec, dict) or spec.keys() != {"dtype", "shape", "rows"} or not isinstance(spec["shape"], list):
        return False
    shape, rows = spec["shape"], spec["rows"]
    if not all(is_whole_number(size, 0, MAX_NUMBERS) for size in shape) or math.prod(shape) > MAX_NUMBERS:
        return False
    fits = rows is None or (bool(shape) and is_whole_number(rows, 1, MAX_NUMBERS) and shape[0] <= rows * files)
    return isinstance(spec["dtype"], str) and fits


def is_whole_number(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def holders(spec: Mapping[str, Any], start: int, stop: int) -> list[int | None]:
    """The files that hold rows `start` to `stop` of a tensor."""
    each = spec["rows"]
    if each is None:
        return [None]
    return list(range(start // each, -(-stop // each))) if stop > start else []


def join(pieces: list[tuple[int, Tensor]], like: Tensor, start: int, stop: int, where: str) -> Tensor:
    """Rows `start` to `stop` from pieces by their first row: all of them and each once, as those of `like` [0, …]."""
    reached, used = start, list[Tensor]()
    for first, piece in sorted(pieces, key=lambda each: each[0]):
        if first != reached or piece.shape[1:] != like.shape[1:] or piece.dtype != like.dtype:
            raise CheckpointError(f"{where}: its rows from {reached} on were expected, of {list(like.shape[1:])} each.")
        reached += len(piece)
        used.append(piece)
    if reached != stop:
        raise CheckpointError(f"{where}: rows {start} to {stop} were expected; the files hold them up to {reached}.")
    return torch.cat(used) if len(used) > 1 else used[0] if used else like
