"""Memory: the traced peak against a real process, the batch that fits, and running out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from safelight.errors import OutOfMemory
from safelight.model import memory
from safelight.model.heap import settled_peak
from safelight.model.memory import (
    Memory,
    available_memory,
    find_accumulation,
    is_out_of_memory,
    largest_batch,
    traced,
)
from safelight.model.unet import build_unet, checkpoint_blocks, predict

# One U-Net that both sides build: what is traced, and what a process really does.
STEP = """
import torch
from safelight.config.tree import Model
from safelight.model.unet import build_unet, checkpoint_blocks, predict

def train(count, *, side=16, widths=(32, 64), checkpointing=False, steps=1, precision=None):
    model = Model(widths=widths, layers=1, attention=(side // 2,), head_width=16, norm_groups=8)
    unet = build_unet(model, image_size=side, channels=3, classes=0, seed=0)
    if checkpointing:
        checkpoint_blocks(unet)
    optimizer = torch.optim.AdamW(unet.parameters(), fused=True)
    for _ in range(steps):
        x0 = torch.zeros(count, 3, side, side)
        with torch.autocast("cpu", dtype=precision, enabled=precision is not None):
            answer = predict(unet, x0, torch.zeros(count, dtype=torch.long), None)
        (answer.float() - x0).square().flatten(1).mean(1).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        del x0, answer
        yield
"""
MEASURE = """
from pathlib import Path

def resident(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

torch.set_num_threads(1)
list(train(2, side=8, widths=(16, 32), steps=2))  # loads what torch loads only once
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
before = resident("VmRSS")
list(train(COUNT, checkpointing=CHECKPOINTING, steps=4))
print(resident("VmHWM") - before)
"""
scope: dict[str, Callable[..., object]] = {}
exec(STEP, scope)
CPU = torch.device("cpu")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def estimate(count: int, *, device: torch.device = CPU, **settings: object) -> int:
    with traced(device) as live:
        steps = iter(scope["train"](count, steps=2, **settings))  # type: ignore[call-overload]
        next(steps)
        live.peak = live.now
        next(steps)
        return live.peak


# --- against reality ------------------------------------------------------------------------------------------


@linux
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_traced_peak_is_that_of_a_real_process(checkpointing: bool) -> None:
    count = 96
    script = STEP + MEASURE.replace("COUNT", str(count)).replace("CHECKPOINTING", str(checkpointing))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    measured = int(done.stdout)
    assert estimate(count, checkpointing=checkpointing) == pytest.approx(measured, rel=0.15)
