"""The control of the whole idea: accelerate.save_state in the place of our checkpoints, under the same blows."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from torch import nn

from torture.scenario import Outcome, Scenario, Trial
from torture.scenarios.rot import flip

NOTHING, SILENT = "nothing can be loaded", "silently corrupt"
SIDE = 300


def prepare(folder: Path) -> tuple[Accelerator, nn.Module]:
    settings = ProjectConfiguration(project_dir=str(folder), automatic_checkpoint_naming=True, total_limit=1)
    accelerator = Accelerator(cpu=True, project_config=settings)
    model = nn.Linear(SIDE, SIDE)
    optimizer = torch.optim.AdamW(model.parameters())
    model, _ = accelerator.prepare(model, optimizer)
    return accelerator, model


def save_until_killed(folder: Path, report: int) -> None:
    """Step after step; each is reported once it is saved."""
    accelerator, model = prepare(folder)
    for step in range(1, 1000):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(float(step))
        accelerator.save_state()
        os.write(report, step.to_bytes(4, "little"))


def load_newest(folder: Path) -> list[float]:
    """The different numbers that the weights have: one, if all are of one step."""
    accelerator, model = prepare(folder / "elsewhere")
    saved = sorted((folder / "checkpoints").glob("checkpoint_*"), key=lambda path: int(path.name.rpartition("_")[2]))
    accelerator.load_state(str(saved[-1]))
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).unique().tolist()


def kill_while_saving(trial: Trial) -> Outcome:
    outcome = Outcome()
    for case in trial.cases:
        draw, folder = trial.draw(case), trial.folder / f"run-{case}"
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            _quietly(lambda folder=folder, writing=writing: save_until_killed(folder, writing))
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            first = pipe.read(4)
            time.sleep(draw.uniform(0.0, 0.05))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            reported = int.from_bytes((first + pipe.read())[-4:], "little")
        outcome.count += 1
        found = _found(folder)
        if found is None:
            outcome.lost.append((case, f"{NOTHING}, though step {reported} was saved"))
        elif found != [float(reported)] and found != [float(reported + 1)]:
            outcome.lost.append((case, f"{SILENT}: weights of {found[:3]}, step {reported} was saved"))
    return outcome


def flip_bits(trial: Trial) -> Outcome:
    outcome = Outcome()
    for case in trial.cases:
        draw, folder = trial.draw(case), trial.folder / f"run-{case}"
        child = os.fork()
        if not child:
            _quietly(lambda folder=folder: prepare_and_save(folder))
        os.waitpid(child, 0)
        (file,) = folder.glob("checkpoints/checkpoint_*/model.safetensors")
        deed = _flip_in(file, draw)
        outcome.count += 1
        found = _found(folder)
        if found is not None and found != [1.0]:
            outcome.lost.append((case, f"{SILENT}: {deed} in {file.name}, and it was loaded without a word"))
    return outcome


def prepare_and_save(folder: Path) -> None:
    accelerator, model = prepare(folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    accelerator.save_state()


def _flip_in(file: Path, draw: random.Random) -> str:
    content = bytearray(file.read_bytes())
    head = bytes(content[:1000])
    body = content[1000:]
    deed = flip(body, draw)
    file.write_bytes(head + bytes(body))
    return deed


def _found(folder: Path) -> list[float] | None:
    """What a resume would find, asked in a child; None if it fails."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _quietly(lambda: os.write(writing, " ".join(map(str, load_newest(folder)[:4])).encode()))
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        words = pipe.read().split()
    os.waitpid(child, 0)
    return [float(word) for word in words] or None


def _quietly(act: Callable[[], object]) -> NoReturn:
    """The life of a child."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        act()
    finally:
        os._exit(0)


KILLED = Scenario(
    "accelerate.save_state, killed",
    "accelerate saves instead of us, with room for one checkpoint: it deletes the old one first.",
    "kills", 10, 24, 12, 24, kill_while_saving, symptom=NOTHING,
)  # fmt: skip
ROTTEN = Scenario(
    "accelerate.save_state, bit rot",
    "A bit is flipped in the weights that accelerate saved: there is no checksum.",
    "changes", 5, 6, 2, 6, flip_bits, symptom=SILENT,
)  # fmt: skip
