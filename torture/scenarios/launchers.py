"""Processes of a run under the real torchrun are killed: it starts them again, and the run ends with the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from safelight.run import RunFolder
from torture.scenario import Outcome, Scenario, Trial
from torture.scenarios.kills import OTHER_BYTES
from torture.tiny_run import differing, digest, fingerprint
from torture.under_torchrun import COUNT, EVERY, STEPS, Job

MOST_KILLS = 3  # at one run; then it is left alone to finish
QUIET, CONTROL_QUIET = 200.0, 60.0  # seconds without a checkpoint or a new process after which a run hangs
EARLY_SHARE = 0.4  # of the kills: while processes import, meet and load
LONGEST_START = 6.0  # seconds in which that happens, on a quiet machine
FAILED_START = "connectFullMesh failed"
EARLY, LATE, BOTH = "before the processes trained", "while they trained", "of both processes at once"


def kill_under(trial: Trial, layouts: tuple[str, ...], *, old_store: bool = False) -> Outcome:
    """A case is a run that is struck up to three times, and compared with one that was left alone."""
    outcome = Outcome()
    reference = fingerprint(_undisturbed(trial.folder), STEPS)
    outcome.finals = digest(reference)
    for case in trial.cases:
        run, draw = trial.folder / f"run-{case}", trial.draw(case)
        job = Job(run, layouts[case % len(layouts)], run.with_suffix(".log"), old_store)
        try:
            job.start()
            _strike(job, draw, outcome, CONTROL_QUIET if old_store else QUIET)
            assert FAILED_START not in job.log.read_text(errors="replace"), f"a start failed: {FAILED_START}"
            assert not any(job.codes), f"torchrun gave up: {job.codes}; it said: {job.said()}"
            other = differing(reference, fingerprint(run, STEPS))
            assert not other, f"{OTHER_BYTES} {other}"
        except AssertionError as error:
            outcome.lost.append((case, f"{job.layout}: {error}"))
            continue
        finally:
            job.close()
        outcome.tally[f"runs with the same bytes, {job.layout}"] += 1
        shutil.rmtree(run)
    return outcome


def _undisturbed(folder: Path) -> Path:
    job = Job(folder / "reference", "standalone", folder / "reference.log")
    job.start()
    try:
        for _ in job.watch(QUIET):
            pass
        assert not any(job.codes), job.said()
    finally:
        job.close()
    return job.run


def _strike(job: Job, draw: random.Random, outcome: Outcome, quiet: float) -> None:
    """Kills processes while they start or while they train, and waits for the end of the run."""
    watch, gone, early = job.watch(quiet), frozenset[int](), False
    for _ in range(MOST_KILLS):
        early = draw.random() < EARLY_SHARE and not early  # three failures at one step end a run
        steps, share, both, victim = draw.randint(1, 4), draw.random(), draw.random() < 0.2, draw.randrange(COUNT)
        if not _have_come(job, watch, gone) or not (early or _has_saved(job, watch, steps * EVERY)):
            return
        time.sleep(share * LONGEST_START if early else 10 ** (-3 + 2.7 * share))  # 1 to 500 ms
        if len(alive := job.workers()) < COUNT:
            return
        status = RunFolder(job.run).status()
        outcome.tally[LATE if status.get("pid") == alive[0] and status.get("status") == "training" else EARLY] += 1
        outcome.tally[BOTH] += both
        outcome.count += 1
        gone = frozenset(alive.values())
        for rank in range(COUNT) if both else [victim]:
            os.kill(alive[rank], signal.SIGKILL)
    for _ in watch:
        pass


def _have_come(job: Job, watch: Iterator[None], gone: frozenset[int]) -> bool:
    """Waits for all processes of a start, none of them of the last one; False if the run came to its end first."""
    return any(len(now := job.workers()) == COUNT and not gone & {*now.values()} for _ in watch)


def _has_saved(job: Job, watch: Iterator[None], more: int) -> bool:
    """Waits for a checkpoint of so many steps more."""
    goal = max(0, job.newest) + more
    return any(job.newest >= goal for _ in watch)


ONE = Scenario(
    "torchrun, one launcher",
    "One or both of two processes under torchrun are killed, at random moments of starting and training, with its "
    "default rendezvous and --standalone: without a hand, the run ends with the bytes of one that was left alone.",
    "kills", 20, 8, 1, 4, lambda trial: kill_under(trial, ("default", "standalone")), least={EARLY: 3, LATE: 8},
)  # fmt: skip
TWO = Scenario(
    "torchrun, two launchers",
    "The same with two launchers of one process each, as on two machines, with the c10d and the static rendezvous.",
    "kills", 20, 8, 1, 4, lambda trial: kill_under(trial, ("c10d", "static")), least={EARLY: 3, LATE: 8},
)  # fmt: skip
OLD_STORE = Scenario(
    "torchrun, met in the old store",
    "The processes of a restart meet where those of the last start did, as plain torch scripts do.",
    "kills", 1, 4, 1, 4, lambda trial: kill_under(trial, ("default", "c10d", "standalone", "static"), old_store=True),
    symptom=FAILED_START,
)  # fmt: skip
