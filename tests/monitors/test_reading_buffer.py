"""Readings come to the host once per window, in the order of the steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from monitored import Kept
from torch import Tensor

from safelight.monitors.reading_buffer import PendingReading, ReadingBuffer


def test_every_step_is_finished_in_order_with_its_own_numbers() -> None:
    record = Kept()
    buffer, order = ReadingBuffer(record), []

    def finish(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
        order.append(float(a[0]))
        return {"a": float(a[0]), "b": float(b.sum())}

    for step in range(5):
        buffer.add(step, [PendingReading((torch.tensor([step, math.nan]), torch.ones(2, 2)), finish)], {"lr": 0.5})
    assert order == []
    assert buffer.flush()[3] == {"a": 3, "b": 4, "lr": 0.5}
    assert order == [0, 1, 2, 3, 4]
    assert [step for step, _ in record.readings] == list(range(5))
    assert buffer.flush() == []


def test_a_device_is_read_once_per_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of another device are put together there and copied once; shown by a stand-in for such a device."""
    copies = []
    cpu = Tensor.cpu
    monkeypatch.setattr(Tensor, "cpu", lambda tensor: (copies.append(tensor.numel()), cpu(tensor))[1])
    monkeypatch.setattr(Tensor, "device", torch.device("cuda"), raising=False)
    buffer = ReadingBuffer(Kept())
    for step in range(4):
        buffer.add(
            step,
            [PendingReading((torch.full((2, 3), float(step)), torch.tensor([7])), lambda a, b: {"a": a.sum() + b[0]})],
            {},
        )
    assert [reading["a"] for reading in buffer.flush()] == [7, 13, 19, 25]
    assert copies == [28]
