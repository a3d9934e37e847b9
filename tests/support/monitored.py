"""A small network to be monitored, and the readings of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from safelight.monitors.reading_buffer import PendingReading, ReadingBuffer


class Kept:
    """A record in memory."""

    def __init__(self) -> None:
        self.readings: list[tuple[int, dict[str, float]]] = []

    def add(self, step: int, numbers: dict[str, float]) -> None:
        self.readings.append((step, dict(numbers)))


def finished(*pieces: PendingReading) -> dict[str, float]:
    buffer = ReadingBuffer(Kept())
    buffer.add(0, pieces, {})
    return buffer.flush()[0]


def monitored_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict({"first": nn.Linear(3, 5), "blocks": nn.ModuleList([nn.Linear(5, 5), nn.Linear(5, 2)])})


def random_gradients(model: nn.Module, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(p.shape, generator=generator) for p in model.parameters()]
