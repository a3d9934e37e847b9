"""The model of a run: built or loaded, checked against the config, and placed on the device or among processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, get_args

import torch
from torch import nn

from safelight.config import Config
from safelight.config.tree import Diffusion, Schedule
from safelight.diffusion.process import SIGMA_DATA
from safelight.diffusion.schedule import make_schedule
from safelight.errors import UsageError
from safelight.model.unet import (
    add_spectral_norm,
    build_unet,
    checkpoint_blocks,
    load_pipeline_unet,
    unet_from_description,
    units_of,
)
from safelight.processes.local_weights import LocalWeights
from safelight.training.runtime import Runtime

LARGEST_DIFFERENCE = 1e-3  # of ᾱ between two schedules that are the same but for rounding


def build_model(config: Config, architecture: dict[str, Any] | None = None) -> nn.Module:
    """The U-Net of a config, on the CPU, with what is wrapped around its blocks. A run that was fine-tuned from a
    pipeline is rebuilt from the `architecture` in its folder: the pipeline may be gone."""
    channels, classes = config.data.channels, config.data.classes
    assert channels is not None, "infer_data_settings comes first"
    assert classes is not None, "infer_data_settings comes first"
    if config.model.init is not None and architecture is not None:
        model = unet_from_description(architecture)
    elif config.model.init is not None:
        model = load_pipeline_unet(Path(config.model.init))
        check_inheritance(model, config)
    else:
        size = config.data.image_size
        model = build_unet(config.model, image_size=size, channels=channels, classes=classes, seed=config.train.seed)
    if config.model.spectral_norm:
        add_spectral_norm(model)
    return apply_gradient_checkpointing(model, config)


def apply_gradient_checkpointing(model: nn.Module, config: Config) -> nn.Module:
    """With gradient checkpointing, if the config says so: also of a model of the user's own."""
    if config.model.gradient_checkpointing:
        checkpoint_blocks(model)
    return model


def place_model(
    model: nn.Module, config: Config, runtime: Runtime, say: Callable[[str], None]
) -> tuple[nn.Module, LocalWeights]:
    """On the device, the same on all processes; divided among them, if the config says so."""
    sharded = is_sharded(config, runtime.group.size)  # then moved block by block
    if not sharded and any(p.device != runtime.device for p in model.parameters()):  # what is traced cannot be moved
        model = cast(nn.Module, model.to(runtime.device))
    if config.model.channels_last:
        model = cast(nn.Module, model.to(memory_format=torch.channels_last))  # pyright: ignore[reportCallIssue]
    with torch.no_grad():  # a custom model may have been initialised differently by every process
        for tensor in (*model.parameters(), *model.buffers()):
            runtime.group.broadcast_tensor(tensor)
    if not sharded:
        return model, LocalWeights(model)
    from safelight.processes.sharding import shard_weights  # FSDP takes a second to import

    if not units_of(model):
        say("The model has no lists of modules that could be gathered one by one: every pass gathers all of it.")
    return model, shard_weights(model, runtime.group, runtime.device)


def is_sharded(config: Config, processes: int) -> bool:
    """Whether each process holds a part of the weights; one alone holds all of them, whatever the settings say."""
    return config.train.weights == "divided" and processes > 1


def check_inheritance(model: nn.Module, config: Config) -> None:
    """Refuses a config that the model in `model.init` cannot follow, with the settings that it can."""
    folder, settings = config.model.init, getattr(model, "config", None)
    assert folder is not None, "only for fine-tuning"
    assert settings is not None, "load_pipeline_unet gives a diffusers model"
    _check_inputs(settings, config)
    scheduler = Path(folder) / "scheduler" / "scheduler_config.json"
    if scheduler.is_file():
        _check_process(scheduler, config.diffusion)


def _check_inputs(settings: Any, config: Config) -> None:
    """Channels, labels and size of the images."""
    if settings.in_channels != config.data.channels or settings.out_channels != config.data.channels:
        raise UsageError(
            f"The model in {config.model.init} takes {settings.in_channels} channels and gives "
            f"{settings.out_channels}, but the images have {config.data.channels}. "
            f"Add --set data.channels={settings.in_channels}"
        )
    count, classes = settings.num_class_embeds or 0, config.data.classes or 0
    wanted = classes + 1 if config.model.conditional else 0
    if count != wanted:
        raise UsageError(
            f"The model in {config.model.init} knows {count} labels, but this run needs {wanted} (model.conditional is "
            f"{str(config.model.conditional).lower()}, the data has {classes} classes, and “no label” counts as one)."
        )
    stride, size = 2 ** (len(settings.block_out_channels) - 1), config.data.image_size
    if size % stride:
        raise UsageError(
            f"data.image_size is {size}, but the model in {config.model.init} needs a multiple of {stride}. "
            f"Use {size // stride * stride + stride}."
        )


def _check_process(file: Path, ours: Diffusion) -> None:
    """The trap of fine-tuning: a model trained for another target or other noise levels has to unlearn first."""
    theirs = _read(file)
    name = str(theirs.pop("class", ""))
    if "FlowMatch" in name or "EDM" in name or ours.process != "vp":
        _check_continuous(file, name, theirs, ours)
        return
    prediction = theirs.get("prediction_type", "epsilon")
    timesteps = theirs.get("num_train_timesteps", 1000)
    wanted = [f"diffusion.prediction={prediction}"] if prediction != ours.prediction else []
    wanted += [f"diffusion.timesteps={timesteps}"] if timesteps != ours.timesteps else []
    wanted += _wanted_schedule(file, theirs, timesteps, ours)
    if wanted:
        flags = " ".join(f"--set {word}" for word in wanted)
        raise UsageError(f"The model in {file.parent.parent} was trained for another process. Add {flags}")


def _check_continuous(file: Path, name: str, theirs: dict[str, Any], ours: Diffusion) -> None:
    """Flow matching and EDM, of theirs or of ours."""
    process = "flow" if "FlowMatch" in name else "edm" if "EDM" in name else "vp"
    wanted: dict[str, Any] = {"process": process}
    if process != "vp":
        wanted["prediction"] = process
    if process == "edm":
        wanted["sigma_data"] = theirs.get("sigma_data", SIGMA_DATA)
    different = [f"--set diffusion.{key}={value}" for key, value in wanted.items() if getattr(ours, key) != value]
    if different:
        raise UsageError(
            f"The model in {file.parent.parent} was trained for another process. Add {' '.join(different)}"
        )


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
        published = make_schedule(Diffusion(schedule=name, timesteps=timesteps, zero_terminal_snr=zero)).alphas_cumprod
        if len(published) == len(table) and torch.allclose(published, table, atol=LARGEST_DIFFERENCE, rtol=0):
            schedule = [f"diffusion.schedule={name}"] if name != ours.schedule else []
            terminal = [f"diffusion.zero_terminal_snr={str(zero).lower()}"] if zero != ours.zero_terminal_snr else []
            return schedule + terminal
    raise UsageError(
        f"{file} has a noise schedule that is none of {', '.join(get_args(Schedule))}. To train it for another one "
        "anyway, remove the scheduler folder from a copy of the pipeline."
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no JSON that can be read: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{file} holds a {type(content).__name__}, but a scheduler's settings are expected.")
    found = {key: value for key, value in content.items() if not key.startswith("_")}
    return found | {"class": content.get("_class_name", "")}
