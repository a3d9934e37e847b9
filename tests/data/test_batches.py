"""Batches are pure functions of (seed, step, row)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from safelight.data.batches import Batches, Rows, Views, scale
from safelight.data.images import Images


def images(count: int, channels: int = 3, labelled: bool = True) -> Images:
    pixels = np.random.default_rng(count).integers(0, 256, (count, 4, 4, channels), np.uint8)
    labels = np.arange(count) % 7 if labelled else None
    return Images(pixels, labels, tuple("abcdefg") if labelled else (), "")


def batches(count: int, batch_size: int, seed: int = 3, flip: bool = True) -> Batches:
    return Batches(images(count), seed=seed, batch_size=batch_size, views=Views(flip=flip))


def same(first: Rows, second: Rows) -> bool:
    assert first.labels is not None
    assert second.labels is not None
    return (
        torch.equal(first.images, second.images)
        and torch.equal(first.labels, second.labels)
        and np.array_equal(first.ids, second.ids)
    )


SIZES = [(10, 4), (10, 10), (10, 3), (3, 10), (1, 5), (97, 16)]


@pytest.mark.parametrize(("count", "batch_size"), SIZES)
def test_every_epoch_visits_every_image_once(count: int, batch_size: int) -> None:
    stream = batches(count, batch_size)
    steps = -(-6 * count // batch_size)
    ids = np.concatenate([stream.ids(step) for step in range(steps)])[: 6 * count].reshape(6, count)
    assert (np.sort(ids, axis=1) == np.arange(count)).all()
    if count > 5:
        assert len({epoch.tobytes() for epoch in ids}) == 6, "each epoch has its own order"


@pytest.mark.parametrize(("count", "batch_size"), SIZES)
def test_any_split_of_a_batch_gives_the_same_rows(count: int, batch_size: int) -> None:
    stream = batches(count, batch_size)
    for step in (0, 1, 5, 1000):
        whole = stream.rows(step, 0, batch_size)
        assert len(whole.ids) == len(whole.images) == batch_size
        assert np.array_equal(whole.ids, stream.ids(step))
        for middle in range(batch_size + 1):
            head, tail = stream.rows(step, 0, middle), stream.rows(step, middle, batch_size)
            assert head.labels is not None
            assert tail.labels is not None
            joined = Rows(
                torch.cat([head.images, tail.images]),
                torch.cat([head.labels, tail.labels]),
                np.concatenate([head.ids, tail.ids]),
            )
            assert same(whole, joined)


def test_random_access_equals_sequence_and_instances_agree() -> None:
    first, second = batches(23, 8), batches(23, 8)
    in_order = [first.rows(step, 0, 8) for step in range(40)]
    for step in np.random.default_rng(0).permutation(40):
        assert same(second.rows(int(step), 0, 8), in_order[step])


def test_threads_see_the_same_rows() -> None:
    alone, shared = batches(11, 8), batches(11, 8)
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda step: shared.rows(step, 0, 8), range(300)))
    assert all(same(alone.rows(step, 0, 8), rows) for step, rows in enumerate(together))
    assert len(shared._orders) <= 2


def test_seeds_differ() -> None:
    assert not np.array_equal(batches(50, 50, seed=1).ids(0), batches(50, 50, seed=2).ids(0))


def test_the_order_is_the_one_recorded() -> None:
    # Resuming a run on another machine or NumPy depends on these numbers never changing.
    assert batches(10, 10, seed=0).ids(0).tolist() == [6, 9, 5, 3, 7, 0, 1, 4, 2, 8]
    assert batches(10, 10, seed=0).ids(7).tolist() == [1, 4, 0, 2, 6, 3, 9, 7, 5, 8]


def test_rows_hold_the_images_they_name() -> None:
    source = images(9)
    assert source.labels is not None
    rows = Batches(source, seed=0, batch_size=9).rows(2, 0, 9)
    expected = source.pixels[rows.ids].transpose(0, 3, 1, 2).astype(np.float32) / np.float32(127.5) - np.float32(1)
    assert rows.images.dtype == torch.float32
    assert rows.images.is_contiguous()
    assert np.array_equal(rows.images.numpy(), expected)
    assert rows.labels is not None
    assert rows.labels.dtype == torch.int64
    assert rows.labels.tolist() == source.labels[rows.ids].tolist()
    assert rows.ids.dtype == np.int64
    assert Batches(images(9, labelled=False), seed=0, batch_size=4).rows(0, 0, 4).labels is None


def test_the_scale_is_exact_at_every_value() -> None:
    values = scale(np.arange(256, dtype=np.uint8).reshape(256, 1, 1, 1)).ravel()
    exact = np.arange(256) / 127.5 - 1
    assert (values[0], values[255]) == (-1, 1)
    assert np.abs(values - exact).max() <= 2**-24
    assert np.array_equal(np.rint((values + 1) * np.float32(127.5)), np.arange(256))


def test_flips_are_half_differ_between_epochs_and_leave_the_source_alone() -> None:
    source = images(400, channels=1)
    before = source.pixels.copy()
    stream = Batches(source, seed=5, batch_size=400, views=Views(flip=True))
    flipped = np.zeros((3, 400), bool)
    for epoch in range(3):
        rows = stream.rows(epoch, 0, 400)
        plain = torch.from_numpy(scale(source.pixels[rows.ids]))
        mirrored = (rows.images == plain.flip(3)).all(dim=(1, 2, 3))
        assert (mirrored | (rows.images == plain).all(dim=(1, 2, 3))).all()
        flipped[epoch, rows.ids] = mirrored.numpy()
    assert (abs(flipped.mean(axis=1) - 0.5) < 0.1).all()
    for first, second in ((0, 1), (1, 2), (0, 2)):
        assert abs((flipped[first] == flipped[second]).mean() - 0.5) < 0.1
    assert np.array_equal(source.pixels, before)


def test_epochs_are_counted_in_parts() -> None:
    stream = batches(10, 4)
    assert [stream.epoch(step) for step in (0, 1, 5, 10)] == [0, 0.4, 2, 4]


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 5)])
def test_rows_outside_the_batch_are_refused(start: int, stop: int) -> None:
    with pytest.raises(AssertionError):
        batches(10, 4).rows(0, start, stop)
