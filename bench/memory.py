"""The memory estimate against the peak of a real step, with and without gradient checkpointing."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import write_table

if TYPE_CHECKING:
    from safelight.train.build import Parts

CASES = {"digits": 128, "tiny": 64, "small": 8, "base": 2}  # images at a time: what a CPU can do in a minute
STEPS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("presets", nargs="*", default=list(CASES), help=", ".join(CASES))
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], arguments.measure[1] == "True")
        return
    rows = [row(preset, checkpointing) for preset in arguments.presets for checkpointing in (False, True)]
    write_table(
        "memory",
        "Estimated and measured memory of a training step",
        ("preset", "images", "gradient checkpointing", "activations (MB)", "estimate (MB)", "measured (MB)", "ratio"),
        rows,
        (
            "Estimate: the step of `safelight train`, traced on tensors without content (`safelight estimate`).",
            f"Measured: growth of the resident peak of a fresh process over {STEPS} real steps, after a step of a tiny "
            "model has loaded every library. Both without the images of a data set and without pictures.",
        ),
    )


def row(preset: str, checkpointing: bool) -> tuple[object, ...]:
    words = [sys.executable, "-m", "bench.memory", "--measure", preset, str(checkpointing)]
    found = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    estimated, measured, activations = (found[name] / 1e6 for name in ("estimated", "measured", "activations"))
    print(preset, checkpointing, found, file=sys.stderr, flush=True)
    ratio = f"{estimated / measured:.2f}"
    return (
        preset,
        CASES[preset],
        "yes" if checkpointing else "no",
        *(f"{v:,.0f}" for v in (activations, estimated, measured)),
        ratio,
    )


def measure(preset: str, checkpointing: bool) -> None:
    from safelight.config.resolve import resolve
    from safelight.estimate import parts_for, trace_step

    config = resolve(preset=preset, settings={"model.gradient_checkpointing": checkpointing, "train.precision": "fp32"})
    config = replace(config, train=replace(config.train, batch_size=CASES[preset], accumulate=1, device="cpu"))
    memory = trace_step(config, CASES[preset])
    warm = resolve(preset="digits", settings={"model.widths": 16, "model.attention": (), "train.batch_size": 2})
    step_real(parts_for(warm))
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    step_real(parts_for(config))
    peak = resident("VmHWM") - before
    print(json.dumps({"estimated": memory.peak, "measured": peak, "activations": memory.activations}))
    sys.stdout.flush()
    os._exit(0)


def step_real(parts: Parts) -> None:
    for step in range(STEPS):
        parts.stepper.take(parts.feed.take(step), step)


def resident(name: str) -> int:
    """Bytes, from /proc: the kernel's own count."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


if __name__ == "__main__":
    main()
