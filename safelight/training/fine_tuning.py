"""What a model that is fine-tuned brings with it: channels, labels, strides, and the process it was trained for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn

from safelight.config import Config
from safelight.config.tree import Diffusion, Schedule
from safelight.diffusion.schedule import make_schedule
from safelight.errors import UsageError

LARGEST_DIFFERENCE = 1e-3  # of ᾱ between two schedules that are the same but for rounding


def check_inheritance(model: nn.Module, config: Config) -> None:
    """Refuses a config that the model in `model.init` cannot follow, with the settings that it can."""
    folder, settings = config.model.init, getattr(model, "config", None)
    assert folder is not None, "only for fine-tuning"
    assert settings is not None, "load_pipeline_unet gives a diffusers model"
    _check_channels(settings, config)
    _check_labels(settings, config)
    _check_size(settings, config)
    scheduler = Path(folder) / "scheduler" / "scheduler_config.json"
    if scheduler.is_file():
        _check_process(scheduler, config.diffusion)


def _check_channels(settings: Any, config: Config) -> None:
    if settings.in_channels != config.data.channels or settings.out_channels != config.data.channels:
        raise UsageError(
            f"The model in {config.model.init} takes {settings.in_channels} channels and gives "
            f"{settings.out_channels}, but the images have {config.data.channels}. "
            f"Add --set data.channels={settings.in_channels}"
        )


def _check_labels(settings: Any, config: Config) -> None:
    known, classes = settings.num_class_embeds or 0, config.data.classes or 0
    wanted = classes + 1 if config.model.conditional else 0
    if known != wanted:
        raise UsageError(
            f"The model in {config.model.init} knows {known} labels, but this run needs {wanted} (model.conditional is "
            f"{str(config.model.conditional).lower()}, the data has {classes} classes, and “no label” counts as one)."
        )


def _check_size(settings: Any, config: Config) -> None:
    stride, size = 2 ** (len(settings.block_out_channels) - 1), config.data.image_size
    if size % stride:
        raise UsageError(
            f"data.image_size is {size}, but the model in {config.model.init} needs a multiple of {stride}. "
            f"Use {size // stride * stride + stride}."
        )


def _check_process(file: Path, ours: Diffusion) -> None:
    """The trap of fine-tuning: a model asked for another target or at other noise levels has to unlearn first."""
    theirs = _read(file)
    prediction = theirs.get("prediction_type", "epsilon")
    timesteps = theirs.get("num_train_timesteps", 1000)
    wanted = [f"diffusion.prediction={prediction}"] if prediction != ours.prediction else []
    wanted += [f"diffusion.timesteps={timesteps}"] if timesteps != ours.timesteps else []
    wanted += _wanted_schedule(file, theirs, timesteps, ours)
    if wanted:
        flags = " ".join(f"--set {word}" for word in wanted)
        raise UsageError(f"The model in {file.parent.parent} was trained for another process. Add {flags}")


def _wanted_schedule(file: Path, theirs: dict[str, Any], timesteps: int, ours: Diffusion) -> list[str]:
    from diffusers import DDPMScheduler

    try:
        scheduler: Any = DDPMScheduler.from_config(theirs)
        table = scheduler.alphas_cumprod.double()
    except (TypeError, ValueError, NotImplementedError, AttributeError) as error:
        raise UsageError(f"{file} describes no noise schedule that can be read: {error}") from error
    candidates: list[tuple[Schedule, bool]] = [(ours.schedule, ours.zero_terminal_snr)]
    candidates += [(name, zero) for zero in (False, True) for name in get_args(Schedule)]
    for name, zero in candidates:
        known = make_schedule(Diffusion(schedule=name, timesteps=timesteps, zero_terminal_snr=zero)).alphas_cumprod
        if len(known) == len(table) and torch.allclose(known, table, atol=LARGEST_DIFFERENCE, rtol=0):
            schedule = [f"diffusion.schedule={name}"] if name != ours.schedule else []
            terminal = [f"diffusion.zero_terminal_snr={str(zero).lower()}"] if zero != ours.zero_terminal_snr else []
            return schedule + terminal
    raise UsageError(
        f"{file} has a noise schedule that is none of {', '.join(get_args(Schedule))}. To train it for another one all "
        "the same, remove the scheduler folder from a copy of the pipeline."
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no JSON that can be read: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{file} holds a {type(content).__name__}, but a scheduler's settings are expected.")
    return {key: value for key, value in content.items() if not key.startswith("_")}
