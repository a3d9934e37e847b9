"""Runs on disk: their config, their models, and the names of their classes."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from safelight import __version__
from safelight.checkpoints.compatibility import check_tensors
from safelight.checkpoints.ema_profiles import rebuild
from safelight.checkpoints.folder import place, steps
from safelight.checkpoints.reader import load
from safelight.checkpoints.snapshot import Loaded, environment
from safelight.config import Config
from safelight.config.epochs import has_epochs, in_steps
from safelight.config.resolve import apply, flatten, nearest, resolve, to_dict, to_yaml
from safelight.data.summary import summary
from safelight.errors import CheckpointError, UsageError
from safelight.files import write_atomically
from safelight.model.unet import describe_unet
from safelight.observing.noise_levels import levels_of_settings
from safelight.origin import command, commands_with, origin
from safelight.processes.group import ProcessGroup
from safelight.run import RunFolder, open_run
from safelight.training.build import Setup
from safelight.training.network import build_model
from safelight.training.runtime import choose_device

LONGEST_LABEL = 12  # digits
MAX_LISTED_LABELS = 30  # names of classes in an error


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


def read_config_once(folder: RunFolder, group: ProcessGroup) -> Config:
    """Read by the first process; the others need not see the folder."""
    if group.size == 1:
        return read_config(folder)
    return apply(Config(), flatten(group.broadcast(lambda: to_dict(read_config(folder)))), str(folder.config))


def epochs_in_steps(config: Config, folder: RunFolder, group: ProcessGroup) -> Config:
    """Epochs as steps, by the number of images that the run has been trained on."""
    if not has_epochs(config):
        return config
    images = group.broadcast(lambda: folder.status().get("data", {}).get("trained"))
    if not isinstance(images, int):
        raise UsageError(f"{folder.path} does not say how many images an epoch has. Give the number of steps instead.")
    return in_steps(config, images)


def write_config(folder: RunFolder, setup: Setup) -> None:
    config, images, before = setup.config, setup.images, folder.status()
    facts = {
        "versions": environment(),
        "data": {
            "images": len(images),
            "trained": setup.batches.count,
            "fingerprint": images.fingerprint,
            "class_names": list(images.class_names),
            "rejected": len(images.rejected),
        },
        "exact": not config.model.compile and setup.runtime.device.type == "cpu",
        "created": before.get("created", time.time()),
        "origin": before.get("origin") or origin(),
        "commands": commands_with(before.get("commands"), command()),
        "noise_levels": levels_of_settings(config.diffusion, setup.stepper.objective.process),
    }
    folder.update_status(**facts)
    try:
        if (architecture := describe_unet(setup.state.model)) is not None:
            write_atomically(folder.architecture_file, json.dumps(architecture, indent=1).encode(), folder.disk)
        write_atomically(folder.data, json.dumps(summary(images, config.data), indent=1).encode(), folder.disk)
        write_atomically(folder.config, to_yaml(config).encode(), folder.disk)
    except OSError as error:
        raise UsageError(
            f"The run folder {folder.path} cannot be written to: {error.strerror}. Choose another --run, or make room."
        ) from error


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
    """The model of a run with its EMA (or the raw weights, or an EMA of another width)."""
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
        rebuilt = None
        if ema_width is not None:
            rebuilt = rebuild(folder.snapshots, step=loaded.step, width=ema_width, disk=folder.disk)
        model.load_state_dict(rebuilt or loaded.tensors["ema"], strict=False)  # buffers have no EMA
    return LoadedModel(model.to(chosen).eval(), config, loaded.step)


def find_label(path: Path, word: str, config: Config, argument: str = "--label") -> int:
    """A class by its number or its name; `none` is the label that stands for none."""
    classes = config.data.classes or 0
    if not config.model.conditional:
        raise UsageError(f"{argument} needs a conditional model, but this one was trained without labels.")
    names: list[str] = open_run(path).status().get("data", {}).get("class_names", [])
    if word == "none":
        return classes
    if word in names:
        return names.index(word)
    if word.isdecimal() and len(word) <= LONGEST_LABEL and int(word) < classes:
        return int(word)
    word = word[:60]
    listed = ", ".join(names[:MAX_LISTED_LABELS]) + (", …" if len(names) > MAX_LISTED_LABELS else "")
    known = f": {listed}" if names else ""
    raise UsageError(
        f"{argument} is {word!r}, but the labels are none and 0 to {classes - 1}{known}{nearest(word, names)}"
    )


def _refuse_foreign(folder: RunFolder) -> None:
    if folder.architecture() is None:
        raise UsageError(
            f"{folder.path} was trained with a model of your own, whose code is not in the run folder. Use it from "
            f'Python: safelight.open("{folder.path}").sample(model=your_model)'
        )


def _choose_checkpoint(folder: RunFolder, step: int | None, say: Any) -> Loaded:
    """The one of a step, or the newest that is whole. A run that trains meanwhile deletes old ones: where one is gone
    before it was read, the newer ones are tried."""
    while True:
        present = steps(folder.checkpoints) if folder.checkpoints.is_dir() else []
        if not present:
            raise CheckpointError(
                f"{folder.path} has no checkpoint yet. Train it first: safelight resume {folder.path}"
            )
        if step is not None and step not in present:
            raise UsageError(f"{folder.path} has no checkpoint of step {step}. It has: {', '.join(map(str, present))}.")
        problems: dict[Path, str] = {}
        for candidate in [step] if step is not None else reversed(present):
            try:
                loaded = load(place(folder.checkpoints, candidate), disk=folder.disk)
                _say_all(problems, say)
                return loaded
            except CheckpointError as error:  # only reported: the run may be training, and it sets it aside
                problems[place(folder.checkpoints, candidate)] = str(error)
        if step is None and steps(folder.checkpoints) != present:
            continue  # each time round, the run has saved again
        _say_all(problems, say)
        raise CheckpointError(f"No checkpoint of {folder.path} can be loaded. {next(iter(problems.values()))}")


def _say_all(problems: dict[Path, str], say: Any) -> None:
    """Reports the problems of those that are still there; one that the training deleted meanwhile is not a problem."""
    for path, words in problems.items():
        if path.exists():
            say(f"Checkpoint {path.name} cannot be used. {words}")
