"""Small moments of a training, and whether what was loaded is what was saved, to the bit."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from safelight.checkpoints.reader import load_newest
from safelight.checkpoints.snapshot import Loaded, Snapshot
from torture.disks import QuickDisk

QUICK = QuickDisk()

Saved = tuple[int, int]  # step, version


def moment(step: int, version: int = 0) -> Snapshot:
    weight = torch.full((4,), step + version / 8)
    tensors = {"model": {"weight": weight}, "ema": {"weight": weight / 2}}
    return Snapshot(step, tensors, {"version": version}, {"threads": 2})


def refuse(words: str) -> None:
    """As `say` of a load that must not find anything damaged."""
    raise AssertionError(f"damaged in sight: {words}")


def difference(loaded: Loaded, expected: Snapshot) -> str:
    """What is not as it was saved, in words; nothing if all is."""
    if loaded.step != expected.step:
        return f"step {loaded.step} instead of {expected.step}"
    if loaded.state != expected.state:
        return "another state"
    if loaded.tensors.keys() != expected.tensors.keys():
        return f"files {sorted(loaded.tensors)} instead of {sorted(expected.tensors)}"
    for stem, group in expected.tensors.items():
        found = loaded.tensors[stem]
        if found.keys() != group.keys() or not all(_same(found[name], group[name]) for name in group):
            return f"other tensors in {stem}"
    return ""


def _same(one: Tensor, other: Tensor) -> bool:
    raw = [tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*raw)


def newest(folder: Path) -> Saved:
    """The newest checkpoint, found without a word about a bad one, and equal to what was saved."""
    loaded = load_newest(folder, refuse, disk=QUICK)
    assert loaded is not None, "nothing is there to load"
    found = loaded.step, loaded.state["version"]
    other = difference(loaded, moment(*found))
    assert not other, f"silently corrupt: {other}"
    return found
