"""Snapshots of EMA profiles on disk, and the EMA of any other width rebuilt from them after training."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from safelight.checkpoints.folder import place, steps
from safelight.checkpoints.reader import load
from safelight.errors import UsageError
from safelight.files import DISK, Disk

PREFIX = "profile_"  # of the files of a snapshot
MIN_SNAPSHOTS = 2  # snapshots, of two profiles each


@functools.cache
def power_exponent(width: float) -> float:
    """γ of the power-function average with this relative width (Karras et al. 2024, eq. 126 and 127)."""
    roots = np.roots([1, 7, 16 - width**-2, 12 - width**-2])
    return float(roots[np.isreal(roots)].real.max())


def profile_name(width: float) -> str:
    return f"{width:g}"


def snapshot_steps(count: int, steps: int) -> list[int]:
    """When profiles are snapshot: evenly over the run, the last one at its end."""
    return sorted({round(steps * (i + 1) / count) for i in range(count)} - {0})


def rebuild_weights(available: Sequence[tuple[int, float]], wanted_step: int, wanted_width: float) -> np.ndarray:
    """How much of each snapshot (step, width) makes the average of another width (Karras et al. 2024, alg. 3)."""
    times = np.array([step for step, _ in available], dtype=np.float64)
    exponents = np.array([power_exponent(width) for _, width in available])
    time, exponent = np.array([float(wanted_step)]), np.array([power_exponent(wanted_width)])
    overlap = _overlap(times, exponents, times, exponents)
    aim = _overlap(times, exponents, time, exponent)[:, 0]
    weights = np.linalg.lstsq(overlap, aim, rcond=1e-12)[0]  # snapshots may be nearly parallel
    return weights / weights.sum()


def _overlap(ta: np.ndarray, ga: np.ndarray, tb: np.ndarray, gb: np.ndarray) -> np.ndarray:
    """∫ pa·pb of two power profiles p(τ) = (γ+1) τ^γ / t^(γ+1) on [0, t], for all pairs."""
    ta, ga, tb, gb = ta[:, None], ga[:, None], tb[None, :], gb[None, :]
    power = np.where(ta < tb, gb, -ga)
    return (ga + 1) * (gb + 1) * (ta / tb) ** power / ((ga + gb + 1) * np.maximum(ta, tb))


def blend(snapshots: Sequence[dict[str, Tensor]], weights: np.ndarray) -> dict[str, Tensor]:
    """The weighted sum of snapshots, summed in float64."""
    total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in snapshots[0].items()}
    for snapshot, weight in zip(snapshots, weights, strict=True):
        for name, value in snapshot.items():
            total[name].add_(value.double(), alpha=float(weight))
    return {name: value.float() for name, value in total.items()}


def rebuild(folder: Path, *, step: int, width: float, disk: Disk = DISK) -> dict[str, Tensor]:
    """The power-function EMA of any relative width at a step: least squares over all snapshots up to it."""
    moments = [moment for moment in steps(folder) if moment <= step]
    if len(moments) < MIN_SNAPSHOTS:
        raise UsageError(
            f"{folder} has {len(moments)} EMA snapshots up to step {step}, but to rebuild an EMA takes at least "
            f"{MIN_SNAPSHOTS}. Train with a larger ema.snapshots, or use the EMA of the run (leave --ema out)."
        )
    available: list[tuple[int, float]] = []
    tensors: list[dict[str, Tensor]] = []
    for moment in moments:
        for stem, group in sorted(load(place(folder, moment), disk=disk).tensors.items()):
            available.append((moment, float(stem.removeprefix(PREFIX))))
            tensors.append(group)
    return blend(tensors, rebuild_weights(available, step, width))
