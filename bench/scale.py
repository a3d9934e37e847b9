"""Images per second on one and two processes of one thread each, what exact mode costs, and what a checkpoint costs."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from bench.measure import Spread, ratios, speeds, spread, turns, write_table
from safelight.checkpoints.writer import Writer
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.data.prepare import open_images
from safelight.processes.group import ProcessGroup, join_group
from safelight.processes.reduction import Reduction
from safelight.training.build import Setup, build, infer_data_settings

PROCESSES = 2
EFFICIENCY, SAVE_SHARE, SAVE_EVERY = 0.9, 0.01, 60.0
CASES: dict[str, dict[str, Any]] = {
    "digits": {},
    "16px": {"data.image_size": 16, "model.widths": (32, 64, 96), "train.batch_size": 64},
    "wide": {"model.widths": (128, 256), "train.batch_size": 16},  # as many tensors, sixteen times as large
}
SAVED = "wide"  # also, for what a save costs: of the digits' tensors most are so small that the clone is not the cost
ONE, TWO, DDP = "one process", "two processes", "two processes, DDP's reduction"
ONE_EXACT, TWO_EXACT, SAME_PIECES = "one process, 8 shards", "two processes, 8 shards", "two processes, 2 shards"
APART = "two processes that exchange nothing"  # all that the machine can give
SHARDS = {ONE_EXACT: 8, TWO_EXACT: 8, SAME_PIECES: 2}
ALONE = (ONE, ONE_EXACT)


@dataclass(slots=True)
class Contender:
    """The same training in one of several ways."""

    parts: Setup
    step: int = 0
    own: list[float] = field(default_factory=list)  # seconds of work of this process, by block

    def train(self, steps: int) -> None:
        group = self.parts.stepper.group
        begun, waited = time.perf_counter(), group.seconds_waited
        for _ in range(steps):
            self.parts.stepper.step(self.parts.loader.load(self.step), self.step)
            self.step += 1
        self.own.append(time.perf_counter() - begun - group.seconds_waited + waited)


def configure(case: str, shards: int | None = None) -> Config:
    return resolve(preset="digits", settings=CASES[case] | {"train.threads": 1, "train.shards": shards})


def make(case: str, name: str, group: ProcessGroup) -> Contender:
    config = configure(case, SHARDS.get(name))
    images = open_images(config.data)
    parts = build(infer_data_settings(config, images), images, print, group=ProcessGroup() if name in ALONE else group)
    if name == DDP:
        # It takes the mean where a sum is wanted, which costs the same.
        parts.stepper.network, parts.stepper.reduction = DistributedDataParallel(parts.state.model), Reduction()
    if name == APART:
        parts.stepper.reduction, parts.stepper.group = Reduction(), ProcessGroup()
    return Contender(parts)


def race(case: str, group: ProcessGroup, block: int, rounds: int) -> tuple[dict[str, list[float]], list[float]]:
    """Seconds of every block by contender, and the work of the slower of two equal processes over that of the other."""
    field_of = {name: make(case, name, group) for name in (ONE, APART, TWO, DDP, ONE_EXACT, TWO_EXACT, SAME_PIECES)}
    for name, contender in field_of.items():
        if name not in ALONE or group.is_main:
            contender.train(2)
            contender.own.clear()
    seconds: dict[str, list[float]] = {name: [] for name in field_of}
    for name in turns([*field_of], rounds):
        group.broadcast(lambda: None)
        begun = time.perf_counter()
        if name not in ALONE or group.is_main:
            field_of[name].train(block)
        group.broadcast(lambda: None)  # the others stand idle until one process is done
        seconds[name].append(time.perf_counter() - begun)
    own = group.all_gather_object(field_of[TWO].own)
    return seconds, [max(pair) / min(pair) for pair in zip(*own, strict=True)]


@dataclass(frozen=True, slots=True)
class Saves:
    """What checkpoints cost a training of one process."""

    stall: Spread  # seconds that the training thread stands still
    clone: Spread  # seconds of cloning the same tensors, and nothing else
    ratio: Spread  # of the two, round by round
    whole: Spread  # seconds that a block of steps takes longer with a save in it
    megabytes: float


def measure_saves(case: str, rounds: int, seconds: float) -> Saves:
    contender = make(case, ONE, ProcessGroup())
    state = contender.parts.state
    contender.train(2)
    begun = time.perf_counter()
    contender.train(4)
    block = max(4, round(seconds / (time.perf_counter() - begun) * 4))  # long enough for a save to end within it
    stalls, clones, longer = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(Path(folder), last=2, every=0, say=print)
        for _ in range(rounds):
            tensors = [t for group in state.snapshot(reuse_buffer=True).tensors.values() for t in group.values()]
            plain = _timed(lambda: contender.train(block))  # and nothing of the tensors is in a cache any more
            clones.append(_timed(lambda tensors=tensors: [tensor.clone() for tensor in tensors]))
            contender.train(1)

            def save_and_train() -> None:
                stalls.append(_timed(lambda: writer.submit(state.snapshot(reuse_buffer=True), None)))
                contender.train(block)

            state.counters.step += 1
            longer.append(_timed(save_and_train) - plain)
            writer.wait()
        size = sum(path.stat().st_size for path in next(Path(folder).glob("step_*")).iterdir()) / 1e6
    return Saves(spread(stalls), spread(clones), ratios(clones, stalls), spread(longer), size)


def _timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def rows_of(case: str, seconds: dict[str, list[float]], block: int) -> list[list[str]]:
    config = configure(case)
    images = block * config.train.batch_size
    title = f"{case}: {config.data.image_size} px, widths {config.model.widths}, batch {config.train.batch_size}"
    rows = []
    for name, taken in seconds.items():
        against = ONE_EXACT if name == TWO_EXACT else ONE
        ideal = 1 if name in ALONE else PROCESSES
        ratio = ratios(taken, seconds[against])
        shown = Spread(*(each / ideal for each in (ratio.median, ratio.low, ratio.high))).show(".3f")
        rows.append([title, name, speeds(taken, images).show(".0f"), f"{shown} of {ideal} x {against}"])
    return rows


def run(rank: int, port: int, options: argparse.Namespace) -> int:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(PROCESSES), LOCAL_WORLD_SIZE=str(PROCESSES))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    rows: list[list[str]] = []
    pairs: list[float] = []
    efficiency: list[float] = []
    reached: list[Spread] = []
    with join_group(configure("digits").train) as group:
        for case in options.case:
            seconds, pair = race(case, group, options.block, options.rounds)
            rows += rows_of(case, seconds, options.block)
            pairs += pair
            efficiency.append(ratios(seconds[TWO], seconds[ONE]).median / PROCESSES)
            reached.append(ratios(seconds[TWO], seconds[APART]))
    if rank:
        return 0
    notes = [*NOTES, f"Of two equal processes, the slower one worked {spread(pairs).show('.3f')} times as long as the "
             f"other, at most {max(pairs):.3f} times."]  # fmt: skip
    notes += [f"Two processes reach {each.show('.3f')} of two that exchange nothing." for each in reached]
    notes.append(
        f"Load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; 2 would be ours."
    )
    shares: list[float] = []
    for case in dict.fromkeys((*options.case, SAVED)):
        saves = measure_saves(case, options.rounds, options.seconds)
        shares.append(saves.whole.median / SAVE_EVERY)
        notes.append(
            f"{case}: a checkpoint of {saves.megabytes:.1f} MB stops the training thread for "
            f"{saves.stall.median * 1e3:.1f} ms; a clone of its tensors takes {saves.clone.median * 1e3:.1f} ms: "
            f"{saves.ratio.show('.2f')} of it. The "
            f"steps beside it take {saves.whole.show('.3f')} s longer in all: {shares[-1]:.2%} of the time with one "
            f"every {SAVE_EVERY:.0f} s."
        )
    notes.append(
        f"Wanted: two processes at {EFFICIENCY} of the ideal (worst {min(efficiency):.3f}), a checkpoint a minute for "
        f"less than {SAVE_SHARE:.0%} (worst {max(shares):.2%})."
    )
    write_table("scale", "Several processes", ["model", "how", "images/s", "ratio"], rows, notes)
    return 0 if min(efficiency) >= EFFICIENCY and max(shares) < SAVE_SHARE else 1


NOTES = [
    "Median, with the quartiles over the blocks; ratios are taken within each round. All contenders take turns in the "
    "same two processes of one thread each; while one process works alone the other one stands idle.",
    "The whole batch is the same for one process and for two, which are measured against twice the speed of one.",
    "8 shards: each goes through the network by itself, so pieces are an eighth of the batch. 2 shards on two "
    "processes: the same pieces as without, so what is left is the exact reduction itself.",
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="+", choices=CASES, default=["digits"], help="which models to measure")
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each contender")
    parser.add_argument("--block", type=int, default=2, help="steps per block")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a block that a checkpoint falls into")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for case in (*options.case, SAVED):
        open_images(configure(case).data)  # cached before the fork
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    other = os.fork()
    if other == 0:
        os._exit(run(1, port, options))
    code = run(0, port, options)
    os.waitpid(other, 0)
    return code


if __name__ == "__main__":
    sys.exit(main())
