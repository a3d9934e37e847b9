"""What the flags of commands that open a run stand for: which weights, which images."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from safelight.checkpoints.folder import place, steps
from safelight.cli.options import number
from safelight.config.check import NARROWEST, WIDEST
from safelight.config.resolve import convert, nearest
from safelight.config.tree import Sampler
from safelight.errors import UsageError
from safelight.generate import Request
from safelight.opened import LoadedModel, load_model
from safelight.run import open_run
from safelight.terminal import Terminal


def choose_model(path: Path, *, step: str | None, ema: str | None, raw: bool, device: str | None) -> LoadedModel:
    if raw and ema is not None:
        raise UsageError("--raw and --ema exclude each other: raw weights have no average.")
    return load_model(
        path,
        step=None if step is None else best_step(path) if step == "best" else number("--step", step, at_least=0),
        device=device or "auto",
        raw=raw,
        ema_width=None if ema is None else _width(ema),
        say=Terminal().say,
    )


def best_step(path: Path) -> int:
    """The checkpoint that evaluations found best, as the newest one has it."""
    folder = open_run(path)
    for step in reversed(steps(folder.checkpoints)):
        with suppress(OSError, ValueError, TypeError, KeyError):
            best = json.loads((place(folder.checkpoints, step) / "state.json").read_bytes())["best_step"]
            if isinstance(best, int):
                return best
    raise UsageError(f"{path} has no checkpoint that was found best yet. Leave --step out, for the newest.")


def _width(word: str) -> float:
    width = convert("--ema", word, float)
    if not NARROWEST <= width <= WIDEST:
        raise UsageError(f"--ema is {width}, but a relative width lies between {NARROWEST} and {WIDEST}.")
    return width


def choose_request(command: Any, loaded: LoadedModel, path: Path, count: str) -> Request:
    """What to sample, from the flags of a command."""
    label = getattr(command, "label", None)
    settings = loaded.config.sample
    steps = (
        settings.steps if command.sample_steps is None else number("--sample-steps", command.sample_steps, at_least=1)
    )
    timesteps = loaded.config.diffusion.timesteps
    if steps > timesteps:
        raise UsageError(f"--sample-steps is {steps}, but the model knows only {timesteps} timesteps.")
    guidance = settings.guidance if command.guidance is None else convert("--guidance", command.guidance, float)
    if guidance != 1 and not loaded.config.model.conditional:
        raise UsageError(
            f"--guidance is {guidance:g}, but this model was trained without labels. Train with "
            "--set model.conditional=true, or leave --guidance out."
        )
    return Request(
        count=number("--count", count, at_least=1),
        seed=number("--seed", command.seed, at_least=0),
        sampler=settings.sampler if command.sampler is None else convert("--sampler", command.sampler, Sampler),
        steps=steps,
        guidance=guidance,
        label=None if label is None else choose_label(path, label, loaded),
    )


def choose_label(path: Path, word: str, loaded: LoadedModel) -> int:
    """A class by its number or its name."""
    classes = loaded.config.data.classes or 0
    if not loaded.config.model.conditional:
        raise UsageError("--label needs a conditional model, but this one was trained without labels.")
    names: list[str] = open_run(path).status().get("data", {}).get("class_names", [])
    if word == "none":
        return classes  # the label that stands for none
    if word in names:
        return names.index(word)
    if word.isdecimal() and int(word) < classes:
        return int(word)
    raise UsageError(f"--label is {word!r}, but the labels are none and 0 to {classes - 1}{nearest(word, names)}")
