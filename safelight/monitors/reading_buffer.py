"""Gathers what was measured on the device and brings it to the host once per window, in one copy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

DEVICE_WINDOW = 16  # steps: a copy from a device waits for all the work that is queued before it
HOST_SECONDS = 0.5  # a flush costs a cold start of its own, some 0.3 ms: not at every short step


@dataclass(frozen=True, slots=True)
class ShardReduction:
    """How a reading is put together where each process holds a piece of every parameter."""

    name: str
    count: int | None = None
    """How many of its tensors, from the first on, have a number for each parameter; None: all of them."""
    of_norms: bool = True
    """Norms are joined by their squares, other numbers are added."""
    also: tuple[str, ...] = ()
    """Names of rows that follow."""


@dataclass(frozen=True, slots=True)
class PendingReading:
    """Small vectors on the device, and what becomes of them on the host."""

    tensors: tuple[Tensor, ...]
    finish: Callable[..., Mapping[str, float]]
    """Given one array for each tensor: readings by name. Called once, in the order of the steps."""
    share: ShardReduction | None = None


class Receiver(Protocol):
    """Where readings go: the record."""

    def add(self, step: int, numbers: Mapping[str, float]) -> None: ...


class ReadingBuffer:
    """One step after another; nothing waits for the device until `flush`."""

    def __init__(self, receiver: Receiver, *, flush_by_time: bool = True) -> None:
        """`flush_by_time`: on the host a window may end when some time has passed; else all windows have as many steps,
        which several processes agree on without communicating."""
        self._receiver, self._on_host, self._flush_by_time = receiver, True, flush_by_time
        self._flushed = time.monotonic()
        self._steps: list[tuple[int, Sequence[PendingReading], Mapping[str, float]]] = []

    def add(self, step: int, pieces: Sequence[PendingReading], numbers: Mapping[str, float]) -> None:
        """`numbers` are known to the host already."""
        self._on_host = all(tensor.device.type == "cpu" for piece in pieces for tensor in piece.tensors)
        self._steps.append((step, pieces, numbers))

    @property
    def is_due(self) -> bool:
        """Whether a window is full."""
        if self._on_host and self._flush_by_time:
            return time.monotonic() - self._flushed >= HOST_SECONDS
        return len(self._steps) >= DEVICE_WINDOW

    def flush(self, count: int | None = None) -> list[dict[str, float]]:
        """The readings of every step since the last flush, or of the first `count` of them, by name; they are in the
        record now."""
        count = len(self._steps) if count is None else count
        steps, self._steps, self._flushed = self._steps[:count], self._steps[count:], time.monotonic()
        tensors = [tensor.detach() for _, pieces, _ in steps for piece in pieces for tensor in piece.tensors]
        arrays = iter(_on_host(tensors))
        flushed = []
        for step, pieces, numbers in steps:
            readings = dict(numbers)
            for piece in pieces:
                readings.update(piece.finish(*(next(arrays) for _ in piece.tensors)))
            self._receiver.add(step, readings)
            flushed.append(readings)
        return flushed


def _on_host(tensors: list[Tensor]) -> list[np.ndarray]:
    """In the order they came, with one copy from each device."""
    arrays: dict[int, np.ndarray] = {}
    by_device: dict[torch.device, list[int]] = {}
    for place, tensor in enumerate(tensors):
        if tensor.device.type != "cpu":
            by_device.setdefault(tensor.device, []).append(place)
        else:  # numpy knows no bfloat16
            arrays[place] = (tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor).numpy()
    for places in by_device.values():
        flat = torch.cat([tensors[place].reshape(-1).float() for place in places]).cpu().numpy()
        cuts = np.cumsum([tensors[place].numel() for place in places])[:-1]
        for place, part in zip(places, np.split(flat, cuts), strict=True):
            arrays[place] = part.reshape(tensors[place].shape)
    return [arrays[place] for place in range(len(tensors))]
