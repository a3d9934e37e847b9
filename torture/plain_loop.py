"""A plain PyTorch loop with `safelight.Checkpoints`, which can be killed at any call to the disk and at any time."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from safelight.checkpoints.saves import Checkpoints
from safelight.checkpoints.state_tree import split
from safelight.files import Disk
from safelight.training.ema import EMA
from torture.child_lifetime import die_with
from torture.disks import NEVER, FaultyDisk, QuickDisk

STEPS = 40
OTHER_STATE, LOST = "is not the state that was saved", "had returned, and"
SAVED, LOADED, KILLED = "saved", "loaded", "killed"

Report = Callable[[str, int, str], None]  # what happened, the step, a digest of everything


class DeadlyDisk(FaultyDisk):
    """Kills the process at call number `at`, in the middle of a write where it is one."""

    def __init__(self, at: int, report: Report) -> None:
        super().__init__(at, "exit")
        self._report = report

    def answer(self, name: str, real: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        if self.reached:
            if name == "write":
                real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            self._report(KILLED, 0, name)
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)


@dataclass(frozen=True, slots=True)
class Blow:
    """When a life ends."""

    call: int = NEVER  # to the disk, at which the process kills itself
    saves: int | None = None  # after which its parent kills it, so many
    seconds: float = 0.0  # later


@dataclass(slots=True)
class Life:
    """How a process ended, and what it had reported until then."""

    status: int = 0
    loaded: tuple[int, str] | None = None
    saved: dict[int, str] = field(default_factory=dict)
    call: str = ""  # to the disk, in which it died


def train(folder: Path, disk: Disk, report: Report, steps: int = STEPS) -> None:
    """From wherever it was to the end. Dropout, noise and order of the data come from global random states, so that one
    of them that is lost shows in every later step."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.2), nn.Linear(12, 6))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    ema = EMA(model, 0.99)
    saves = Checkpoints(folder, keep=2, say=_refuse, disk=disk)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "ema": ema}
    start = saves.load(**parts)
    if start is not None:
        report(LOADED, start, digest(parts))
    for step in range(start or 0, steps):
        x = torch.randn(8, 6) + random.random() + np.random.random()
        (model(x) - x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        ema.update()
        saves.save(step + 1, **parts)
        report(SAVED, step + 1, digest(parts))


def digest(parts: dict[str, Any]) -> str:
    """Of every number that later steps depend on: weights, moments, averages, schedule, random states."""
    found = hashlib.sha256()
    for name, part in parts.items():
        tree, tensors = split(part.state_dict(), name)
        found.update(json.dumps(tree, sort_keys=True).encode())  # the order of names is not kept
        for key, tensor in sorted(tensors.items()):
            found.update(key.encode() + tensor.contiguous().numpy().tobytes())
    found.update(torch.get_rng_state().numpy().tobytes())
    found.update(repr((random.getstate(), *np.random.get_state())).encode())
    return found.hexdigest()


def _refuse(words: str) -> None:
    print(f"said: {words}", file=sys.stderr)
    os._exit(9)  # nothing may be damaged, so there is nothing to say


def undisturbed(folder: Path, steps: int = STEPS) -> dict[int, str]:
    """The state after every step."""
    marks: dict[int, str] = {}
    train(folder, QuickDisk(), lambda _, step, mark: marks.__setitem__(step, mark), steps)
    return marks


def live(folder: Path, blow: Blow, steps: int = STEPS) -> Life:
    """One life of the loop in a process of its own."""
    reading, writing = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        try:
            die_with(parent)
            report = partial(_write, writing)
            train(folder, DeadlyDisk(blow.call, report), report, steps)
            os._exit(0)
        finally:
            os._exit(8)
    os.close(writing)
    life = Life()
    with os.fdopen(reading) as pipe:
        if blow.saves == 0:
            _strike(child, blow.seconds)
        for line in pipe:
            kind, step, mark = line.split()
            if kind == SAVED:
                life.saved[int(step)] = mark
                if len(life.saved) == blow.saves:
                    _strike(child, blow.seconds)
            elif kind == LOADED:
                life.loaded = int(step), mark
            else:
                life.call = mark
    life.status = os.waitpid(child, 0)[1]
    return life


def _strike(child: int, seconds: float) -> None:
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)  # it was not waited for yet, so the number is still its own


def _write(descriptor: int, kind: str, step: int, mark: str) -> None:
    os.write(descriptor, f"{kind} {step} {mark}\n".encode())


def faults_of(life: Life, marks: dict[int, str], returned: int) -> list[str]:
    """What is wrong with a life, in words; `returned`: the newest step whose save had returned before it."""
    wrong = list[str]()
    if life.loaded is not None and marks.get(life.loaded[0]) != life.loaded[1]:
        wrong.append(f"what was loaded as step {life.loaded[0]} {OTHER_STATE}")
    began = life.loaded[0] if life.loaded is not None else 0
    if (life.loaded or life.saved) and began < returned:
        wrong.append(f"the save of step {returned} {LOST} the loop went on from {began}")
    wrong += [f"another state after step {step}" for step, mark in life.saved.items() if marks[step] != mark]
    if life.status not in (0, signal.SIGKILL):
        wrong.append(f"a life ended with {os.waitstatus_to_exitcode(life.status)}")
    return wrong


def torment(folder: Path, blows: Iterable[Blow], marks: dict[int, str], tell: Callable[[str], None]) -> list[str]:
    """Kills one loop again and again, and lets it end. What is wrong, in words; `tell` gets where each blow fell."""
    steps, returned, wrong = max(marks), 0, list[str]()
    for blow in blows:
        life = live(folder, blow, steps)
        wrong += faults_of(life, marks, returned)
        returned = max([returned, *life.saved])
        if life.status != signal.SIGKILL:
            break
        tell(life.call or "a drawn moment")
    life = live(folder, Blow(), steps)
    wrong += faults_of(life, marks, returned)
    at_end = life.saved.get(steps) or (life.loaded[1] if life.loaded and life.loaded[0] == steps else None)
    if at_end != marks[steps]:
        wrong.append("another state at the end, or none")
    return wrong
