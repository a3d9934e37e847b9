"""Random windows and colours: within their range, another at every step, the same for every split of a batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from safelight.data.batches import Augmentation, Batches, ImageBatch
from safelight.data.images import Images


def images(count: int, channels: int = 3, labelled: bool = True) -> Images:
    pixels = np.random.default_rng(count).integers(0, 256, (count, 4, 4, channels), np.uint8)
    labels = np.arange(count) % 7 if labelled else None
    return Images(pixels, labels, tuple("abcdefg") if labelled else (), "")


def same(first: ImageBatch, second: ImageBatch) -> bool:
    assert first.labels is not None
    assert second.labels is not None
    return (
        torch.equal(first.images, second.images)
        and torch.equal(first.labels, second.labels)
        and np.array_equal(first.ids, second.ids)
    )


def test_windows_lie_inside_differ_and_split_with_the_batch() -> None:
    pixels = np.arange(6 * 6, dtype=np.uint8).reshape(1, 6, 6, 1).repeat(50, axis=0)  # every pixel tells its place
    source = Images(pixels, None, (), "")
    stream = Batches(source, seed=1, batch_size=50, views=Augmentation(side=4))
    corners, first = set(), set()
    for step in range(8):
        images = stream.rows(step, 0, 50).images
        assert images.shape == (50, 1, 4, 4)
        levels = torch.round((images + 1) * 127.5).long()
        corner = levels[:, 0, 0, 0]
        top, left = corner // 6, corner % 6
        expected = (top[:, None, None] + torch.arange(4)[:, None]) * 6 + left[:, None, None] + torch.arange(4)
        assert torch.equal(levels[:, 0], expected)
        corners |= set(zip(top.tolist(), left.tolist(), strict=True))
        first.add((int(top[0]), int(left[0])))
        assert torch.equal(images[20:], stream.rows(step, 20, 50).images)
    assert len(first) > 2, "one row sees another window at every step"
    assert corners == {(top, left) for top in range(3) for left in range(3)}


@pytest.mark.parametrize("channels", [1, 3])
def test_jitter_changes_colours_within_the_range(channels: int) -> None:
    source = images(64, channels)
    plain = Batches(source, seed=1, batch_size=64).rows(3, 0, 64)
    stream = Batches(source, seed=1, batch_size=64, views=Augmentation(jitter=0.3))
    changed = stream.rows(3, 0, 64)
    assert changed.images.dtype == torch.float32
    assert (changed.images.min(), changed.images.max()) >= (-1, -1)
    assert changed.images.abs().max() <= 1
    moved = (changed.images - plain.images).abs().mean(dim=(1, 2, 3))
    assert (moved > 0).all()
    assert moved.max() < 0.5
    assert torch.equal(changed.images[10:20], stream.rows(3, 10, 20).images)
    assert not torch.equal(changed.images, stream.rows(4, 0, 64).images)


def test_no_jitter_and_full_windows_leave_every_byte() -> None:
    source = images(30)
    plain = Batches(source, seed=1, batch_size=30).rows(2, 0, 30)
    assert same(plain, Batches(source, seed=1, batch_size=30, views=Augmentation(side=4, jitter=0.0)).rows(2, 0, 30))
