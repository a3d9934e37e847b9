"""The random state of a loop while foreign code is called beside it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

HOST = torch.device("cpu")


@contextmanager
def kept_random_state(device: torch.device = HOST) -> Iterator[None]:
    """What is drawn inside changes nothing of what is drawn afterwards: by Python, numpy, and torch on the host and on
    this device."""
    python, legacy = random.getstate(), np.random.get_state()
    devices = [] if device.type == "cpu" else [device]
    try:
        with torch.random.fork_rng(devices, device_type=None if device.type == "cpu" else device.type):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)
