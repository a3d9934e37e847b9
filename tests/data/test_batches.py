"""Batches are pure functions of (seed, step, row)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from safelight.data.batches import Augmentation, Batches, ImageBatch, scale
from safelight.data.images import Images


def images(count: int, channels: int = 3, labelled: bool = True) -> Images:
    pixels = np.random.default_rng(count).integers(0, 256, (count, 4, 4, channels), np.uint8)
    labels = np.arange(count) % 7 if labelled else None
    return Images(pixels, labels, tuple("abcdefg") if labelled else (), "")


def batches(count: int, batch_size: int, seed: int = 3, flip: bool = True) -> Batches:
    return Batches(images(count), seed=seed, batch_size=batch_size, views=Augmentation(flip=flip))


def same(first: ImageBatch, second: ImageBatch) -> bool:
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
            joined = ImageBatch(
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
    stream = Batches(source, seed=5, batch_size=400, views=Augmentation(flip=True))
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


def uneven() -> Images:
    labels = np.repeat(np.arange(5), [1, 3, 10, 40, 46])
    pixels = np.random.default_rng(1).integers(0, 256, (100, 2, 2, 1), np.uint8)
    return Images(pixels, labels, tuple("abcde"), "")


def test_balance_draws_every_class_equally_often_and_every_image_in_turn() -> None:
    source = uneven()
    stream = Batches(source, seed=2, batch_size=20, balance=True)
    ids = np.stack([stream.ids(step) for step in range(200)])
    assert source.labels is not None
    labels = source.labels[ids]
    for batch in labels:
        assert np.bincount(batch, minlength=5).tolist() == [4] * 5
    for number in range(5):
        members, drawn = np.flatnonzero(source.labels == number), ids[labels == number]
        passes = drawn[: len(drawn) // len(members) * len(members)].reshape(-1, len(members))
        assert (np.sort(passes, axis=1) == members).all(), "each image once in every pass over its class"
    rows_of_class = [labels[:, row] for row in range(20)]
    assert all(len(set(row.tolist())) == 5 for row in rows_of_class), "no class is tied to a row of the batch"
    whole, parts = stream.rows(7, 0, 20), [stream.rows(7, a, b).ids for a, b in ((0, 3), (3, 11), (11, 20))]
    assert np.array_equal(whole.ids, np.concatenate(parts))


def test_balance_draws_otherwise_than_without_it() -> None:
    """The control: without it the largest class takes nearly half of every batch."""
    source = uneven()
    assert source.labels is not None
    drawn = np.concatenate([Batches(source, seed=2, batch_size=20).ids(step) for step in range(50)])
    assert np.bincount(source.labels[drawn])[4] > 400


def test_only_the_given_rows_are_drawn() -> None:
    source, ids = images(50), np.array([3, 8, 21, 30, 49])
    stream = Batches(source, seed=2, batch_size=5, ids=ids)
    for step in range(4):
        rows = stream.rows(step, 0, 5)
        assert sorted(rows.ids.tolist()) == ids.tolist()
        assert torch.equal(rows.images, torch.from_numpy(scale(source.pixels[rows.ids])))
    assert stream.epoch(3) == 3
    balanced = Batches(source, seed=2, batch_size=70, ids=ids, balance=True)
    assert set(balanced.ids(0).tolist()) <= set(ids.tolist())
