"""SIGKILL at random moments: a run that is killed and resumed again and again must end with the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from safelight import start as start_module
from safelight.checkpoints.folder import steps as steps_on_disk
from safelight.config import Config
from safelight.training import batch_loader, state
from safelight.training.ema import EmaWeights
from torture.child_run import LONGEST, ended, finish, start
from torture.marks import Marks, Phase
from torture.scenario import Outcome, Scenario, Trial
from torture.tiny_run import (
    STEPS,
    check_end,
    configure,
    differing,
    digest,
    fingerprint,
    log_of,
    make_images,
    train_alone,
)

MOST_KILLS = 10  # of one run; then it is left alone to finish
LATE = 24  # step at which a broken build is killed
WORKERS = (0, 4)  # loader threads, drawn for every sitting
OTHER_BYTES = "other bytes in"
SAVE, LOAD = "inside a save", "while loading a checkpoint"

Change = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Aim:
    """When to strike."""

    kind: str  # anywhere, load, save or hold
    save: int  # which save of the sitting
    delay: float  # seconds after the start, the load or the save began

    def reached(self, marks: Marks, run: Path) -> bool:
        if self.kind == "load":
            return marks.has_loaded
        if self.kind == "hold":
            return marks.is_held and not marks.saving and bool(steps_on_disk(run / "checkpoints"))
        return self.kind == "anywhere" or marks.saves_begun >= self.save or marks.is_held


def draw_aim(draw: random.Random, run: Path, seconds: float) -> Aim:
    """Half of the blows fall anywhere, rather early; the others are aimed at the short moments that matter most."""
    kinds = ["anywhere"] * 5 + ["save"] * 3 + ["load"] * 2
    kind, save, share = draw.choice(kinds), draw.randint(1, 3), draw.random()
    if kind == "anywhere" or (kind == "load" and not steps_on_disk(run / "checkpoints")):
        return Aim("anywhere", save, share**2 * seconds)  # early ones leave more of the run to be killed again
    return Aim(kind, save, 10 ** (-4 + 2.3 * share))  # 0.1 to 20 ms


def kill_and_resume(trial: Trial, *, broken: Change | None = None) -> Outcome:
    """A case is a run that is killed up to ten times, and compared with one that was left alone."""
    images, outcome = trial.folder / "images", Outcome()
    make_images(images)
    config, whole = configure(images), trial.folder / "reference"
    began = time.perf_counter()
    train_alone(whole, config, change=broken)
    seconds, reference = time.perf_counter() - began, fingerprint(whole)
    outcome.finals = digest(reference)
    for case in trial.cases:
        run, before = trial.folder / f"run-{case}", outcome.count
        try:
            _torment(run, config, trial.draw(case), seconds, outcome, broken)
            if other := differing(reference, fingerprint(run)):
                raise AssertionError(f"{OTHER_BYTES} {other}")
        except AssertionError as error:
            outcome.lost.append((case, str(error)))
            continue
        outcome.tally["runs with the same bytes"] += outcome.count > before
        shutil.rmtree(run)
    return outcome


def _torment(
    run: Path, config: Config, draw: random.Random, seconds: float, outcome: Outcome, broken: Change | None
) -> None:
    """Kills and resumes one run, and lets it finish."""
    marks = Marks()
    for number in range(1 if broken else MOST_KILLS):
        # A broken build is sick only where it resumes, and averages soon forget: not in the first saves. A broken seed
        # draws from one generator: two loader threads would draw in any order.
        aim = Aim("hold", 0, draw.random() * 0.01) if broken else draw_aim(draw, run, seconds)
        workers = 0 if broken else draw.choice(WORKERS)
        hold = LATE if broken else 0 if number else STEPS - 1  # the first blow falls in any case
        child = start(run, config, marks=marks, log=log_of(run), workers=workers, change=broken, hold=hold)
        if not _strike(child, aim, marks, run):
            return
        outcome.count += 1
        outcome.tally[_describe(marks, run)] += 1
    check_end(run, finish(start(run, config, marks=marks, log=log_of(run), change=broken)))


def _strike(child: int, aim: Aim, marks: Marks, run: Path) -> bool:
    """Ends a sitting with a SIGKILL; False if it came to its end first."""
    status, limit = None, time.perf_counter() + LONGEST
    while status is None and not aim.reached(marks, run):
        status = ended(child, 0.0002)
        if time.perf_counter() > limit:
            check_end(run, finish(child, 0))
    status = ended(child, aim.delay) if status is None else status
    if status is None:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    check_end(run, os.waitstatus_to_exitcode(status))
    return False


def _describe(marks: Marks, run: Path) -> str:
    """Where the blow fell. After the death: the marks stand still."""
    if marks.saving:
        return SAVE
    if marks.phase == Phase.LOADING:
        return LOAD
    if marks.phase == Phase.CLOSING:
        return "closing, after the last step"
    where = "training" if marks.phase in (Phase.TRAINING, Phase.DRAWING) else "starting"
    return where if steps_on_disk(run / "checkpoints") else f"{where}, before the first checkpoint"


def break_seed() -> None:
    """Noise from a generator that begins anew with every process, as in most trainers."""
    generator = torch.Generator().manual_seed(0)
    batch_loader.draw_noise = lambda seed, step, start, stop, shape: torch.randn(
        stop - start, *shape, generator=generator
    )


def break_optimizer() -> None:
    """The moments are not restored."""
    state.load_optimizer = lambda *_: None


def break_averages() -> None:
    """The averages begin anew."""
    EmaWeights.load = lambda self, ema_name, tensors: None


def change_threads() -> None:
    """Resumes with two threads what was trained with one: sums are added in another order."""
    resume = start_module.resume

    def resumed(path: Path, *, settings: Mapping[str, Any], **named: Any) -> object:
        return resume(path, settings={**settings, "train.threads": 2}, **named)

    start_module.resume = resumed  # type: ignore[assignment]


def _control(name: str, deed: str, broken: Change) -> Scenario:
    act = lambda trial: kill_and_resume(trial, broken=broken)  # noqa: E731
    return Scenario(name, deed, "kills", 3, 3, 1, 3, act, symptom=OTHER_BYTES)


KILLS = Scenario(
    "kills",
    "SIGKILL at random moments of a real run of 40 steps with a checkpoint every 4, resumed each time with 0 or 4 "
    "loader threads; all that it ends with must be the bytes of a run that was left alone.",
    "kills", 2000, 520, 2, 20, kill_and_resume, least={SAVE: 100, LOAD: 100},
)  # fmt: skip
SEED = _control("seed broken", "Noise comes from a generator that begins anew with each process.", break_seed)
MOMENTS = _control("optimizer forgotten", "Resume does not restore the optimizer's moments.", break_optimizer)
THREADS = _control("thread count changed", "Resume uses two threads instead of one.", change_threads)
AVERAGES = _control("averages forgotten", "Resume does not restore the averaged weights.", break_averages)
