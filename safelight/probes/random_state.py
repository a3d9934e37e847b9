"""The random states of a process: taken, put back, and kept while foreign code is called beside a loop."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

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


def random_states() -> dict[str, Any]:
    """The states of Python, numpy and torch on every device, as JSON."""
    version, words, gauss = random.getstate()
    name, key, position, has_gauss, cached = np.random.get_state()
    return {
        "python": [version, _to_text(np.array(words, np.uint32)), gauss],
        "numpy": [name, _to_text(np.asarray(key, np.uint32)), int(position), int(has_gauss), float(cached)],
        "torch": _of_tensor(torch.get_rng_state()),
        "cuda": [_of_tensor(each) for each in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else [],
        "mps": _of_tensor(torch.mps.get_rng_state()) if torch.backends.mps.is_available() else None,
    }


def restore_random_states(states: Mapping[str, Any]) -> list[str]:
    """What could not be put back, in words. Raises ValueError or its like where `states` are none."""
    version, words, gauss = states["python"]
    name, key, position, has_gauss, cached = states["numpy"]
    python = version, tuple(_from_text(words).tolist()), gauss
    legacy = name, _from_text(key), position, has_gauss, cached
    host, cuda = _to_tensor(states["torch"]), [_to_tensor(each) for each in states["cuda"]]
    random.setstate(python)
    np.random.set_state(legacy)
    torch.set_rng_state(host)
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if len(cuda) == devices:
        torch.cuda.set_rng_state_all(cuda) if cuda else None
    if states["mps"] is not None and torch.backends.mps.is_available():
        torch.mps.set_rng_state(_to_tensor(states["mps"]))
    return [] if len(cuda) == devices else [f"random states of {len(cuda)} CUDA devices, as there are {devices} now"]


def _to_text(words: np.ndarray) -> str:
    return base64.b64encode(words.tobytes()).decode()


def _from_text(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text, validate=True), np.uint32).copy()


def _of_tensor(state: Tensor) -> str:
    return base64.b64encode(state.cpu().numpy().tobytes()).decode()


def _to_tensor(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text, validate=True)), dtype=torch.uint8)
