"""A moment of training on its way to disk and back: what is in it, and whether it could be loaded again."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from safelight import __version__
from safelight.checkpoints import manifest, tensorfile
from safelight.checkpoints.tensorfile import FileContent
from safelight.errors import CheckpointError
from safelight.processes import slices
from safelight.processes.slices import Shard

Groups = dict[str, dict[str, Tensor]]  # file stem -> name -> tensor


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything of one moment, already cloned to host memory."""

    step: int
    tensors: Groups
    state: dict[str, Any]  # small and JSON-able; NaN and Inf come back
    environment: dict[str, Any]
    shard: Shard | None = None  # where some of the tensors are rows of larger ones


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint that was read and found whole."""

    step: int
    path: Path
    tensors: Groups  # without content in processes that are sent it
    state: dict[str, Any]
    manifest: dict[str, Any]
    send: Callable[[str], Mapping[str, Tensor]] | None = None

    def contents(self, stem: str) -> Mapping[str, Tensor]:
        """A group of tensors. Where the first process has read them, every access sends one to all, so all have to make
        the same ones, in the same order."""
        return self.tensors.get(stem, {}) if self.send is None else self.send(stem)


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A snapshot that was found fit to save, as the files of a checkpoint."""

    step: int
    contents: dict[str, FileContent]
    environment: dict[str, Any]
    sharded: dict[str, Any] | None = None  # what the manifest says of tensors that lie in several files

    @property
    def size(self) -> int:
        return sum(content.size for content in self.contents.values())


def environment() -> dict[str, Any]:
    """What the bits depend on: a resume is exact where none of this changes."""
    return {
        "safelight": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "processes": torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1,
    }


def prepare(snapshot: Snapshot) -> CheckpointFiles:
    """Refuse what could not be loaded again, before the disk is touched."""
    where = f"Checkpoint of step {snapshot.step}"
    if not manifest.is_step(snapshot.step):
        raise CheckpointError(f"{where}: a step is a number from 0 to {manifest.LARGEST_STEP:,}.")
    files: dict[str, FileContent] = {}
    for stem, tensors in sorted(_by_file(snapshot)):
        name = f"{stem}.safetensors"
        if not manifest.is_file_name(name):
            raise CheckpointError(f"{where}: {name!r} is not a plain lower-case file name.")
        files[name] = tensorfile.lay_out(tensors, f"{where}, {name}")
    refuse_nonfinite(snapshot.tensors, snapshot.state, where)
    shard = snapshot.shard
    if shard is None or shard.index == 0:
        text = _encode(snapshot.state, f"{where}, state")
        files[manifest.STATE] = FileContent(text, (), len(text))
    _encode(snapshot.environment, f"{where}, environment")
    sharded = None if shard is None else slices.describe(snapshot.tensors, shard, tensorfile.NAMES)
    return CheckpointFiles(snapshot.step, files, snapshot.environment, sharded)


def _by_file(snapshot: Snapshot) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Rows go into a file of this process; what all have whole is written by the first."""
    shard = snapshot.shard
    for stem, group in snapshot.tensors.items():
        if shard is None:
            yield stem, group
            continue
        rows = {name: value for name, value in group.items() if shard.whole_shape(stem, name) is not None}
        whole = {name: value for name, value in group.items() if name not in rows}
        if whole and shard.index == 0:
            yield slices.file_stem(stem, None, shard.count), whole
        if rows := {name: value for name, value in rows.items() if len(value)}:
            yield slices.file_stem(stem, shard.index, shard.count), rows


def refuse_nonfinite(tensors: Groups, state: dict[str, Any], where: str) -> None:
    """Weights that are not finite end every use of a checkpoint; a state with `allow_nonfinite` insists."""
    if state.get("allow_nonfinite"):
        return
    for stem, group in tensors.items():
        for name, tensor in group.items() if stem.startswith(("model", "ema")) else ():
            if not _is_finite(tensor):
                bad = int((~torch.isfinite(tensor.float())).sum())
                raise CheckpointError(
                    f"{where}: {stem} tensor {name} holds {bad:,} NaN or Inf among {tensor.numel():,} "
                    "values. Go back to an earlier checkpoint."
                )


def _is_finite(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    wide = tensor.float() if tensor.element_size() == 1 else tensor  # float8 has no comparison
    low, high = torch.aminmax(wide)  # NaN comes through, and no mask is allocated
    return bool(torch.isfinite(low) & torch.isfinite(high))


def _encode(value: dict[str, Any], where: str) -> bytes:
    """Python writes NaN and Infinity and reads them again; every float comes back to the last bit."""
    try:
        _check_plain(value, where)
        text = manifest.to_json(value)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where} cannot be written as JSON: {error}.") from error
    if len(text) > manifest.LARGEST_JSON // 2:
        raise CheckpointError(
            f"{where} has {len(text):,} bytes; at most {manifest.LARGEST_JSON // 2:,} are saved. "
            "Large arrays belong among the tensors."
        )
    return text


def _check_plain(value: Any, where: str) -> None:
    """JSON would turn the key 1 into "1" without a word: only what comes back as it went is allowed."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise CheckpointError(f"{where}: the key {key!r} is a {type(key).__name__}, not text.")
            _check_plain(inner, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _check_plain(inner, f"{where}[{index}]")
    elif not (value is None or isinstance(value, str | int | float)):
        raise CheckpointError(f"{where} is a {type(value).__name__}; numbers, text and lists can be saved.")
