"""The short names of the settings that people change most, the same on the command line and in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FLAGS = {
    "data": "data.source",
    "steps": "train.steps",
    "batch_size": "train.batch_size",
    "image_size": "data.image_size",
    "lr": "optimizer.lr",
    "seed": "train.seed",
    "device": "train.device",
    "precision": "train.precision",
    "accumulate": "train.accumulate",
    "checkpoint_every": "checkpoint.every",
    "sample_every": "sample.every",
    "evaluate_every": "evaluate.every",
    "heal": "heal.enabled",
    "init": "model.init",
    "workers": "data.workers",
    "loggers": "log.to",
}


def default_preset(settings: Mapping[str, Any], file: object) -> str | None:
    """Without a preset or a file: `digits` for digits, `tiny` for everything else."""
    if file is not None:
        return None
    return "digits" if settings.get("data.source", "digits") == "digits" else "tiny"
