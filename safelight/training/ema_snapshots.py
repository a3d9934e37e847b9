"""Snapshots of the two EMA profiles on disk, and any other average length rebuilt from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from safelight.checkpoints.folder import steps
from safelight.checkpoints.reader import load
from safelight.checkpoints.snapshot import Snapshot
from safelight.errors import UsageError
from safelight.training.ema import blend, profile_name, rebuild_weights
from safelight.training.state import State

PREFIX = "profile_"
FEWEST = 2  # moments, of two profiles each


def snapshot_profiles(state: State, environment: dict[str, Any]) -> Snapshot:
    """Both profiles at this step, cloned; written like a checkpoint, so that they are whole or absent."""
    tensors = {
        PREFIX + profile_name(width): {
            name: value.detach().to("cpu", copy=True) for name, value in state.averages.profile(width).items()
        }
        for width in state.averages.settings.profiles
    }
    return Snapshot(state.counters.step, tensors, {}, environment, state.weights.shard)


def rebuild(folder: Path, *, step: int, width: float) -> dict[str, Tensor]:
    """The power-function average of any relative width at a step, least squares over all snapshots up to it."""
    moments = [moment for moment in steps(folder) if moment <= step] if folder.is_dir() else []
    if len(moments) < FEWEST:
        raise UsageError(
            f"{folder} has {len(moments)} EMA snapshots up to step {step}, but rebuilding an average takes at least "
            f"{FEWEST}. Train with a larger ema.snapshots, or use the average of the run (leave --ema out)."
        )
    available: list[tuple[int, float]] = []
    tensors: list[dict[str, Tensor]] = []
    for moment in moments:
        loaded = load(folder / f"step_{moment:08d}")
        for stem, group in sorted(loaded.tensors.items()):
            available.append((moment, float(stem.removeprefix(PREFIX))))
            tensors.append(group)
    return blend(tensors, rebuild_weights(available, step, width))
