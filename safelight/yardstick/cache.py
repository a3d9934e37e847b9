"""The linear filter of a data set on disk, beside the prepared images: fitted once, verified when read."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor

from safelight.files import Disk, make_directories, read_tensor_file, write_atomically
from safelight.yardstick.linear import LinearDenoiser

MAX_FILTER_BYTES = 4 << 30  # bytes of a filter
VERSION = 1  # of what is fitted: a filter of another one is not read
TENSORS = ("mean", "vectors", "variances")


def cached_linear(path: Path | None, fit: Callable[[], LinearDenoiser]) -> LinearDenoiser:
    """A file that is missing or damaged, or a folder that cannot be written to, costs time and nothing else. The
    filter is the same bytes either way. `path`: None for one that is not kept."""
    if path is None:
        return fit()
    disk = Disk(path.parent.parent)  # the root of the cache
    if (kept := _read(path, disk)) is not None:
        return kept
    fitted = fit()
    with contextlib.suppress(OSError):
        make_directories(path.parent.parent)
        make_directories(path.parent, disk)
        tensors = {name: getattr(fitted, name).contiguous().cpu() for name in TENSORS}
        header = {"count": str(fitted.count), "check": _check(tensors)}
        write_atomically(path, save(tensors, header), disk)
    return fitted


def filter_path(root: Path, **identity: str | int | None) -> Path:
    """`identity`: all that the filter depends on."""
    words = json.dumps({"version": VERSION, **identity}, sort_keys=True)
    return root / "filters" / f"{hashlib.sha256(words.encode()).hexdigest()[:32]}.safetensors"


def _check(tensors: dict[str, Tensor]) -> str:
    """The checksum of all bytes."""
    found = hashlib.sha256()
    for name in TENSORS:
        found.update(str(tuple(tensors[name].shape)).encode())
        found.update(tensors[name].numpy().tobytes())
    return found.hexdigest()


def _read(path: Path, disk: Disk) -> LinearDenoiser | None:
    """What was kept, if every byte of it is as it was written."""
    try:
        raw, header = read_tensor_file(path, MAX_FILTER_BYTES, disk)
        found = load(raw)
        tensors = {name: found[name] for name in TENSORS}
    except Exception:  # safetensors has errors of its own for each way a file can be broken
        return None
    if any(tensor.dtype != torch.float64 for tensor in tensors.values()) or header.get("check") != _check(tensors):
        return None
    return LinearDenoiser(**tensors, count=int(header["count"]))
