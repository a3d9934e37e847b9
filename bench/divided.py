"""Bytes that a process holds of a model whose weights are whole or divided, and what dividing them costs a step."""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

from bench.measure import ratios, turns, write_table
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.data.prepare import open_images
from safelight.model.unet import units_of
from safelight.processes.group import ProcessGroup, join_group
from safelight.training.build import Setup, build, infer_data_settings

COUNTS, HOWS = (1, 2, 4), ("whole", "divided")
KINDS = ("weights", "gradients", "moments", "averages")
MODEL = {"model.widths": (96, 192), "model.layers": 2, "train.batch_size": 16, "train.threads": 1}
ALLOWED = 1.1  # of the N-th part: rows do not always divide evenly


def configure(how: str) -> Config:
    return resolve(preset="digits", settings=MODEL | {"train.weights": how})


def make(how: str, group: ProcessGroup) -> Setup:
    config = configure(how)
    images = open_images(config.data)
    return build(infer_data_settings(config, images), images, print, group=group)


def train(parts: Setup, first: int, count: int) -> None:
    for step in range(first, first + count):
        parts.stepper.step(parts.loader.load(step), step)


def size(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of their own, without padding; counted and not measured, so the same every time."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def weigh(how: str, group: ProcessGroup) -> dict[str, Any]:
    """Of one process, after two steps."""
    start = psutil.Process().memory_info().rss
    parts = make(how, group)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # the model was whole on every process before it was divided
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    gathered = max(size(list(unit.parameters())) for unit in units_of(parts.state.model))  # of DTensors: whole sizes
    state, told = parts.state, dict[str, Any]()

    def see(*_: object) -> None:
        told["gradients"] = size([p.grad for _, p in state.weights.named_parameters if p.grad is not None])

    state.optimizer.register_step_pre_hook(see)
    train(parts, 0, 2)
    told["weights"] = size(list(state.weights.tensors().values()))
    told["moments"] = size([value for moments in state.optimizer.state.values() for value in moments.values()])
    told["averages"] = size([value for track in state.ema.shadows.values() for value in track])
    told["block"] = gathered if how == "divided" and group.size > 1 else 0
    told["peak"] = peak() - start
    return told


def peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def race(group: ProcessGroup, rounds: int) -> dict[str, list[float]]:
    """Seconds of blocks of two steps on the same processes."""
    parts = {how: make(how, group) for how in HOWS}
    for each in parts.values():
        train(each, 0, 1)
    seconds: dict[str, list[float]] = {how: [] for how in HOWS}
    for how in turns([*HOWS], rounds):
        group.broadcast(lambda: None)
        begun = time.perf_counter()
        train(parts[how], 1 + 2 * len(seconds[how]), 2)
        group.broadcast(lambda: None)
        seconds[how].append(time.perf_counter() - begun)
    return seconds


def launch(count: int, act: Callable[[ProcessGroup], Any]) -> list[Any]:
    """What each of so many forked processes found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(count):
            if not (child := os.fork()):
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count))
                os.environ.update(LOCAL_WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
                with join_group(configure("whole").train) as group:
                    Path(folder, str(rank)).write_text(json.dumps(act(group)))
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        return [json.loads(Path(folder, str(rank)).read_text()) for rank in range(count)]


def megabytes(number: float) -> str:
    return f"{number / 1e6:,.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each contender")
    options = parser.parse_args()
    torch.set_num_threads(1)
    open_images(configure("whole").data)
    for name in ("accelerate", "diffusers.models.unets.unet_2d", "safelight.processes.sharding"):
        importlib.import_module(name)  # before the fork, or every process would count it
    rows, shares, whole = list[list[str]](), list[float](), 0
    for count in COUNTS:
        for how in HOWS if count > 1 else HOWS[:1]:
            found = launch(count, lambda group, how=how: weigh(how, group))
            held = [sum(each[kind] for kind in KINDS) for each in found]
            most = found[held.index(max(held))]
            whole = max(held) if count == 1 else whole
            if how == "divided":
                shares.append(max(held) * count / whole)
            words = [str(count), how, *(megabytes(most[kind]) for kind in KINDS), megabytes(max(held))]
            part, block, top = max(held) / whole, most["block"], max(each["peak"] for each in found)
            rows.append([*words, f"{part:.3f}", megabytes(block) if block else "–", megabytes(top)])
    seconds = launch(2, lambda group: race(group, options.rounds))[0]
    slower = ratios(seconds["whole"], seconds["divided"])
    config = configure("whole")
    notes = [
        f"U-Net with widths {config.model.widths}, {config.model.layers} layers, {config.data.image_size} px, batch "
        f"{config.train.batch_size}, {len(config.ema.profiles)} averages. MB of the process that holds most; all but "
        "the last column are counted from the tensors and the same every time.",
        "Held between steps. In a pass the largest block is gathered besides, and while one is at work the next may be "
        "under way: at most two.",
        "Peak: of resident memory in two steps, above that before the model was built; with activations, and whatever "
        "the allocator keeps. Not in it: every process builds the model whole in host memory before it is divided.",
        f"A step of two processes takes {slower.show('.3f')} times as long divided as whole (gloo on one machine, "
        "small images: nearly all of it is traffic).",
        f"Wanted: every process holds at most {ALLOWED} of its N-th part (worst {max(shares):.3f}).",
    ]
    heads = ["processes", "weights are", *KINDS, "all", "of one process", "largest block", "peak"]
    write_table("divided", "Divided weights", heads, rows, notes)
    return 0 if max(shares) <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
