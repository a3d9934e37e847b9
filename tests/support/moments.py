"""Small moments of a training, and how to save and compare them quickly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from safelight.checkpoints.reader import load_newest
from safelight.checkpoints.snapshot import Loaded, Snapshot
from safelight.checkpoints.writer import write
from torture.disks import QuickDisk

QUICK = QuickDisk()
NAN = float("nan")


def snapshot(step: int, version: int = 0, **state: Any) -> Snapshot:
    value = float(step) + version / 8
    return Snapshot(
        step=step,
        tensors={
            "model": {"weight": torch.full((3, 2), value), "bias": torch.full((2,), value)},
            "ema": {"weight": torch.full((3, 2), value / 2), "bias": torch.full((2,), value / 2)},
            "optimizer": {"weight/step": torch.tensor(value), "weight/exp_avg": torch.full((3, 2), -value)},
        },
        state={"step": step, "version": version, "loss": value / 3, **state},
        environment={"torch": torch.__version__, "threads": 2},
    )


def same(a: Tensor, b: Tensor) -> bool:
    a, b = a.detach().contiguous(), b.detach().contiguous()
    raw = [t.reshape(-1).view(torch.uint8) for t in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*raw)


def assert_equal(loaded: Loaded, expected: Snapshot) -> None:
    assert loaded.step == expected.step
    assert loaded.state == expected.state
    assert loaded.manifest["environment"] == expected.environment
    assert loaded.tensors.keys() == expected.tensors.keys()
    for stem, group in expected.tensors.items():
        assert loaded.tensors[stem].keys() == group.keys()
        assert all(same(loaded.tensors[stem][name], group[name]) for name in group)


def newest(folder: Path) -> Loaded:
    loaded = load_newest(folder, pytest.fail, disk=QUICK)
    assert loaded is not None
    return loaded


def save(folder: Path, *numbers: int) -> None:
    for number in numbers:
        write(folder, snapshot(number), disk=QUICK)


def poisoned(stem: str, value: float, dtype: torch.dtype = torch.float32, **state: Any) -> Snapshot:
    moment = snapshot(3, **state)
    tensor = torch.ones(5, dtype=dtype)
    tensor[3] = value
    moment.tensors[stem]["weight"] = tensor
    return moment
