"""A run so small that a step takes milliseconds."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch

from safelight.checkpoints.folder import steps
from safelight.checkpoints.reader import load
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.data.prepare import open_images
from safelight.terminal import Terminal
from safelight.training.build import Setup, build, infer_data_settings
from safelight.training.state import State
from safelight.training.step_reporter import StepSummary

TINY = {
    "model.widths": "16",
    "model.norm_groups": 8,
    "model.attention": "",
    "model.conditional": False,
    "model.layers": 1,
    "train.steps": 12,
    "train.batch_size": 8,
    "train.threads": 1,
    "checkpoint.every": 4,
    "sample.every": 100,
    "sample.count": 4,
    "evaluate.every": 0,
    "train.preflight": "off",
    "sample.steps": 3,
    "ema.snapshots": 2,
    "optimizer.lr": 1e-3,
}


def tiny(**settings: Any) -> Config:
    """`train__steps=5` stands for train.steps = 5."""
    return resolve(preset="digits", settings=TINY | {k.replace("__", "."): v for k, v in settings.items()})


def parts_of(**settings: Any) -> Setup:
    config = tiny(**settings)
    images = open_images(config.data)
    return build(infer_data_settings(config, images), images, lambda _: None)


class Quiet(Terminal):
    """Keeps what was said; may end the run after a step, as a crash would."""

    def __init__(self, *, crash_after: int | None = None, on_step: Any = None) -> None:
        super().__init__(quiet=True)
        self.said: list[str] = []
        self._crash_after, self._on_step = crash_after, on_step

    def say(self, text: str) -> None:
        self.said.append(text)

    def show(self, progress: StepSummary) -> None:
        super().show(progress)
        if self._on_step is not None:
            self._on_step(progress.step)
        if progress.step == self._crash_after:
            raise Crash


def lose_the_moments(patch: Any) -> None:
    """A restore that forgets the state of the optimizer."""
    true = State.restore

    def restore(state: State, loaded: Any) -> None:
        true(state, loaded)
        state.optimizer.state.clear()

    patch.setattr(State, "restore", restore)


class Crash(Exception):
    """Not one of ours: the trainer cannot know it."""


def fingerprints(run: Path) -> dict[str, str]:
    """sha256 of every tensor file of the newest checkpoint."""
    newest = run / "checkpoints" / f"step_{max(steps(run / 'checkpoints')):08d}"
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(newest.glob("*.safetensors"))}


def journal_of(run: Path) -> list[dict[str, Any]]:
    return newest(run).state["journal"]


def newest(run: Path):
    return load(run / "checkpoints" / f"step_{max(steps(run / 'checkpoints')):08d}")


class Own(torch.nn.Module):
    """Any module of (x, t)."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        level = (t.float() / 1000).view(-1, 1, 1, 1).expand(-1, 1, *x.shape[2:])
        return self.net(torch.cat([x, level], 1))
