"""Runs under `--heal`: ill ones beside their healthy twins, and healthy ones that nobody may touch.

python -m gauntlet.healing                      # half an hour on two cores
python -m gauntlet.healing --seeds 1 --healthy 6
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gauntlet import injections
from gauntlet.score import wilson
from safelight import start
from safelight.checkpoints.folder import steps
from safelight.checkpoints.reader import load
from safelight.config.resolve import resolve
from safelight.errors import SafelightError
from safelight.record.reading import read_signal
from safelight.terminal import Terminal

NEAR = 0.02  # of the healthy twin's loss on the fixed set
STEPS = 160
RUN: dict[str, Any] = {
    "model.widths": "16", "model.norm_groups": 8, "model.attention": "", "model.conditional": False, "model.layers": 1,
    "train.steps": STEPS, "train.batch_size": 8, "train.threads": 1, "train.preflight": "off", "checkpoint.every": 10,
    "sample.every": 1000, "sample.count": 4, "sample.steps": 3, "evaluate.every": 0, "ema.snapshots": 0,
    "optimizer.lr": 1e-2, "heal.enabled": True,
}  # fmt: skip
Fault = Callable[[pytest.MonkeyPatch], object]


@dataclass(frozen=True, slots=True)
class Illness:
    """What is done to a run that its doctor can mend."""

    name: str
    inflict: Fault
    act: str
    settings: dict[str, Any] = field(default_factory=dict)


ILLNESSES = (
    Illness("two images of NaN", lambda m: injections.spoil_images(m, [17, 901]), "quarantine"),
    Illness("a batch of NaN images", lambda m: injections.spoil_images(m, range(40, 44)), "quarantine"),
    Illness("two flipped bits", lambda m: injections.disturb_gradient(m, [25, 111], 1e6), "redo"),
    Illness("a NaN that does not come again", lambda m: injections.disturb_gradient(m, [70], math.nan), "redo"),
    Illness("learning rate x 100", lambda m: injections.raise_rate(m, 100), "lower-rate"),
    Illness("learning rate x 1,000", lambda m: injections.raise_rate(m, 1000), "lower-rate"),
    Illness("learning rate x 300 from step 60", lambda m: injections.raise_rate(m, 300, 60), "lower-rate"),
    Illness(
        "learning rate x 1e8, not clipped",
        lambda m: injections.raise_rate(m, 1e8),
        "lower-rate",
        {"clipping.kind": "none", "train.max_refused": 4},
    ),
    Illness(
        "overflows in fp16 from step 50",
        lambda m: injections.overflow(m, range(50, STEPS)),
        "change-precision",
        {"train.precision": "fp16"},
    ),
    Illness("memory for half of the batch", lambda m: injections.limit_memory(m, 4), "halve-batch"),
    Illness("memory for a quarter, from step 50", lambda m: injections.limit_memory(m, 2, 50), "halve-batch"),
    Illness(
        "evaluation mode from step 20",
        lambda m: injections.leave_train_mode(m, lambda step: step >= 20),
        "restore-mode",
        {"model.dropout": 0.3},
    ),
)

# Each healthy run draws one of every row.
CHOICES: dict[str, Sequence[Any]] = {
    "optimizer.lr": (1e-4, 1e-3, 3e-3, 1e-2),
    "optimizer.warmup": (0, 10, 40),
    "optimizer.floor": (0.05, 1.0),
    "train.batch_size": (2, 4, 8, 16),
    "train.accumulate": (1, 2),
    "train.precision": ("fp32", "fp32", "bf16", "fp16"),
    "diffusion.prediction": ("epsilon", "sample", "v_prediction"),
    "diffusion.loss": ("l2", "l1", "huber"),
    "diffusion.timestep_sampling": ("uniform", "stratified"),
    "clipping.kind": ("none", "fixed", "adaptive"),
    "model.dropout": (0.0, 0.3),
    "model.conditional": (False, True),
    "ema.kind": ("power", "exponential"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    name: str
    seed: int
    acts: tuple[str, ...]
    probe: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Planned:
    """One run to be made: with an illness, or without."""

    name: str
    seed: int
    settings: dict[str, Any]
    illness: int | None = None


def train_one(stay: Planned) -> Outcome:
    """Trains; in a process of its own, so that nothing that was patched outlives it."""
    torch.set_num_threads(1)
    config = resolve(preset="digits", settings=RUN | stay.settings | {"train.seed": stay.seed})
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if stay.illness is not None:
            ILLNESSES[stay.illness].inflict(patch)
        run = Path(folder) / "run"
        try:
            start.train(config, run=run, terminal=Terminal(quiet=True))
        except SafelightError as error:
            return Outcome(stay.name, stay.seed, (), math.nan, str(error))
        newest = load(run / "checkpoints" / f"step_{max(steps(run / 'checkpoints')):08d}")
        acts = tuple(act["kind"] for act in newest.state["journal"])
        return Outcome(stay.name, stay.seed, acts, read_signal(run / "record.sqlite", "probe/ema")[-1][1])


def healthy(count: int) -> list[Planned]:
    draw = np.random.default_rng(0)
    found = []
    for seed in range(count):
        settings = {name: values[int(draw.integers(len(values)))] for name, values in CHOICES.items()}
        words = ", ".join(f"{name.split('.')[1]} {value}" for name, value in settings.items())
        found.append(Planned(words, seed, settings))
    return found


def ill(seeds: int) -> list[Planned]:
    """Each illness after the twin that it is compared with."""
    return [
        Planned(each.name, seed, each.settings, illness)
        for seed in range(seeds)
        for place, each in enumerate(ILLNESSES)
        for illness in (None, place)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="of each illness")
    parser.add_argument("--healthy", type=int, default=300, help="recipes that are drawn")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--out", type=Path, default=Path("gauntlet/results"))
    given = parser.parse_args()
    stays = [*ill(given.seeds), *healthy(given.healthy)]
    with multiprocessing.get_context("fork").Pool(given.jobs, maxtasksperchild=4) as pool:
        found = []
        for outcome in pool.imap(train_one, stays, chunksize=1):
            found.append(outcome)
            print(f"[{len(found)}/{len(stays)}] {outcome}", file=sys.stderr, flush=True)
    sick = len(stays) - given.healthy
    table = letter(found[:sick], found[sick:], " ".join(["python -m gauntlet.healing", *sys.argv[1:]]))
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "heal.md").write_text(table)
    print(table)


def letter(sick: Sequence[Outcome], well: Sequence[Outcome], command: str) -> str:
    pairs = [*zip(sick[::2], sick[1::2], strict=True)]
    near = sum(is_mended(twin, run) for twin, run in pairs)
    touched = [run for run in well if run.acts or run.error]
    lines = ["# Healing", "", f"`{command}`: {len(pairs)} ill runs beside their twins, {len(well)} healthy ones.", ""]
    if pairs:
        low, high = wilson(near, len(pairs))
        lines += [
            f"Mended, with the probe loss of the averaged weights at most {NEAR:.0%} above the twin's: **{near} of "
            f"{len(pairs)}** ({near / len(pairs):.1%}, {low:.1%} to {high:.1%}).",
            "",
        ]
    if well:
        lines += [
            f"Healthy runs that something was done to: **{len(touched)} of {len(well)}** (95 % bound "
            f"{wilson(len(touched), len(well))[1]:.1%}).",
            "",
        ]
    lines += ["| illness | mended | difference of each seed | acts |", "|---|---|---|---|"]
    for illness in ILLNESSES:
        mine = [(twin, run) for twin, run in pairs if run.name == illness.name]
        if mine:
            apart = ", ".join(run.error[:60] or f"{run.probe / twin.probe - 1:+.2%}" for twin, run in mine)
            acts = ", ".join(str(len(run.acts)) for _, run in mine)
            good = sum(is_mended(*pair) for pair in mine)
            lines.append(f"| {illness.name} | {good} of {len(mine)} | {apart} | {illness.act}: {acts} |")
    lines += ["", *(f"- {run.name} (seed {run.seed}): {run.acts} {run.error}" for run in touched)]
    return "\n".join(lines).rstrip() + "\n"


def is_mended(twin: Outcome, run: Outcome) -> bool:
    return bool(run.acts) and not twin.acts and run.probe <= twin.probe * (1 + NEAR)


if __name__ == "__main__":
    main()
