"""The memory estimate against the peak of a real step, with and without gradient checkpointing."""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import torch

from bench.measure import write_table

if TYPE_CHECKING:
    from safelight.config import Config
    from safelight.training.build import Setup

CASES = {"digits": 128, "tiny": 64, "small": 8, "base": 2}  # images at a time: what a CPU can do in minutes
STEPS = {"digits": 40, "tiny": 10, "small": 4, "base": 3}  # small tensors settle late, and large ones take long
WANTED = 0.15

NOTES = [
    "Estimate: the step of `safelight train`, traced on tensors without content (`safelight estimate`), fp32.",
    f"Measured: growth of the resident peak of a fresh process over real steps ({STEPS}), after steps of a tiny "
    "model have loaded every library. Both without the images of a data set and without pictures.",
    "Tensors alone: what the estimate would be without the copies that oneDNN makes around every convolution and "
    "without the holes that freed tensors leave in the C library's heap. The rest of the estimate is those two.",
    "Activations: kept from the forward pass for the backward pass.",
    "The holes depend on the order of thousands of small allocations: the same run measured twice differs by up to "
    "10 %, and the estimate can be no better than that.",
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("presets", nargs="*", default=list(CASES), help=", ".join(CASES))
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], arguments.measure[1] == "True")
        return 0
    results = [compare(preset, checkpointing) for preset in arguments.presets for checkpointing in (False, True)]
    columns = ["preset", "images", "gradient checkpointing", "activations (MB)", "tensors alone (MB)"]
    columns += ["estimate (MB)", "measured (MB)", "estimate / measured"]
    worst = max(abs(result.ratio - 1) for result in results)
    notes = [*NOTES, f"Wanted: at most {WANTED:.0%} off. Worst: {worst:.0%}."]
    write_table(
        "memory", "Estimated and measured memory of a training step", columns, [r.row() for r in results], notes
    )
    return 0 if worst <= WANTED else 1


@dataclass(frozen=True, slots=True)
class Result:
    preset: str
    checkpointing: bool
    activations: int
    tensors: int
    estimated: int
    measured: int

    @property
    def ratio(self) -> float:
        return self.estimated / self.measured

    def row(self) -> list[object]:
        sizes = (self.activations, self.tensors, self.estimated, self.measured)
        megabytes = [f"{size / 1e6:,.0f}" for size in sizes]
        return [self.preset, CASES[self.preset], "yes" if self.checkpointing else "no", *megabytes, f"{self.ratio:.2f}"]


def compare(preset: str, checkpointing: bool) -> Result:
    from safelight import requirements
    from safelight.model.memory import traced

    memory = requirements.trace_step(configure(preset, checkpointing), CASES[preset])
    with mock.patch.object(requirements, "traced", return_value=traced(torch.device("cuda"))):  # it has no such heap
        tensors = requirements.trace_step(configure(preset, checkpointing), CASES[preset]).peak
    # A process of its own: the trace, too, leaves holes in the heap.
    words = [sys.executable, "-m", "bench.memory", "--measure", preset, str(checkpointing)]
    measured = int(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    result = Result(preset, checkpointing, memory.activations, tensors, memory.peak, measured)
    print(*result.row(), file=sys.stderr, flush=True)
    return result


def configure(preset: str, checkpointing: bool) -> Config:
    from safelight.config.resolve import resolve

    settings = {"model.gradient_checkpointing": checkpointing, "train.precision": "fp32"}
    config = resolve(preset=preset, settings=settings)
    return replace(config, train=replace(config.train, batch_size=CASES[preset], accumulate=1, device="cpu"))


def measure(preset: str, checkpointing: bool) -> None:
    from safelight.config.resolve import resolve
    from safelight.requirements import parts_for

    warm = {"model.widths": (16, 32), "model.head_width": 16, "train.batch_size": 2}
    step_real(parts_for(resolve(preset="digits", settings=warm)), 2)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = resident("VmRSS")
    step_real(parts_for(configure(preset, checkpointing)), STEPS[preset])
    print(resident("VmHWM") - before, flush=True)


def step_real(parts: Setup, steps: int) -> None:
    for step in range(steps):
        parts.stepper.step(parts.loader.load(step), step)


def resident(name: str) -> int:
    """Bytes, from /proc: the kernel's own count."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


if __name__ == "__main__":
    sys.exit(main())
