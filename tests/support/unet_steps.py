"""A few training steps of a small U-Net: traced by test_memory.py, and really taken when this file is run."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from safelight.config.tree import Model
from safelight.model.unet import build_unet, checkpoint_blocks, predict


def steps(
    images: int,
    *,
    side: int = 16,
    widths: tuple[int, ...] = (32, 64),
    checkpointing: bool = False,
    half: bool = False,
    last: bool = False,
) -> Iterator[None]:
    """For ever; `last`: in channels_last."""
    model = Model(widths=widths, layers=1, attention=(side // 2,), head_width=16, norm_groups=8)
    unet = build_unet(model, image_size=side, channels=3, classes=0, seed=0)
    if last:
        for parameter in unet.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    if checkpointing:
        checkpoint_blocks(unet)
    optimizer = torch.optim.AdamW(unet.parameters(), fused=True)
    while True:
        x0 = torch.zeros(images, 3, side, side)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            answer = predict(unet, x0, torch.zeros(images, dtype=torch.long), None)
        (answer.float() - x0).square().flatten(1).mean(1).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        del x0, answer
        yield


def resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


MMAP_THRESHOLD = -3  # of mallopt


def measure(images: int, settings: list[str]) -> int:
    """Growth of the resident peak over the state in which all libraries are loaded. With "mapped", every tensor is
    mapped by itself, and there are no holes in the heap: no two runs differ by 1 %."""
    if "mapped" in settings:
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 16384)
        settings = [setting for setting in settings if setting != "mapped"]
    take(steps(2, side=8, widths=(16, 32)), 2)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = resident("VmRSS")
    take(steps(images, **dict.fromkeys(settings, True)), 4)  # pyright: ignore[reportArgumentType]
    return resident("VmHWM") - before


def take(run: Iterator[None], count: int) -> None:
    for _ in range(count):
        next(run)


def measure_apart(images: int, settings: list[str]) -> int:
    """In a process of its own, forked after the imports: these take seconds."""
    out, into = os.pipe()
    if not (child := os.fork()):
        try:
            os.write(into, str(measure(images, settings)).encode())
        finally:
            os._exit(0)
    os.close(into)
    with open(out) as answer:
        found = answer.read()
    os.waitpid(child, 0)
    return int(found)


if __name__ == "__main__":
    torch.set_num_threads(1)  # before any operation: the threads of a pool do not survive a fork
    for words in sys.argv[2:]:
        print(measure_apart(int(sys.argv[1]), words.split()))
