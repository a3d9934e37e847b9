"""Gathers readings on the device and brings them to the host once per window, in one copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Piece:
    """Readings that lie in one vector on the device."""

    names: tuple[str, ...]
    numbers: Tensor
    """float32 [k]."""
    finish: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    """What is left to do on the host: the vector as it came to (one number per name, whether it exists)."""


class Receiver(Protocol):
    """Where readings go: the record."""

    def add(self, step: int, numbers: Mapping[str, float]) -> None: ...


class Pool:
    """One step after another; nothing waits for the device until `flush`."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._steps: list[tuple[int, Sequence[Piece], Mapping[str, float]]] = []

    def add(self, step: int, pieces: Sequence[Piece], numbers: Mapping[str, float]) -> None:
        """`numbers` are known to the host already."""
        self._steps.append((step, pieces, numbers))

    def flush(self) -> list[dict[str, float]]:
        """The readings of every step since the last flush, by name; they are in the record now."""
        steps, self._steps = self._steps, []
        vectors = [piece.numbers for _, pieces, _ in steps for piece in pieces]
        if not steps:
            return []
        flat = torch.cat(vectors).to("cpu").numpy() if vectors else np.empty(0, np.float32)
        found, start = [], 0
        for step, pieces, numbers in steps:
            told = dict(numbers)
            for piece in pieces:
                stop = start + piece.numbers.numel()
                told.update(_named(piece, flat[start:stop]))
                start = stop
            self._receiver.add(step, told)
            found.append(told)
        return found


def _named(piece: Piece, numbers: np.ndarray) -> dict[str, float]:
    if piece.finish is None:
        return dict(zip(piece.names, numbers.tolist(), strict=True))
    values, present = piece.finish(numbers)
    return {name: v for name, v, here in zip(piece.names, values.tolist(), present.tolist(), strict=True) if here}
