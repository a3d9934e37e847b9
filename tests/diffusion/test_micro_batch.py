"""A micro-batch: moved whole to another device, and cut into its samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from safelight.diffusion.micro_batch import MicroBatch


def batch(*, labels: bool) -> MicroBatch:
    x0, noise = torch.arange(12.0).view(3, 1, 2, 2), -torch.arange(12.0).view(3, 1, 2, 2)
    return MicroBatch(8, np.array([5, 2, 9]), x0, noise, torch.tensor([10, 20, 30]),
                      torch.tensor([0, 1, 0]) if labels else None)  # fmt: skip


@pytest.mark.parametrize("labels", [True, False])
def test_every_tensor_is_moved(labels: bool) -> None:
    original = batch(labels=labels)
    moved = original.moved(lambda tensor: tensor.to("meta"))
    assert (moved.start, moved.ids is original.ids) == (8, True)
    tensors = [moved.x0, moved.noise, moved.t, *([moved.labels] if moved.labels is not None else [])]
    assert len(tensors) == 3 + labels
    assert all(tensor.is_meta for tensor in tensors)
    assert not original.x0.is_meta


@pytest.mark.parametrize("labels", [True, False])
def test_each_row_is_the_sample_at_its_place(labels: bool) -> None:
    original = batch(labels=labels)
    rows = list(original.rows())
    assert [row.start for row in rows] == [8, 9, 10]
    assert [row.ids.tolist() for row in rows] == [[5], [2], [9]]
    for name in ("x0", "noise", "t"):
        assert torch.equal(torch.cat([getattr(row, name) for row in rows]), getattr(original, name))
    assert [None if row.labels is None else row.labels.tolist() for row in rows] == (
        [[0], [1], [0]] if labels else [None] * 3
    )
