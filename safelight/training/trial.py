"""A pass that leaves no trace: forward and backward to see whether it fits and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from safelight.diffusion.inputs import Inputs
from safelight.training.step import Stepper

if TYPE_CHECKING:
    from safelight.training.build import Parts


def try_pass(stepper: Stepper, inputs: Sequence[Inputs]) -> None:
    """Gradients are dropped, and buffers that a forward pass moves (spectral norm, batch norm) are put back."""
    model = stepper.state.model
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        for micro in inputs:
            stepper.accumulate(micro.moved(stepper.engine.send), 0)
    finally:
        stepper.state.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


def seconds_per_step(parts: Parts) -> float:
    """Of the second pass: the first one also pays for what is loaded and tuned once."""
    inputs = parts.feed.prepare(parts.state.counters.step)
    try_pass(parts.stepper, inputs)
    start = time.perf_counter()
    try_pass(parts.stepper, inputs)
    if parts.engine.device.type == "cuda":
        torch.cuda.synchronize(parts.engine.device)
    return time.perf_counter() - start
