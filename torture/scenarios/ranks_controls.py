"""What must not go well with three processes: sums of DDP, other threads, nobody on watch, files written in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from safelight import runner
from safelight.checkpoints import folder as retention
from safelight.checkpoints import writer as checkpoint
from safelight.checkpoints.coordinator import SaveCoordinator
from safelight.checkpoints.snapshot import CheckpointFiles
from safelight.files import DISK, Disk
from safelight.processes import group as group
from safelight.processes.heartbeat import Heartbeat
from safelight.processes.reduction import Reduction
from safelight.training import build
from safelight.training.step import Stepper
from torture.kills_in_ranks import HANG, NOT_WHOLE, Blow, check_whole, strike
from torture.ranks import launch, train_together
from torture.scenario import Outcome, Scenario, Trial
from torture.scenarios.kills import OTHER_BYTES, change_threads
from torture.scenarios.ranks import COUNT, prepare
from torture.tiny_run import differing, fingerprint

PATIENCE, LATEST = 2.0, 20.0  # seconds: with one that hangs, and for the others to end; a sound build takes 6

Change = Callable[[], object]
Aim = Callable[[Trial, int], Blow]


def strike_once(trial: Trial, change: Change, aim: Aim) -> Outcome:
    """A case is a run of a broken build that is struck once, and compared with one of the same build that was not."""
    config, reference = prepare(trial, change)
    outcome = Outcome()
    for case in trial.cases:
        run, blow = trial.folder / f"run-{case}", aim(trial, case)
        company = launch(run, replace(config, train=replace(config.train, timeout=PATIENCE)), COUNT, change=change)
        outcome.count += 1
        try:
            struck = strike(company, blow, latest=LATEST)
            assert struck is not None, "the run came to its end before the blow"
            check_whole(company, struck)
            train_together(run, config, COUNT, change=change)
            other = differing(reference, fingerprint(run))
            assert not other, f"{OTHER_BYTES} {other}"
        except AssertionError as error:
            outcome.lost.append((case, str(error)))
        finally:
            company.close()
    return outcome


def add_by_ddp() -> None:
    """As in most trainers, which make no pass before the first step either."""
    begin = Stepper.__init__

    def wrapped(self: Stepper, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        if self.group.size > 1:
            self.network = DistributedDataParallel(self.network)

    build.make_reduction = lambda *_: Reduction()
    Stepper.__init__ = wrapped
    runner._seconds_per_step = lambda parts: 0.01


def keep_no_watch() -> None:
    """The others are waited for as long as the library waits."""
    Heartbeat._check_others = lambda self: None
    group.POLL_INTERVAL = group.LONGEST_WAIT


def save_in_place() -> None:
    def commit(folder: Path, files: CheckpointFiles, disk: Disk = DISK, *_: object) -> Path:
        checkpoint.make_directories(folder, disk)
        checkpoint._write_files(retention.place(folder, files.step), files, disk, SaveCoordinator())
        return retention.place(folder, files.step)

    checkpoint.commit = commit


def in_a_step(trial: Trial, case: int) -> Blow:
    return Blow("step", (1 + case % 2,), trial.draw(case).randint(21, 27), 0.0)


def in_a_halted_step(trial: Trial, case: int) -> Blow:
    return replace(in_a_step(trial, case), stop=True)


def in_a_save(trial: Trial, case: int) -> Blow:
    return Blow("save", (0,), 2, trial.draw(case).uniform(0.0005, 0.003))


def _control(name: str, deed: str, symptom: str, change: Change, aim: Aim, cases: int) -> Scenario:
    return Scenario(
        name, deed, "blows", 1, cases, 1, cases, lambda trial: strike_once(trial, change, aim), symptom=symptom
    )


DDP = _control(
    "DDP adds", "DistributedDataParallel adds the gradients of three processes.", OTHER_BYTES, add_by_ddp, in_a_step, 2
)
THREADS = _control(
    "thread count changed, three processes", "Resume uses two threads instead of one.", OTHER_BYTES, change_threads,
    in_a_step, 2,
)  # fmt: skip
UNWATCHED = _control(
    "nobody keeps watch", "No process looks for signs of life of the others, and one is stopped.", HANG, keep_no_watch,
    in_a_halted_step, 1,
)  # fmt: skip
IN_PLACE = _control(
    "written in place, three processes", "A checkpoint is written under its own name instead of beside it.", NOT_WHOLE,
    save_in_place, in_a_save, 6,
)  # fmt: skip
