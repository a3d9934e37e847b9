"""Seconds of a step beside other programs, by how long the threads of a step spin while they wait for each other.

python -m bench.neighbours
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

from bench.measure import turns, write_table
from safelight.__main__ import SPINS, SPINS_VARIABLE
from tools.again import busy_loops

# What libgomp reads once, when torch is loaded: so each block is a process of its own.
WAITING: dict[str, dict[str, str]] = {
    "300,000 turns (libgomp's own)": {},
    f"{int(SPINS):,} turns (`safelight`'s)": {SPINS_VARIABLE: SPINS},
    "1,000 turns": {SPINS_VARIABLE: "1000"},
    "none (OMP_WAIT_POLICY=passive)": {"OMP_WAIT_POLICY": "passive"},
}
LOOPS = (0, 1, 2)


def measure(steps: int, threads: int) -> None:
    """Prints the seconds of each step of the digits preset's network, in this process."""
    import torch

    from bench.overhead import configure
    from safelight.config.resolve import resolve
    from safelight.data.prepare import open_images
    from safelight.training.build import infer_data_settings
    from safelight.training.network import build_model

    torch.set_num_threads(threads)
    config = resolve(base=configure("digits"), settings={"model.conditional": False})
    model = build_model(infer_data_settings(config, open_images(config.data)))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    images, times = torch.randn(config.train.batch_size, 1, 8, 8), torch.randint(0, 1000, (config.train.batch_size,))
    for step in range(steps + 2):
        begun = time.perf_counter()
        model(images, times).sample.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step >= 2:
            print(time.perf_counter() - begun)


def block(steps: int, threads: int, environment: dict[str, str]) -> list[float]:
    command = [sys.executable, "-m", "bench.neighbours", "--steps", str(steps), "--threads", str(threads), "--inside"]
    kept = {name: value for name, value in os.environ.items() if name not in (SPINS_VARIABLE, "OMP_WAIT_POLICY")}
    done = subprocess.run(command, env=kept | environment, capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        return measure(given.steps, given.threads)
    seconds: dict[tuple[str, int], list[float]] = {}
    for loops in LOOPS:
        with ExitStack() as stack:
            stack.enter_context(busy_loops(loops))
            for name in turns(list(WAITING), given.rounds):
                seconds.setdefault((name, loops), []).extend(block(given.steps, given.threads, WAITING[name]))
    middle = {key: statistics.median(found) for key, found in seconds.items()}
    quiet = middle[next(iter(WAITING)), 0]
    write_table(
        "neighbours",
        "A step beside other programs",
        ("while a thread waits", *(f"beside {loops} busy loops" if loops else "alone" for loops in LOOPS)),
        [(name, *(f"{middle[name, loops] / quiet:.2f}" for loops in LOOPS)) for name in WAITING],
        (
            f"Median seconds of a step over those of the first line alone, {1000 * quiet:.0f} ms: U-Net of the digits "
            f"preset, forward, backward and AdamW, {given.threads} threads, {given.rounds} blocks of {given.steps} "
            "steps in turns, each a process of its own.",
            "A step is the same to the byte whichever line: it only decides how threads wait for each other.",
        ),
    )
    return None


if __name__ == "__main__":
    main()
