"""Loops of somebody else's under watch, ended in every way: what was read a second before the end is kept."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

import safelight
from safelight.record.reading import read_signal
from safelight.run import RunFolder
from safelight.watching import watched_run
from torture.child_lifetime import die_with
from torture.scenario import Outcome, Scenario, Trial

WAYS = (
    "close",
    "exception",
    "sys.exit",
    "os._exit",
    "SIGTERM",
    "SIGKILL",
    "folder removed",
    "file in its place",
    "disk full",
)
PAUSE = 1.3  # seconds: what is older than one is kept
LONGEST = 60.0


def loop(way: str, run: Path, steps: int, done: Path) -> None:
    """The life of a child. It writes down how many steps it made before the second that may be lost."""
    torch.manual_seed(0)
    watched_run.HEARTBEAT_SECONDS = 0.2
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    said: list[str] = []
    watch = safelight.watch(model, optimizer, run=run, say=said.append)

    def step() -> None:
        x = torch.randn(8, 4)
        loss = ((model(x) - x) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(loss)
        watch.log({"mine": loss, "word": "x", "none": None})

    for _ in range(steps):
        step()
    time.sleep(PAUSE)  # idle: the readings go to the record by themselves
    done.write_text(str(steps))
    if way == "exception":
        with contextlib.suppress(ValueError), watch:
            raise ValueError("of the loop")
    elif way == "sys.exit":
        atexit._run_exitfuncs()
    elif way == "SIGTERM":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    elif way == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    elif way == "folder removed":
        shutil.rmtree(run)
        for _ in range(2):
            step()
            time.sleep(PAUSE)
        done.write_text("1")  # at least the readings after it
    elif way == "file in its place":
        shutil.rmtree(run)
        run.touch()
        for _ in range(2):
            step()
            time.sleep(PAUSE)
        run.unlink()
        for _ in range(2):
            step()
            time.sleep(PAUSE)
        done.write_text("1")
    elif way == "disk full":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        for _ in range(5):
            step()
        time.sleep(PAUSE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        step()
        watch.close()
        done.write_text(str(steps + 6))
    if way == "close":
        watch.close()
    if "gone" in " ".join(said) and sum("gone" in words for words in said) > 1:
        os._exit(9)
    os._exit(0)


def end(way: str, run: Path, draw: random.Random) -> str:
    """What was lost, or nothing."""
    done = run.with_suffix(".done")
    parent, child = os.getpid(), os.fork()
    if not child:
        try:
            die_with(parent)
            loop(way, run, draw.randint(3, 60), done)
        except BaseException as error:
            print(f"{way}: {error!r}", file=sys.stderr)
            os._exit(1)
    code = wait_for(child)
    expected = {"SIGTERM": -signal.SIGTERM, "SIGKILL": -signal.SIGKILL}.get(way, 0)
    if code != expected:
        return f"{way}: the loop ended with {code}" if code is not None else f"{way}: the loop hung"
    wanted = int(done.read_text())
    kept = {name: len(read_signal(RunFolder(run).record, name)) for name in ("loss/mean", "mine")}
    short = {name: count for name, count in kept.items() if count < wanted}
    return f"{way}: {short} of {wanted} readings were kept" if short else ""


def wait_for(child: int) -> int | None:
    began = time.monotonic()
    while time.monotonic() - began < LONGEST:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def act(trial: Trial) -> Outcome:
    outcome = Outcome()
    for case in trial.cases:
        way = WAYS[case % len(WAYS)]
        outcome.count += 1
        outcome.tally[f"by {way}"] += 1
        if lost := end(way, trial.folder / f"run-{case}", trial.draw(case)):
            outcome.lost.append((case, lost))
    return outcome


def without_timer(trial: Trial) -> Outcome:
    """As `act`, where readings wait for the next step."""
    from safelight.watching import loop as watching

    watching.FLUSH_SECONDS = 1e9
    return act(trial)


WATCHED_LOOPS = Scenario(
    "watched loops",
    "A loop under safelight.watch ends by close, an exception, sys.exit, os._exit, SIGTERM or SIGKILL, or its "
    "folder is removed or replaced by a file, or its disk is full for a while: all readings that are older than a "
    "second are kept, also what was logged beside words and None, and the loop goes on.",
    "loops", 27, 108, 9, 27, act,
)  # fmt: skip
NO_TIMER = Scenario(
    "readings wait for a step", "Readings are brought to the record by steps alone.",
    "loops", 1, 9, 9, 9, without_timer, symptom="readings were kept",
)  # fmt: skip
