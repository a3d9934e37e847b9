"""A plain PyTorch loop with `safelight.Checkpoints`, killed again and again: what was saved must be there, bit for bit.

python -m torture.plain_loop --kills 200
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from safelight.checkpoints.saves import Checkpoints
from safelight.files import Disk
from safelight.training.ema import EMA
from torture.disks import NEVER, FaultyDisk

STEPS = 40


class DeadlyDisk(FaultyDisk):
    """Kills the process at call number `at`, in the middle of a write where it is one."""

    def __init__(self, at: int) -> None:
        super().__init__(at, "exit")

    def answer(self, name: str, real: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        if self.reached:
            if name == "write":
                real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)


def train(folder: Path, disk: Disk, report: Callable[[int, str], None], steps: int = STEPS) -> str:
    """From wherever it was to the end; dropout, noise and order of the data come from global random states, so that one
    of them that is lost shows in every later step. A digest of the weights at the end."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.2), nn.Linear(12, 6))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    ema = EMA(model, 0.99)
    saves = Checkpoints(folder, keep=2, say=_refuse, disk=disk)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "ema": ema}
    for step in range(saves.load(**parts) or 0, steps):
        x = torch.randn(8, 6) + random.random() + np.random.random()
        (model(x) - x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        ema.update()
        saves.save(step + 1, **parts)
        report(step + 1, digest(model, ema))
    return digest(model, ema)


def digest(model: nn.Module, ema: EMA) -> str:
    tensors = [*model.state_dict().values(), *ema.shadow_params]
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()


def _refuse(words: str) -> None:
    print(f"said: {words}", file=sys.stderr)
    os._exit(9)  # nothing may be damaged, so there is nothing to say


def live(folder: Path, at: int, steps: int = STEPS) -> tuple[int, dict[int, str]]:
    """One life of the loop in a process of its own, killed at call number `at` to the disk: how it ended, and what it
    had reported as saved."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _write(writing, steps, train(folder, DeadlyDisk(at), partial(_write, writing), steps))
            os._exit(0)
        finally:
            os._exit(8)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        lines = [line.split() for line in pipe.read().splitlines()]
    return os.waitpid(child, 0)[1], {int(step): mark for step, mark in lines}


def _write(descriptor: int, step: int, mark: str) -> None:
    os.write(descriptor, f"{step} {mark}\n".encode())


def torment(folder: Path, moments: list[int], steps: int = STEPS) -> list[str]:
    """Kills at each of these calls, in lives that continue each other, and from the start again where one came to its
    end. What is wrong, in words."""
    marks: dict[int, str] = {}
    last = train(folder / "whole", DeadlyDisk(NEVER), marks.__setitem__, steps)
    wrong, number, saved, left = list[str](), 0, 0, list(reversed(moments))
    while left:
        ended, reported = live(folder / f"killed-{number}", left[-1], steps)
        at = f"kill at call {left[-1]}"
        if reported and min(reported) <= saved < steps:
            wrong.append(f"{at}: step {saved} was saved, and it went on with {min(reported)}")
        wrong += [f"{at}: other weights at {step}" for step, mark in reported.items() if mark != marks[step]]
        saved = max([saved, *reported])
        if ended == 0:
            number, saved = number + 1, 0
            continue
        left.pop()
        if ended != signal.SIGKILL:
            wrong.append(f"{at}: ended with {ended}")
    if live(folder / f"killed-{number}", NEVER, steps)[1].get(steps) != last:
        wrong.append("other weights at the end, or none")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    moments = random.Random(given.seed).choices(range(1, 400), k=given.kills)
    with tempfile.TemporaryDirectory() as folder:
        wrong = torment(Path(folder), moments)
    print(f"{given.kills} kills, {len(wrong)} times something was lost or other", *wrong[:10], sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
