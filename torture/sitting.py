"""One sitting of a run in a forked child, which marks in shared memory what it is doing when the blow comes."""

from __future__ import annotations

import functools
import mmap
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import diffusers.models.unets.unet_2d
import diffusers.schedulers.scheduling_ddim
import diffusers.schedulers.scheduling_ddpm  # noqa: F401  4 s that no child has to pay again
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional

from safelight import session
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.data.sources import archive, arrow, digits, idx, shapes  # noqa: F401  as above
from safelight.errors import SafelightError
from safelight.terminal import Terminal
from safelight.train import checkpoint
from safelight.train.feed import Inputs
from safelight.train.step import Stepper, StepView
from safelight.train.trainer import Trainer
from torture.mortality import die_with

torch.set_num_threads(1)  # before any operation: OpenMP's threads do not survive a fork
REFUSED = 9  # exit code of a sitting that ended in words of ours
LONGEST = 600.0  # seconds that a sitting may take before it counts as hung: the machine may be busy


class Phase(IntEnum):
    """Where the main thread of a sitting is."""

    STARTING = 0
    LOADING = 1
    BUILDING = 2
    TRAINING = 3
    CLOSING = 4


class Marks:
    """Numbers that parent and child share, and that stay as they were when the child dies."""

    def __init__(self) -> None:
        self._numbers = memoryview(mmap.mmap(-1, 64)).cast("i")
        self._lock = threading.Lock()  # checkpoints and EMA snapshots are saved by two threads

    def clear(self) -> None:
        for place in range(len(self._numbers)):
            self._numbers[place] = 0

    @property
    def phase(self) -> Phase:
        return Phase(self._numbers[0])

    @property
    def saves_begun(self) -> int:
        return self._numbers[1]

    @property
    def saving(self) -> bool:
        return self._numbers[1] > self._numbers[2]

    @property
    def step(self) -> int:
        """The last that was begun."""
        return self._numbers[3]

    @step.setter
    def step(self, step: int) -> None:
        self._numbers[3] = step

    @property
    def saves_failed(self) -> int:
        return self._numbers[4]

    @property
    def saves_done(self) -> int:
        return self._numbers[2] - self._numbers[4]

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        self._numbers[0] = phase
        try:
            yield
        finally:
            self._numbers[0] = Phase.CLOSING if phase == Phase.TRAINING else Phase.STARTING

    @contextmanager
    def during_save(self) -> Iterator[None]:
        self._add(1)
        try:
            yield
        except BaseException:
            self._add(4)
            raise
        finally:
            self._add(2)

    def _add(self, place: int) -> None:
        with self._lock:
            self._numbers[place] += 1


def within(work: Callable[..., Any], context: Callable[[], Any]) -> Callable[..., Any]:
    @functools.wraps(work)
    def marked(*args: Any, **named: Any) -> Any:
        with context():
            return work(*args, **named)

    return marked


def put_up_marks(marks: Marks) -> None:
    """Patches this process, which is a child and does not live long."""
    session.load_newest = within(session.load_newest, lambda: marks.during(Phase.LOADING))
    session.build = within(session.build, lambda: marks.during(Phase.BUILDING))
    Trainer._train = within(Trainer._train, lambda: marks.during(Phase.TRAINING))
    checkpoint.commit = within(checkpoint.commit, marks.during_save)
    take = Stepper.take

    def marked(self: Stepper, inputs: Sequence[Inputs], step: int, signal: int = 0) -> StepView:
        marks.step = step
        return take(self, inputs, step, signal)

    Stepper.take = marked


class FewLayers(nn.Module):
    """The least that takes (x, t, label) and has dropout: a step takes 3 ms instead of 20."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)  # here and now, in the child
        self.into, self.out = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)
        self.time, self.label = nn.Linear(1, 8), nn.Embedding(3, 8)
        self.norm, self.dropout = nn.GroupNorm(2, 8), nn.Dropout(0.1)

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        known = self.time(t[:, None] / 1000) + self.label(label)
        return self.out(self.dropout(functional.silu(self.norm(self.into(x) + known[:, :, None, None]))))


def start(
    run: Path,
    config: Config,
    *,
    marks: Marks,
    log: Path,
    workers: int = 0,
    change: Callable[[], object] | None = None,
) -> int:
    """Forks a child that trains `run`, or resumes it where there is one, after a `change` to its own code; returns its
    process id."""
    marks.clear()
    parent, child = os.getpid(), os.fork()
    if child:
        return child
    code = 1
    try:
        die_with(parent)
        with log.open("a") as words:
            try:
                put_up_marks(marks)
                if change is not None:
                    change()
                sit(run, config, FewLayers(), workers, Terminal(Console(file=words, width=200)))
                code = 0
            except SafelightError as error:
                words.write(f"{type(error).__name__}: {error}\n")
                code = REFUSED
            except BaseException:
                traceback.print_exc(file=words)
    finally:
        os._exit(code)  # not the parent's clean-up, which is the parent's to do


def sit(run: Path, config: Config, model: nn.Module | None, workers: int, terminal: Terminal) -> None:
    """What a person does who finds the run dead, with another number of loader workers each time."""
    settings = {"data.workers": workers}
    if (run / "config.yaml").exists():
        session.resume(run, settings=settings, model=model, terminal=terminal)
    else:
        session.train(resolve(base=config, settings=settings), run=run, model=model, terminal=terminal)


def ended(child: int, seconds: float) -> int | None:
    """Waits so long for the child to end; its wait status, or None if it lives."""
    limit = time.perf_counter() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        left = limit - time.perf_counter()
        if left <= 0:
            return None
        time.sleep(min(left, 0.001))


def finish(child: int, seconds: float = LONGEST) -> int | None:
    """The exit code of a child that is left alone; None if it had to be ended."""
    status = ended(child, seconds)
    if status is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None
    return os.waitstatus_to_exitcode(status)
