"""How long a step takes: measured on a pass that leaves no trace."""

from __future__ import annotations

import time

import torch

from safelight.training.build import Parts, try_pass


def seconds_per_step(parts: Parts) -> float:
    """Of the second pass: the first one also pays for what is loaded and tuned once."""
    inputs = parts.feed.prepare(parts.state.counters.step)
    try_pass(parts.stepper, inputs)
    start = time.perf_counter()
    try_pass(parts.stepper, inputs)
    if parts.engine.device.type == "cuda":
        torch.cuda.synchronize(parts.engine.device)
    return time.perf_counter() - start
