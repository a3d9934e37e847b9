"""A run from its first screen to its last: preflight, training, report."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from safelight.checkpoints.loading import require_shared_folder
from safelight.comparison import elapsed_seconds
from safelight.config.check import check
from safelight.config.resolve import resolve
from safelight.data.summary import in_short, remarks, summary
from safelight.diagnosis import Diagnosis, diagnose_run
from safelight.errors import PreflightError, RunFolderLost, SafelightError, Stopped
from safelight.model.memory import is_out_of_memory
from safelight.observing.stage_pictures import after
from safelight.pages.report.html import write_report
from safelight.processes.restarts import note_failure
from safelight.record.store import RecordWriter
from safelight.rescue import rescue
from safelight.run import RunFolder
from safelight.terminal import Terminal, duration
from safelight.trained import Run
from safelight.training.build import Setup, build, out_of_memory
from safelight.training.loop import Trainer
from safelight.training.preflight import Preflight, make_probe_runner, preflight
from safelight.training.previews import cost_in_steps, preview_steps
from safelight.training.runtime import busy_machine
from safelight.training.step import seconds_per_step

OnStart = Callable[[Path, Callable[[str], None]], object]
SMALLEST, LONG_SECONDS = "digits", 600.0  # preset; a training from which on it is offered
LEFT_OUT = (
    "Weights are divided among the processes, and a pass takes all of them. Left out are what one process finds out by "
    "itself: the steps of the preflight, the probes and their rules, the comparison of weights (DST001), histograms "
    "of weights, and the search for where a refused update began."
)


def run_training(setup: Setup, folder: RunFolder, terminal: Terminal, on_start: OnStart | None = None) -> Run:
    """The preflight, and the training from the step of the state to the last one. `on_start` is called once the run is
    on the screen, and must return at once: it starts what shows the run elsewhere."""
    if setup.state.counters.step >= setup.config.train.steps:
        terminal.say("The run has reached its last step: nothing is left to train. For more: --steps N --force")
        Trainer(setup, folder, terminal).run()  # no step, but a snapshot or timelapse that a kill prevented
        return Run(folder.path, setup.config, setup.state.counters.step)
    config, group = setup.config, setup.group
    load = os.getloadavg()[0]  # before our own threads add to it
    pictures = after(preview_steps(config), setup.state.counters.step) * cost_in_steps(config)
    seconds = _seconds_per_step(setup)
    terminal.first_screen(setup, folder, seconds, pictures)
    if on_start is not None and group.is_main:
        on_start(folder.path, terminal.say)
    hint = busy_machine(load, os.cpu_count() or 1, torch.get_num_threads())
    if setup.runtime.device.type == "cpu" and hint is not None:
        terminal.say(hint)
    if group.is_main and setup.state.counters.step == 0:
        _repeat_remarks(setup, terminal)
        if (smaller := smaller_network(setup, seconds)) is not None:
            terminal.say(smaller)
    if setup.batches.count < config.train.batch_size:
        terminal.say(
            f"Only {setup.batches.count} images for batches of {config.train.batch_size}: each image comes more than "
            "once in every batch."
        )
    sharded = setup.is_sharded
    if sharded:
        require_shared_folder(group, folder.path)
        terminal.say(LEFT_OUT)
    if group.is_main and config.train.preflight != "off":
        terminal.say("Checking images, network and a few trial steps before the first one …")
    found = _preflight(setup, folder, terminal) if group.is_main else None
    group.broadcast(lambda: None)  # the others begin once it has passed
    probe_runner = None
    if group.is_main and not sharded:
        replayed = [] if found is None else found.replayed(setup.state.counters.step)
        probe_runner = make_probe_runner(setup, terminal.say, after_preflight=True, replayed=replayed)
    if probe_runner is not None and not config.model.compile:  # a hook would be compiled with it, and might change it
        probe_runner.attach()
    trainer = Trainer(setup, folder, terminal, probe_runner)
    if found is not None:
        trainer.record.add(setup.state.counters.step, found.constants)
        if found.untrained_parameters:
            trainer.record.event(setup.state.counters.step, "parameters", **found.untrained_parameters)
    try:
        with terminal.live():
            trainer.run()
    except RunFolderLost as lost:
        raise rescue(lost, setup) from lost
    except SafelightError as error:
        if isinstance(error, Stopped) and group.is_main:
            _write_report(folder, terminal)  # the one that is needed most
        raise
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        folder.update_status(status="crashed", step=setup.state.counters.step, error=text)
        note_failure(folder, setup.state.counters.step, text)
        raise
    if group.is_main:
        _write_report(folder, terminal)
        terminal.last_screen(setup, folder, elapsed_seconds(folder) or 0.0, _diagnosis(folder))
    return Run(folder.path, config, setup.state.counters.step)


def smaller_network(setup: Setup, seconds: float) -> str | None:
    """What the smallest preset would take on these images, where a CPU would train long; timed by a step of it."""
    config, total = setup.config, seconds * setup.config.train.steps
    small = resolve(preset=SMALLEST, settings={"data.image_size": config.data.image_size})
    is_alone = setup.runtime.device.type == "cpu" and setup.group.size == 1
    if not is_alone or not total > LONG_SECONDS or config.model.widths <= small.model.widths:
        return None
    network = replace(small.model, conditional=config.model.conditional)
    tried = replace(config, model=network, optimizer=small.optimizer, train=replace(small.train, threads=None))
    try:
        check(tried)
        parts = build(tried, setup.images, lambda text: None)
        parts.loader.close()
        each = seconds_per_step(parts.stepper, parts.loader.prepare(0))
    except (SafelightError, RuntimeError, ValueError):
        return None
    count = sum(parameter.numel() for parameter in parts.state.model.parameters()) / 1e6
    steps = tried.train.steps
    return (
        f"A smaller network takes about {duration(each * steps)} for {steps:,} steps ({count:.2f} M parameters): "
        f"--preset {SMALLEST} --image-size {config.data.image_size}"
    )


def _repeat_remarks(setup: Setup, terminal: Terminal) -> None:
    """What `safelight data` warns about, in short: few people call it before they train."""
    data = setup.config.data
    found = list(remarks(summary(setup.images, data), data))
    for remark in found:
        terminal.say(f"Data: {in_short(remark)}")
    if found:
        terminal.say(f"More: safelight data {data.source}")


def _diagnosis(folder: RunFolder) -> Diagnosis | None:
    """At the end; None for one that fails, which was reported while training."""
    try:
        return diagnose_run(folder.path)
    except Exception:
        return None


def _write_report(folder: RunFolder, terminal: Terminal) -> None:
    """One file that shows the run. It takes a second or two; a failure costs one line, never the run."""
    try:
        write_report(folder)
    except Exception as error:  # whatever it is: the training is done and saved
        terminal.say(
            f"The report could not be made ({type(error).__name__}: {error}). Try again: safelight report {folder.path}"
        )


def _preflight(setup: Setup, folder: RunFolder, terminal: Terminal) -> Preflight | None:
    """Reports what it finds; an error ends the run before its first step, unless the config says to continue."""
    wanted = setup.config.train.preflight
    if wanted == "off":
        return None
    started = time.monotonic()
    try:
        found = preflight(setup, terminal.say)
    except RuntimeError as error:
        if is_out_of_memory(error):
            return None  # the first step will report it, or fix it
        raise
    for finding in found.findings:
        if finding.severity != "info":
            terminal.say(f"{finding.severity.capitalize()} {finding.code} {finding.cause}: {finding.summary}")
            terminal.say(f"  To do: {finding.fix.text}")
    if not found.findings:
        tried = " without a step" if setup.is_sharded else ""
        seconds = time.monotonic() - started
        terminal.say(f"Preflight{tried}: {found.diagnosis.verdict} ({seconds:.1f} s)")
    if not found.errors or wanted == "tell":
        return found
    step = setup.state.counters.step
    record = RecordWriter(folder.record, from_step=step, say=terminal.say)
    for number, readings in sorted(found.readings.items()):
        record.add(number, readings)
    if found.untrained_parameters:
        record.event(step, "parameters", **found.untrained_parameters)
    for finding in found.errors:
        record.finding(step, finding.code, **finding.to_json())
    record.close()
    first = found.errors[0]
    folder.update_status(status="refused", step=step, last_finding=first.cause)
    raise PreflightError(
        f"The preflight found {first.code} {first.cause}: {first.summary} {first.fix.text} Nothing was trained. "
        f"`safelight doctor {folder.path}` has the evidence; --set train.preflight=tell trains anyway."
    )


def _seconds_per_step(setup: Setup) -> float:
    try:
        return seconds_per_step(setup.stepper, setup.loader.prepare(setup.state.counters.step))
    except RuntimeError as error:
        if is_out_of_memory(error):
            if setup.config.heal.enabled:
                return math.nan  # the first step will find what fits
            raise out_of_memory(setup.config) from error
        raise
