"""Starts and resumes runs: what the command line and the library both call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from safelight.changes import check_changes, check_data, check_environment, check_origin
from safelight.checkpoints.folder import clean, steps
from safelight.checkpoints.loading import load_latest
from safelight.config import Config
from safelight.config.check import check
from safelight.config.resolve import difference, resolve
from safelight.data.images import Images
from safelight.data.prepare import open_images
from safelight.opened import (
    epochs_in_steps,
    read_config,
    read_config_once,
    write_config,
)
from safelight.processes.group import ProcessGroup, join_group
from safelight.processes.restarts import is_restart, note_start, refuse_hopeless
from safelight.run import (
    ReadOnlyRunFolder,
    RunFolder,
    create_run,
    free_name,
    locked,
    move_used_aside,
    open_run,
    point_latest,
    refuse_used,
)
from safelight.runner import OnStart, Run, run_training
from safelight.terminal import Terminal
from safelight.training.build import build, check_divisible, infer_data_settings
from safelight.training.network import build_model, is_sharded
from safelight.training.preflight import Preflight, preflight
from safelight.training.recovery import save_again
from safelight.training.recovery import undo as undo_act
from safelight.training.runtime import choose_device

MAX_NAMED_FILES = 10  # files left out that are named on the screen


def train(
    config: Config,
    *,
    run: Path | None = None,
    model: nn.Module | None = None,
    terminal: Terminal | None = None,
    on_start: OnStart | None = None,
    force: bool = False,
) -> Run:
    """A new run from the first step. `model` may be any nn.Module of (x, t[, label]). `on_start`: see
    `run_training`. `force`: what is in the folder is moved aside."""
    warnings = check(config)
    choose_device(config.train.device)  # before the images are read and a folder is made
    with join_group(config.train) as group:
        terminal = _screen(group, terminal)
        for warning in warnings:
            terminal.say(f"Warning: {warning}")
        check_divisible(config, group.size)
        if group.broadcast(lambda: is_restart(run)):
            assert run is not None
            return _resume_here(run, group, terminal, model, on_start)
        images = group.local_main_first(lambda: _open_images(config, terminal))
        resolved = _infer_data_settings(config, images, terminal.say)
        path = Path(group.broadcast(lambda: str(_new_path(run, config, force, terminal.say))))
        setup = build(resolved, images, terminal.say, model, group)
        with _locked_run(path, group, create_run) as folder:
            if group.is_main:
                note_start(path)
                write_config(folder, setup)
                folder.update_status(asked_channels=config.data.channels)
                point_latest(folder)
            return run_training(setup, folder, terminal, on_start)


def _infer_data_settings(config: Config, images: Images, say: Callable[[str], None]) -> Config:
    """A length in epochs is checked once it is one in steps."""
    resolved, reported = infer_data_settings(config, images, say), check(config)
    for warning in check(resolved):
        if warning not in reported:
            say(f"Warning: {warning}")
    return resolved


def _screen(group: ProcessGroup, terminal: Terminal | None) -> Terminal:
    """The first process has a screen; the others are silent."""
    return terminal or Terminal() if group.is_main else Terminal(quiet=True)


def _new_path(run: Path | None, config: Config, force: bool, say: Callable[[str], None]) -> Path:
    path = run or free_name(Path("runs"), Path(config.data.source).stem or "run")
    if force and (aside := move_used_aside(path)) is not None:
        say(f"What was in {path} was moved to {aside}.")
    refuse_used(path)
    return path


@contextmanager
def _locked_run(path: Path, group: ProcessGroup, make: Callable[[Path], RunFolder]) -> Iterator[RunFolder]:
    """The run folder, locked by the first process, which alone writes to it."""
    if not group.is_main:
        yield ReadOnlyRunFolder(path)
        return
    with locked(make(path)) as folder:
        yield folder


def resume(
    path: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    force: bool = False,
    undo: int | None = None,
    model: nn.Module | None = None,
    terminal: Terminal | None = None,
    on_start: OnStart | None = None,
) -> Run:
    """Continues a run from its newest checkpoint that verifies, to the same bytes it would have reached. `undo`: the
    number of an act in its journal that is to hold no longer."""
    config = resolve(base=read_config(open_run(path)), settings=settings)
    with join_group(config.train) as group:
        return _resume_here(path, group, _screen(group, terminal), model, on_start, settings, force, undo)


def _resume_here(
    path: Path, group: ProcessGroup, terminal: Terminal, model: nn.Module | None, on_start: OnStart | None,
    settings: Mapping[str, Any] | None = None, force: bool = False, undo: int | None = None,
) -> Run:  # fmt: skip
    with _locked_run(path, group, open_run) as folder:
        old = read_config_once(folder, group)
        config = epochs_in_steps(resolve(base=old, settings=settings), folder, group)
        check_changes(old, config, force, terminal.say)
        check(config)
        check_divisible(config, group.size)
        if group.is_main:
            refuse_hopeless(folder)
            note_start(path)
        # As it was requested: what the data decided was no request, and would be another cache.
        channels = group.broadcast(lambda: folder.status().get("asked_channels", config.data.channels))
        requested = replace(config, data=replace(config.data, channels=channels))
        images = group.local_main_first(lambda: _open_images(requested, terminal))
        if group.is_main:
            check_data(folder, images, force)
            for saved in (folder.checkpoints, folder.snapshots):
                clean(saved, disk=folder.disk)
        sharded, loaded = is_sharded(config, group.size), None
        if not sharded:
            loaded = load_latest(group, folder.checkpoints, None, terminal.say, folder.disk)
        has_saved = group.broadcast(lambda: bool(steps(folder.checkpoints))) if sharded else loaded is not None
        if model is None and has_saved:
            model = build_model(config, group.broadcast(folder.architecture))
        setup = build(config, images, terminal.say, model, group)
        if sharded:
            shard = setup.state.weights.shard
            loaded = load_latest(group, folder.checkpoints, shard, terminal.say, folder.disk)
        if loaded is None:
            terminal.say(f"{path} has no checkpoint yet: it starts again from step 0, which gives the same run.")
        else:
            setup.state.check(loaded)
            forced = check_origin(loaded, old, config, images, force, terminal.say)
            setup.state.restore(loaded)
            if forced and group.is_main and not sharded:  # or the next resume would have to be forced again
                save_again(setup, folder)
            check_environment(loaded, config, terminal.say)
            terminal.say(f"Resumed from {loaded.path} at step {loaded.step} of {config.train.steps}.")
        if undo is not None:
            terminal.say(undo_act(setup, folder, undo).describe())
        if group.is_main and difference(old, setup.config):
            write_config(folder, setup)
        return run_training(setup, folder, terminal, on_start)


def check_before_training(config: Config, terminal: Terminal) -> Preflight:
    """A preflight on its own: nothing is trained, and no folder is created."""
    for warning in check(config):
        terminal.say(f"Warning: {warning}")
    choose_device(config.train.device)
    images = _open_images(config, terminal)
    setup = build(_infer_data_settings(config, images, terminal.say), images, terminal.say)
    try:
        return preflight(setup, terminal.say)
    finally:
        setup.loader.close()


def _open_images(config: Config, terminal: Terminal) -> Images:
    with terminal.bar("Preparing images") as advance:
        images = open_images(config.data, advance, terminal.say)
    for name, reason in images.rejected[:MAX_NAMED_FILES]:
        terminal.say(f"Left out {name}: {reason}")
    if len(images.rejected) > MAX_NAMED_FILES:
        terminal.say(f"… and {len(images.rejected) - MAX_NAMED_FILES} more; the whole list is in data.json of the run.")
    return images
