"""One sitting of a run in a forked child, which marks in shared memory what it is doing when the blow comes."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import accelerate  # noqa: F401  as below
import diffusers.models.unets.unet_2d
import diffusers.schedulers.scheduling_ddim
import diffusers.schedulers.scheduling_ddpm  # noqa: F401  4 s that no child has to pay again
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional

from safelight import start as start_module
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.data.sources import archive, arrow, digits, idx, shapes  # noqa: F401  as above
from safelight.errors import SafelightError
from safelight.terminal import Terminal
from torture.child_lifetime import die_with
from torture.marks import Marks, put_up_marks

torch.set_num_threads(1)  # before any operation: OpenMP's threads do not survive a fork
REFUSED = 9  # exit code of a sitting that ended in words of ours
LONGEST = 600.0  # seconds that a sitting may take before it counts as hung: the machine may be busy


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
    environment: Mapping[str, str] | None = None,
    hold: int = 0,
) -> int:
    """Forks a child that trains `run`, or resumes it where there is one, after a `change` to its own code; returns its
    process id. It does not take step `hold` nor a later one before it is let go."""
    marks.clear()
    marks.hold_at(hold)
    parent, child = os.getpid(), os.fork()
    if child:
        return child
    code = 1
    try:
        die_with(parent)
        os.environ.update(environment or {})
        with log.open("a") as words:
            os.dup2(words.fileno(), 2)  # what libraries and threads have to say
            try:
                if change is not None:
                    change()
                put_up_marks(marks)
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
    settings = {"data.workers": workers, "train.timeout": config.train.timeout}
    if (run / "config.yaml").exists():
        start_module.resume(run, settings=settings, model=model, terminal=terminal)
    else:
        start_module.train(resolve(base=config, settings=settings), run=run, model=model, terminal=terminal)


@contextmanager
def halted(child: int) -> Iterator[None]:
    """The child stands still meanwhile, with all of its threads."""
    os.kill(child, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(child, signal.SIGCONT)


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
