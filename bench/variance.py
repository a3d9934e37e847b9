"""By how much stratified timesteps and whitening calm the loss: two real runs, alike but for their timesteps.

python -m bench.variance               # two runs of the demo, about eight minutes
python -m bench.variance --steps 64    # to try it
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.measure import write_table
from safelight.config.resolve import resolve
from safelight.record.reading import read_signal
from safelight.start import train
from safelight.terminal import Terminal

SIGNALS = {"as it is": "loss/mean", "whitened": "loss/whitened"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    given = parser.parse_args()
    found: dict[tuple[str, str], float] = {}
    for kind in ("uniform", "stratified"):
        with tempfile.TemporaryDirectory() as folder:
            record = run(Path(folder) / "run", kind, given.steps)
            for name, signal in SIGNALS.items():
                numbers = np.array([value for _, value in read_signal(record, signal)])
                found[kind, name] = jitter(numbers[len(numbers) // 2 :])
    report(found, given.steps)


def run(folder: Path, kind: str, steps: int) -> Path:
    quiet = {"sample.every": 10**9, "sample.count": 1, "ema.snapshots": 0}
    config = resolve(preset="digits", settings={"diffusion.timestep_sampling": kind, "train.steps": steps} | quiet)
    train(config, run=folder, terminal=Terminal(quiet=True))
    return folder / "record.sqlite"


def jitter(numbers: np.ndarray) -> float:
    """Variance from step to step over the square of the mean; taken from differences, so that no trend counts."""
    return float(np.square(np.diff(numbers)).mean() / 2 / np.square(numbers.mean()))


def report(found: dict[tuple[str, str], float], steps: int) -> None:
    worst = found["uniform", "as it is"]
    rows: list[Sequence[object]] = [
        (kind, name, f"{np.sqrt(value):.2%}", f"{value / worst:.3f}", f"{worst / value:.1f}x")
        for (kind, name), value in found.items()
    ]
    write_table(
        "variance",
        "How much of the loss is the draw of its timesteps",
        (
            "timesteps",
            "loss",
            "deviation of a step, of its mean",
            "variance, of the first line",
            "fewer steps to see a change",
        ),
        rows,
        (
            f"The digits preset, {steps} steps, the later half of them; two runs with the same seed.",
            "Deviations are taken from differences of successive steps, so that the loss which falls does not count.",
            "A change of the loss is seen after a number of steps in proportion to the variance.",
        ),
    )


if __name__ == "__main__":
    main()
