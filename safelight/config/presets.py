"""Presets, with what each costs and gives, and the short names of the settings that people change most."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from safelight.errors import UsageError

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    # Handwritten digits at 8 px: about three minutes on two CPU cores.
    "digits": {
        "data": {"source": "digits", "image_size": 8},
        "model": {"widths": (32, 64), "layers": 1, "attention": (4,), "norm_groups": 8, "conditional": True},
        "optimizer": {"lr": 2e-3},
        "train": {"steps": 1000, "batch_size": 128},
        "sample": {"count": 80},
    },
    # Small pictures at 32 px: hours on a CPU, minutes on a GPU.
    "tiny": {
        "data": {"image_size": 32},
        "model": {"widths": (64, 96, 128), "layers": 1, "attention": (8,)},
        "train": {"steps": 20_000, "batch_size": 64},
    },
    # Pictures at 64 px: one consumer GPU.
    "small": {
        "data": {"image_size": 64},
        "model": {"widths": (64, 128, 256, 256), "layers": 2, "attention": (16, 8), "dropout": 0.1},
        "optimizer": {"lr": 5e-4},
        "train": {"steps": 100_000, "batch_size": 64, "precision": "bf16"},
    },
    # Pictures at 128 px: a data-centre GPU.
    "base": {
        "data": {"image_size": 128},
        "model": {
            "widths": (128, 256, 256, 384, 512),
            "layers": 2,
            "attention": (16, 8),
            "dropout": 0.1,
            "gradient_checkpointing": True,
        },
        "optimizer": {"lr": 2e-4},
        "train": {"steps": 300_000, "batch_size": 128, "precision": "bf16"},
    },
}

ABOUT = {
    "digits": "handwritten digits at 8 px; minutes on a CPU (the default without DATA)",
    "tiny": "32 px, 4 M parameters (the default with DATA)",
    "small": "64 px, 27 M parameters, for one consumer GPU",
    "base": "128 px, 98 M parameters, for a data-centre GPU",
}

# What is learnt, with what goes with it; single settings win over it.
OBJECTIVES: dict[str, dict[str, str]] = {
    "v": {"diffusion.process": "vp", "diffusion.prediction": "v_prediction", "diffusion.density": "uniform"},
    "epsilon": {"diffusion.process": "vp", "diffusion.prediction": "epsilon", "diffusion.density": "uniform"},
    "sample": {"diffusion.process": "vp", "diffusion.prediction": "sample", "diffusion.density": "uniform"},
    "flow": {"diffusion.process": "flow", "diffusion.prediction": "flow", "diffusion.density": "logit-normal"},
    "edm": {"diffusion.process": "edm", "diffusion.prediction": "edm", "diffusion.density": "log-normal"},
}

# The same on the command line and in Python.
FLAGS = {
    "data": "data.source",
    "steps": "train.steps",
    "epochs": "train.epochs",
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


def settings_of_objective(name: str | None) -> dict[str, str]:
    """The settings of the flag; none if it is not given."""
    if name is None:
        return {}
    if name not in OBJECTIVES:
        raise UsageError(f"The objective is {name!r}, but it must be one of {', '.join(OBJECTIVES)}.")
    return OBJECTIVES[name]


def fit_to_source(
    preset: str | None, settings: Mapping[str, Any], file: object, say: Callable[[str], object]
) -> dict[str, Any]:
    """What a preset that was asked for cannot have on these images, as settings below all others; `say`: what is
    unlike the preset, or may surprise."""
    source = str(settings.get("data.source") or "")
    if preset is None or file is not None or not os.path.isdir(os.path.expanduser(source)):
        return {}
    wanted, side = PRESETS.get(preset, {}), PRESETS.get(preset, {}).get("data", {}).get("image_size")
    if preset == "digits" and "data.image_size" not in settings:
        say(
            f"The preset digits is made for digits of {side} px: your images are trained at {side} px. Another size: "
            "--image-size N"
        )
    if not wanted.get("model", {}).get("conditional") or "model.conditional" in settings:
        return {}
    if _count_folders(source) > 1:
        return {}
    say(f"{source} has no subfolders for classes, so the model learns none (the preset {preset} does).")
    return {"model.conditional": False}


def _count_folders(source: str) -> int:
    try:
        with os.scandir(os.path.expanduser(source)) as entries:
            return sum(entry.is_dir() and not entry.name.startswith(".") for entry in entries)
    except OSError:
        return 2  # the images will say what is wrong with it


def default_preset(settings: Mapping[str, Any], file: object) -> str | None:
    """Without a preset or a file: `digits` for digits, `tiny` for everything else."""
    if file is not None:
        return None
    return "digits" if settings.get("data.source", "digits") == "digits" else "tiny"
