"""Runs that lie on disk: opened, sampled from, their models loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from safelight import __version__
from safelight.checkpoints.compatibility import check_tensors
from safelight.checkpoints.folder import steps
from safelight.checkpoints.reader import load
from safelight.checkpoints.snapshot import Loaded
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.errors import CheckpointError, UsageError
from safelight.generate import Request, generate
from safelight.run import RunFolder, open_run
from safelight.training.build import build_model
from safelight.training.ema_snapshots import rebuild
from safelight.training.engine import choose_device


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk, with its config and one of its checkpoints."""

    path: Path
    config: Config
    step: int

    def sample(self, count: int = 64, *, seed: int = 0, model: nn.Module | None = None, **how: Any) -> Tensor:
        """Images in [-1, 1] from the averaged weights; `how` as in `generate.Request`. A model of your own has to be
        given again: a run folder holds weights, never code."""
        loaded = load_model(self.path, step=self.step, model=model)
        return generate(loaded.model, self.config, Request(count, seed, **how))


def read_config(folder: RunFolder) -> Config:
    try:
        config = resolve(file=folder.config)
    except UsageError as error:
        version = folder.status().get("versions", {}).get("safelight", "an unknown version")
        if version == __version__:
            raise
        raise UsageError(f"{error} This run was made by safelight {version}; this is {__version__}.") from error
    if config.data.channels is None or config.data.classes is None:
        raise UsageError(
            f"{folder.config} does not say data.channels and data.classes, which every run writes down: it was cut "
            "or changed. Put it back from a copy."
        )
    return config


@dataclass(frozen=True, slots=True)
class LoadedModel:
    model: nn.Module
    config: Config
    step: int


def load_model(
    path: Path,
    *,
    step: int | None = None,
    device: str = "cpu",
    raw: bool = False,
    ema_width: float | None = None,
    model: nn.Module | None = None,
    say: Any = print,
) -> LoadedModel:
    """The model of a run with its averaged weights (or raw ones, or an average of another width)."""
    folder = open_run(path)
    config = read_config(folder)
    loaded = _choose_checkpoint(folder, step, say)
    chosen = choose_device(device)
    if model is None:
        _refuse_foreign(folder)
        model = build_model(config, folder.architecture())
    check_tensors("model", model.state_dict(), loaded)
    model.load_state_dict(loaded.tensors["model"])
    if not raw:
        weights = (
            loaded.tensors["ema"] if ema_width is None else rebuild(folder.snapshots, step=loaded.step, width=ema_width)
        )
        _assign(model, weights)
    return LoadedModel(model.to(chosen).eval(), config, loaded.step)


def _refuse_foreign(folder: RunFolder) -> None:
    if folder.architecture() is None:
        raise UsageError(
            f"{folder.path} was trained with a model of your own, whose code is not in the run folder. Use it from "
            f'Python: safelight.open("{folder.path}").sample(model=your_model)'
        )


def _choose_checkpoint(folder: RunFolder, step: int | None, say: Any) -> Loaded:
    present = steps(folder.checkpoints) if folder.checkpoints.is_dir() else []
    if not present:
        raise CheckpointError(f"{folder.path} has no checkpoint yet. Train it first: safelight resume {folder.path}")
    if step is not None and step not in present:
        raise UsageError(f"{folder.path} has no checkpoint of step {step}. It has: {', '.join(map(str, present))}.")
    problems: list[str] = []
    for candidate in [step] if step is not None else reversed(present):
        try:
            return load(folder.checkpoints / f"step_{candidate:08d}")
        except CheckpointError as error:  # only told: the run may be training, and setting aside is its business
            problems.append(str(error))
            say(f"Checkpoint step_{candidate:08d} cannot be used. {error}")
    raise CheckpointError(f"No checkpoint of {folder.path} can be loaded. {problems[0]}")


@torch.no_grad()
def _assign(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        if name in weights:
            parameter.copy_(weights[name])
