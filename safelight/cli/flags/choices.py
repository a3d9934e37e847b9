"""What the flags of commands that open a run stand for: which weights, which images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safelight.cli.flags.options import MOST_IMAGES, number, real, whole
from safelight.comparison import newest_state
from safelight.config.check import MAX_EMA_WIDTH, MIN_EMA_WIDTH, sampler_problem
from safelight.config.resolve import convert
from safelight.config.tree import Sampler
from safelight.diffusion.sampling import Variance
from safelight.errors import UsageError
from safelight.generate import Request
from safelight.opened import LoadedModel, find_label, load_model
from safelight.run import open_run
from safelight.terminal import Terminal

MOST_STEPS = 10**5  # of denoising: no sampler gains by more


def choose_model(command: Any, path: Path, device: str | None) -> LoadedModel:
    """The weights that --step, --ema and --raw stand for."""
    if command.raw and command.ema is not None:
        raise UsageError("--raw and --ema exclude each other: raw weights have no EMA.")
    step = best_step(path) if command.step == "best" else whole("--step", command.step, at_least=0)
    width = None if command.ema is None else convert("--ema", command.ema, float)
    if width is not None and not MIN_EMA_WIDTH <= width <= MAX_EMA_WIDTH:
        raise UsageError(f"--ema is {width}, but a relative width lies between {MIN_EMA_WIDTH} and {MAX_EMA_WIDTH}.")
    return load_model(path, step=step, device=device or "auto", raw=command.raw, ema_width=width, say=Terminal().say)


def best_step(path: Path) -> int:
    """The checkpoint that evaluations found best, as the newest one has it."""
    best = newest_state(open_run(path).checkpoints, "best_step", int)
    if best is None:
        raise UsageError(f"{path} has no checkpoint that was found best yet. Leave --step out, for the newest.")
    return best


def choose_request(command: Any, loaded: LoadedModel, path: Path, count: str) -> Request:
    """What to sample, from the flags of a command."""
    label, settings = getattr(command, "label", None), loaded.config.sample
    timesteps = loaded.config.diffusion.timesteps
    steps = whole("--sample-steps", command.sample_steps, at_least=1, at_most=MOST_STEPS) or settings.steps
    process = loaded.config.diffusion.process
    if process == "vp" and steps > timesteps:
        raise UsageError(f"--sample-steps is {steps}, but the model knows only {timesteps} timesteps.")
    guidance = settings.guidance if command.guidance is None else real("--guidance", command.guidance, 1e6)
    if guidance != 1 and not loaded.config.model.conditional:
        raise UsageError(
            f"--guidance is {guidance:g}, but this model was trained without labels. Train with "
            "--set model.conditional=true, or leave --guidance out."
        )
    sampler = settings.sampler if command.sampler is None else convert("--sampler", command.sampler, Sampler)
    if problem := sampler_problem(process, sampler):
        raise UsageError(f"--sampler is {sampler}, {problem}")
    return Request(
        count=number("--count", count, at_least=1, at_most=MOST_IMAGES),
        seed=number("--seed", command.seed, at_least=0, at_most=2**63 - 1),
        sampler=sampler,
        steps=steps,
        guidance=guidance,
        label=None if label is None else find_label(path, label, loaded.config),
        **_noise_options(command),
    )


def _noise_options(command: Any) -> dict[str, Any]:
    found = {name: getattr(command, name, None) for name in ("eta", "temperature", "variance")}
    kinds: dict[str, Any] = {"eta": float, "temperature": float, "variance": Variance}
    return {name: convert(f"--{name}", word, kinds[name]) for name, word in found.items() if word is not None}
