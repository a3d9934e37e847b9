"""Starts and resumes runs: what the command line and the library both call."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from safelight.checkpoints.folder import clean, steps
from safelight.checkpoints.loading import load_once, load_rows_newest, refuse_scattered
from safelight.checkpoints.reader import load_newest
from safelight.checkpoints.snapshot import Loaded
from safelight.checkpoints.stand_ins import SilentFolder
from safelight.checkpoints.writer import write
from safelight.config import Config
from safelight.config.check import check
from safelight.config.resolve import apply, difference, flatten, resolve, to_dict, to_yaml
from safelight.config.tree import Data
from safelight.data.images import Images
from safelight.data.prepare import open_images
from safelight.data.summary import summary
from safelight.diagnosis import diagnose
from safelight.diagnosis.finding import Finding
from safelight.diagnosis.rules import RULES
from safelight.errors import PreflightError, SafelightError, Stopped, UsageError
from safelight.files import RunLock, write_atomically
from safelight.healing.healer import undo as undo_act
from safelight.model.memory import is_out_of_memory
from safelight.model.unet import describe_unet
from safelight.opened import Run, read_config
from safelight.pages.report.html import write_report
from safelight.processes.group import ProcessGroup, join_group
from safelight.processes.restarts import is_restart, note_failure, refuse_hopeless
from safelight.record.store import Record
from safelight.run import RunFolder, create_run, free_name, open_run, point_latest, refuse_used
from safelight.terminal import Terminal
from safelight.training.build import (
    Parts,
    build,
    build_model,
    check_shares,
    environment,
    fit_to_data,
    is_sharded,
    out_of_memory,
)
from safelight.training.engine import busy_machine, choose_device
from safelight.training.loop import Trainer
from safelight.training.preflight import Preflight, inspect, preflight
from safelight.training.trial import seconds_per_step

# What may change between two sittings without changing what is trained. The first group leaves even the bits alone.
SAME_BITS = {"checkpoint.every", "checkpoint.keep_last", "checkpoint.keep_every", "checkpoint.keep_best",
             "sample.every", "sample.count", "sample.sampler", "sample.steps", "sample.guidance", "data.workers",
             "data.source", "data.cache", "data.scan_workers", "data.max_bad", "data.max_pixels", "data.max_megabytes",
             "data.max_seconds", "data.max_memory", "train.max_refused", "train.preflight", "train.timeout", "log.to",
             "evaluate.every", "evaluate.budget",
             "evaluate.samples", "evaluate.references", "evaluate.features", "evaluate.components",
             "evaluate.significance", "heal.enabled", "heal.budget"}  # fmt: skip
SAME_MEANING = {"train.device", "train.weights", "train.accumulate", "train.shards", "train.threads", "model.compile",
                "model.channels_last", "model.gradient_checkpointing"}  # fmt: skip


OnStart = Callable[[Path, Callable[[str], None]], object]
TOLD = 10  # files left out that are named on the screen
LEFT_OUT = (
    "Weights are divided among the processes, and a pass takes all of them. Left out are what one process finds out by "
    "itself: the steps of the preflight, the probes and their rules, the comparison of weights (DST001), histograms "
    "of weights, and the search for where a refused update began."
)


def train(
    config: Config,
    *,
    run: Path | None = None,
    model: nn.Module | None = None,
    terminal: Terminal | None = None,
    on_start: OnStart | None = None,
) -> Run:
    """A new run from the first step. `model` may be any nn.Module of (x, t[, label]). `beside`: see `carry_out`."""
    warnings = check(config)
    choose_device(config.train.device)  # before the images are read and a folder is made
    with join_group(config.train) as group:
        terminal = _screen(group, terminal)
        for warning in warnings:
            terminal.say(f"Warning: {warning}")
        check_shares(config, group.size)
        if group.broadcast(lambda: is_restart(run)):
            assert run is not None
            return _resume_here(run, group, terminal, model=model, on_start=on_start)
        images = group.local_main_first(lambda: _open_images(config.data, terminal))
        fitted = fit_to_data(config, images)
        path = Path(group.broadcast(lambda: str(_new_path(run, config))))
        parts = build(fitted, images, terminal.say, model, group)
        with _hold(path, group, create_run) as folder:
            if group.is_main:
                _write_config(folder, parts)
                folder.report(asked_channels=config.data.channels)
                point_latest(folder)
            return run_training(parts, folder, terminal, on_start)


def _screen(group: ProcessGroup, terminal: Terminal | None) -> Terminal:
    """The first process is seen; the others are silent."""
    return terminal or Terminal() if group.is_main else Terminal(quiet=True)


def _new_path(run: Path | None, config: Config) -> Path:
    path = run or free_name(Path("runs"), Path(config.data.source).stem or "run")
    refuse_used(path)
    return path


@contextmanager
def _hold(path: Path, group: ProcessGroup, make: Callable[[Path], RunFolder]) -> Iterator[RunFolder]:
    """The run folder, locked by the first process, which alone writes to it."""
    if not group.is_main:
        yield SilentFolder(path)
        return
    with RunLock((folder := make(path)).path):
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
    """Carries a run on from its newest checkpoint that verifies, to the very bytes it would have reached. `undo`: the
    number of an act in its journal that is to hold no longer."""
    config = resolve(base=read_config(open_run(path)), settings=settings)
    with join_group(config.train) as group:
        terminal = _screen(group, terminal)
        return _resume_here(
            path, group, terminal, settings=settings, force=force, undo=undo, model=model, on_start=on_start
        )


def _resume_here(
    path: Path,
    group: ProcessGroup,
    terminal: Terminal,
    *,
    settings: Mapping[str, Any] | None = None,
    force: bool = False,
    undo: int | None = None,
    model: nn.Module | None = None,
    on_start: OnStart | None = None,
) -> Run:
    with _hold(path, group, open_run) as folder:
        old = _read_config_once(folder, group)
        config = resolve(base=old, settings=settings)
        _check_changes(old, config, force, terminal)
        check(config)
        check_shares(config, group.size)
        if group.is_main:
            refuse_hopeless(folder)
        # As it was asked for then: what the data decided is not a wish, and would be another cache.
        channels = group.broadcast(lambda: folder.status().get("asked_channels", config.data.channels))
        asked = replace(config.data, channels=channels)
        images = group.local_main_first(lambda: _open_images(asked, terminal))
        if group.is_main:
            check_data(folder, images, force)
            clean(folder.checkpoints)
            clean(folder.snapshots)
        sharded, loaded = is_sharded(config, group.size), None
        if not sharded:
            loaded = load_once(group, lambda: load_newest(folder.checkpoints, terminal.say))
        if model is None and (
            loaded is not None or (sharded and group.broadcast(lambda: bool(steps(folder.checkpoints))))
        ):
            model = build_model(config, group.broadcast(folder.architecture))
        parts = build(config, images, terminal.say, model, group)
        if (shard := parts.state.weights.shard) is not None:
            loaded = load_rows_newest(group, folder.checkpoints, shard, terminal.say)
        if loaded is None:
            terminal.say(f"{path} has no checkpoint yet: it starts again from step 0, which gives the same run.")
        else:
            parts.state.restore(loaded)
            _check_environment(loaded, config, terminal)
            terminal.say(f"Resumed from {loaded.path} at step {loaded.step} of {config.train.steps}.")
        _undo(parts, folder, undo, terminal)
        if group.is_main and difference(old, parts.config):
            _write_config(folder, parts)
        if parts.state.counters.step >= config.train.steps:
            terminal.say("The run has reached its last step: nothing is left to train. For more: --steps N --force")
            Trainer(parts, folder, terminal).run()  # no step, but a snapshot or timelapse that a kill prevented
            return Run(folder.path, parts.config, parts.state.counters.step)
        return run_training(parts, folder, terminal, on_start)


def _undo(parts: Parts, folder: RunFolder, number: int | None, terminal: Terminal) -> None:
    if number is not None:
        if parts.state.weights.shard is not None:
            raise UsageError("--undo rewrites a checkpoint, which no process has whole. Add --set train.weights=whole.")
        terminal.say(undo_act(parts, number).told())
        if parts.engine.is_main:  # at once: a kill must not bring it back
            write(folder.checkpoints, parts.state.snapshot(environment()))


def run_training(parts: Parts, folder: RunFolder, terminal: Terminal, on_start: OnStart | None = None) -> Run:
    """The preflight, and the training from where the state stands to the last step. `beside` is called once the run is
    on the screen, and must come back at once: it starts what shows the run elsewhere."""
    started, config, group = time.time(), parts.config, parts.engine.group
    load = os.getloadavg()[0]  # before our own threads add to it
    terminal.first_screen(parts, folder, _seconds_per_step(parts))
    if on_start is not None and group.is_main:
        on_start(folder.path, terminal.say)
    if parts.engine.device.type == "cpu" and (hint := busy_machine(load, os.cpu_count() or 1, torch.get_num_threads())):
        terminal.say(hint)
    if parts.batches.count < config.train.batch_size:
        terminal.say(
            f"Only {parts.batches.count} images for batches of {config.train.batch_size}: each image comes more than "
            "once in every batch."
        )
    sharded = parts.state.weights.shard is not None
    if sharded:
        refuse_scattered(group, folder.path)
        terminal.say(LEFT_OUT)
    found = _preflight(parts, folder, terminal) if group.is_main else None
    group.broadcast(lambda: None)  # the others begin when it was passed
    trainer = Trainer(parts, folder, terminal)
    if found is not None:
        trainer.record.add(parts.state.counters.step, found.static)
        if found.parameters:
            trainer.record.event(parts.state.counters.step, "parameters", **found.parameters)
    if group.is_main and not sharded:
        _inspect(parts, terminal)
    try:
        with terminal.live():
            trainer.run()
    except SafelightError as error:
        if isinstance(error, Stopped) and group.is_main:
            _write_report(folder, terminal)  # what a colleague is asked about most
        raise
    except BaseException as error:
        words = f"{type(error).__name__}: {error}"
        folder.report(status="crashed", step=parts.state.counters.step, error=words)
        note_failure(folder, parts.state.counters.step, words)
        raise
    if group.is_main:
        _write_report(folder, terminal)
        terminal.last_screen(parts, folder, time.time() - started, _findings(folder))
    return Run(folder.path, config, parts.state.counters.step)


def _inspect(parts: Parts, terminal: Terminal) -> None:
    inspection = inspect(parts, terminal.say, looked_before=True)
    if not parts.config.model.compile:  # a hook would be compiled with it, and might change its arithmetic
        inspection.attach()
    parts.stepper.inspection = inspection


def _findings(folder: RunFolder) -> list[Finding]:
    """What is wrong at the end. The physician has told of a diagnosis that fails."""
    try:
        return [each for each in diagnose(folder.path) if each.severity != "info" and each.over is None]
    except Exception:
        return []


def _write_report(folder: RunFolder, terminal: Terminal) -> None:
    """One file that shows the run. It costs a second or two, and where it fails one line, never the run."""
    try:
        write_report(folder, folder.report_page)
    except Exception as error:  # whatever it is: the training is done and saved
        terminal.say(
            f"The report could not be made ({type(error).__name__}: {error}). Try again: safelight report {folder.path}"
        )


def _preflight(parts: Parts, folder: RunFolder, terminal: Terminal) -> Preflight | None:
    """Tells what it finds; an error ends the run before its first step, unless the config says to go on."""
    wanted = parts.config.train.preflight
    if wanted == "off":
        return None
    started = time.monotonic()
    try:
        found = preflight(parts, terminal.say)
    except RuntimeError as error:
        if is_out_of_memory(error):
            return None  # the first step will say so, or mend it
        raise
    for finding in found.findings:
        if finding.severity != "info":
            terminal.say(f"{finding.severity.capitalize()} {finding.code} {finding.cause}: {finding.summary}")
            terminal.say(f"  To do: {finding.fix.text}")
    if not found.findings:
        tried = "" if parts.state.weights.shard is None else " without a step"
        seconds = time.monotonic() - started
        terminal.say(f"Preflight: nothing is wrong, as far as {len(RULES)} rules see{tried} ({seconds:.1f} s).")
    if not found.errors or wanted == "tell":
        return found
    step = parts.state.counters.step
    record = Record(folder.record, from_step=step, say=terminal.say)
    for number, readings in sorted(found.readings.items()):
        record.add(number, readings)
    if found.parameters:
        record.event(step, "parameters", **found.parameters)
    for finding in found.errors:
        record.finding(step, finding.code, **finding.to_json())
    record.close()
    first = found.errors[0]
    folder.report(status="refused", step=step, last_finding=first.cause)
    raise PreflightError(
        f"The preflight found {first.code} {first.cause}: {first.summary} {first.fix.text} Nothing was trained. "
        f"`safelight doctor {folder.path}` has the evidence; --set train.preflight=tell trains all the same."
    )


def check_before_training(config: Config, terminal: Terminal) -> list[Finding]:
    """A preflight on its own: nothing is trained, and no folder is made."""
    for warning in check(config):
        terminal.say(f"Warning: {warning}")
    choose_device(config.train.device)
    images = _open_images(config.data, terminal)
    parts = build(fit_to_data(config, images), images, terminal.say)
    try:
        return preflight(parts, terminal.say).findings
    finally:
        parts.feed.close()


def _seconds_per_step(parts: Parts) -> float:
    try:
        return seconds_per_step(parts)
    except RuntimeError as error:
        if is_out_of_memory(error):
            if parts.config.heal.enabled:
                return math.nan  # the first step will find what fits
            raise out_of_memory(parts.config) from error
        raise


def _open_images(data: Data, terminal: Terminal) -> Images:
    with terminal.bar("Preparing images") as advance:
        images = open_images(data, advance, terminal.say)
    for name, reason in images.rejected[:TOLD]:
        terminal.say(f"Left out {name}: {reason}")
    if len(images.rejected) > TOLD:
        terminal.say(f"… and {len(images.rejected) - TOLD} more; the whole list is in data.json of the run.")
    return images


def _write_config(folder: RunFolder, parts: Parts) -> None:
    config, images = parts.config, parts.images
    facts = {
        "versions": environment(),
        "data": {
            "images": len(images),
            "fingerprint": images.fingerprint,
            "class_names": list(images.class_names),
            "rejected": len(images.rejected),
        },
        "exact": not config.model.compile and parts.engine.device.type == "cpu",
        "created": folder.status().get("created", time.time()),
    }
    folder.report(**facts)
    try:
        architecture = describe_unet(parts.state.model)
        if architecture is not None:
            write_atomically(folder.architecture_file, json.dumps(architecture, indent=1).encode())
        write_atomically(folder.data, json.dumps(summary(images, config.data), indent=1).encode())
        write_atomically(folder.config, to_yaml(config).encode())
    except OSError as error:
        raise UsageError(
            f"The run folder {folder.path} cannot be written to: {error.strerror}. Choose another --run, or make room."
        ) from error


def _read_config_once(folder: RunFolder, group: ProcessGroup) -> Config:
    """By the first process; the others need not see the folder."""
    if group.size == 1:
        return read_config(folder)
    return apply(Config(), flatten(group.broadcast(lambda: to_dict(read_config(folder)))), str(folder.config))


def _check_changes(old: Config, new: Config, force: bool, terminal: Terminal) -> None:
    changes = difference(old, new)
    for key, (before, after) in changes.items():
        terminal.say(f"Changed: {key} from {before} to {after}")
    meaning = [key for key in changes if key not in SAME_BITS | SAME_MEANING]
    if meaning and not force:
        raise UsageError(
            f"{', '.join(meaning)} would change what this run means: the steps behind it were trained otherwise. "
            "Add --force to change it all the same, or start a new run."
        )
    if changes.keys() & SAME_MEANING:
        terminal.say("The run goes on with the same meaning, but no longer to the same bytes.")


def check_data(folder: RunFolder, images: Images, force: bool) -> None:
    before = folder.status().get("data", {}).get("fingerprint")
    if before is not None and before != images.fingerprint and not force:
        raise UsageError(
            f"The images are not those that {folder.path} was trained on ({len(images):,} now, fingerprint "
            f"{images.fingerprint[:12]} instead of {before[:12]}). Add --force to go on with them, or start a new run."
        )


def _check_environment(loaded: Loaded, config: Config, terminal: Terminal) -> None:
    now, then = environment(), loaded.manifest.get("environment", {})
    if config.train.shards is not None:
        now.pop("processes")  # any number of them gives the same bytes
    other = [f"{name} was {then[name]}, is {now[name]}" for name in now if name in then and then[name] != now[name]]
    if other:
        terminal.say(f"Other surroundings than at the checkpoint ({'; '.join(other)}): the bytes may differ.")
