"""The objectives of `--objective` against one another: distance of samples at equal steps and at equal processor time.

    python -m bench.objectives digits            # 5 objectives, 2 seeds; about 25 minutes of one core
    python -m bench.objectives fashion-mnist     # about an hour and a half

Every objective trains the same network from its own default recipe, and draws with the sampler that belongs to it.
Compared at equal time is the last checkpoint that a run had when the fastest one ended.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench.measure import write_table
from bench.recipe import BASES
from safelight.config.presets import OBJECTIVES
from safelight.config.resolve import resolve
from safelight.data.batches import scale
from safelight.data.prepare import open_images
from safelight.evaluate.fid import FID, FIDScore
from safelight.generate import Request, generate
from safelight.opened import load_model
from safelight.start import train
from safelight.terminal import Terminal
from safelight.training.step_reporter import StepSummary
from safelight.words import with_error

SAMPLES, SAMPLER_STEPS, CHECKPOINTS = 1024, 50, 20
STEPS = {"digits": 1000, "fashion-mnist": 1200}


@dataclass(slots=True)
class Trained:
    """A run that ended, and when each of its checkpoints was there."""

    objective: str
    seed: int
    path: Path
    seconds: dict[int, float] = field(default_factory=dict)  # processor time of training, by step


class Clock(Terminal):
    """Processor time after every step; what it draws or saves is in it, and the same for all."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.seconds = time.process_time(), dict[int, float]()

    def show(self, progress: StepSummary) -> None:
        self.seconds[progress.step] = time.process_time() - self.begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=STEPS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, help="shorter runs, to try the bench itself")
    given = parser.parse_args()
    steps = given.steps or STEPS[given.source]
    images = open_images(config_of(given.source, "v", 0, steps).data)
    fid = FID(torch.from_numpy(scale(images.pixels)))
    folder = Path(tempfile.mkdtemp())
    try:
        runs = [run(given.source, name, seed, steps, folder) for seed in range(given.seeds) for name in OBJECTIVES]
        rows = [
            row_of(name, [each for each in runs if each.objective == name], runs, steps, fid) for name in OBJECTIVES
        ]
    finally:
        shutil.rmtree(folder)
    write_table(
        f"objectives-{given.source}",
        f"The objectives on {given.source}",
        ("objective", "sampler", f"FD-lite0 after {steps} steps, by seed", "at equal seconds, by seed", "seconds"),
        rows,
        (
            f"FD-lite0 of {SAMPLES} samples (EMA, {SAMPLER_STEPS} steps) against {len(images.pixels):,} training "
            "images, with its standard error; lower is better. Compare within this table only.",
            f"Seconds of the processor until step {steps}, median of the seeds. At equal seconds: the last of "
            f"{CHECKPOINTS} checkpoints that was there when the fastest run of all ended.",
        ),
    )


def config_of(source: str, objective: str, seed: int, steps: int) -> Any:
    every = max(1, steps // CHECKPOINTS)
    settings = {
        "train.seed": seed, "train.steps": steps, "sample.every": 0, "evaluate.every": 0, "train.preflight": "off",
        "checkpoint.every": every, "checkpoint.keep_every": every, "ema.snapshots": 0,
    }  # fmt: skip
    learning = {"optimizer.warmup": None} if source == "digits" else {}
    return resolve(preset="digits", settings=BASES[source] | settings | learning | OBJECTIVES[objective])


def run(source: str, objective: str, seed: int, steps: int, folder: Path) -> Trained:
    clock = Clock()
    path = folder / f"{objective}-{seed}"
    train(config_of(source, objective, seed, steps), run=path, terminal=clock)
    return Trained(objective, seed, path, clock.seconds)


def row_of(name: str, all_runs: Sequence[Trained], steps: int, fid: FID) -> tuple[str, ...]:
    runs = [each for each in all_runs if each.objective == name]
    limit = min(each.seconds[steps] for each in all_runs)
    every = max(1, steps // CHECKPOINTS)
    at_end, at_equal = list[FIDScore](), list[FIDScore]()
    for each in runs:
        in_time = max(step for step, seconds in each.seconds.items() if step % every == 0 and seconds <= limit * 1.001)
        at_end.append(score(each, steps, fid))
        at_equal.append(at_end[-1] if in_time == steps else score(each, in_time, fid))
    seconds = sorted(each.seconds[steps] for each in runs)[len(runs) // 2]
    sampler = load_model(runs[0].path).config.sample.sampler
    return name, sampler, listed(at_end), listed(at_equal), f"{seconds:.0f}"


def score(trained: Trained, step: int, fid: FID) -> FIDScore:
    loaded = load_model(trained.path, step=step)
    request = Request(SAMPLES, seed=1, sampler=loaded.config.sample.sampler, steps=SAMPLER_STEPS)
    fid.reset()
    return fid.add(generate(loaded.model, loaded.config, request)).compute()


def listed(scores: Sequence[FIDScore]) -> str:
    return ", ".join(with_error(each.value, each.error) for each in scores)


if __name__ == "__main__":
    main()
