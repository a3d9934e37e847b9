"""Owns which images a step sees: every batch is a pure function of (seed, step, row)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import torch

from safelight.data.augment import jitter, windows
from safelight.data.images import Images
from safelight.keys import derive_seed


@dataclass(frozen=True, slots=True)
class ImageBatch:
    """Some rows of one step's batch, ready for the model."""

    images: torch.Tensor
    """float32 [n, channels, side, side] in [-1, 1]."""
    labels: torch.Tensor | None
    """int64 [n]."""
    ids: np.ndarray
    """int64 [n], dataset index of each row."""


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How an image is varied from epoch to epoch."""

    flip: bool = False
    side: int | None = None
    """Side of the window that is cut out at random; unset: the whole image."""
    jitter: float = 0.0


class Batches:
    """One pass over the set after another, cut into batches that run on across the end of an epoch."""

    def __init__(
        self,
        images: Images,
        *,
        seed: int,
        batch_size: int,
        views: Augmentation | None = None,
        ids: np.ndarray | None = None,
        balance: bool = False,
    ) -> None:
        """`ids`: the rows that are drawn from; unset: all. `balance`: every class equally often."""
        ids = np.arange(len(images)) if ids is None else ids
        self.count = len(ids)
        assert self.count > 0, "no images"
        assert batch_size > 0, f"batch_size is {batch_size}"
        assert images.pixels.dtype == np.uint8, f"pixels are {images.pixels.dtype}, not uint8"
        every_value = scale(np.arange(256, dtype=np.uint8).reshape(256, 1, 1, 1))
        assert (every_value.min(), every_value.max()) == (-1, 1), "the scale leaves [-1, 1]"
        self._images, self._seed, self._batch_size = images, seed, batch_size
        self._views = views or Augmentation()
        self._groups = _by_class(images, ids) if balance else [ids]  # of rows that are passed over in turn
        self._orders: OrderedDict[tuple[int, int], np.ndarray] = OrderedDict()
        # Of each group the current pass, the next, and as many more as one batch of a tiny set runs through.
        self._kept = sum(2 + batch_size // len(group) for group in self._groups)
        self._lock = threading.Lock()

    def drawn_from(self) -> np.ndarray:
        """Dataset indices that may be drawn."""
        return np.concatenate(self._groups)

    def ids(self, step: int, quarantined: frozenset[int] = frozenset()) -> np.ndarray:
        """Dataset index of each of the `batch_size` rows of this step; steps count from 0."""
        return self._draw(step, 0, self._batch_size, quarantined)

    def rows(self, step: int, start: int, stop: int, quarantined: frozenset[int] = frozenset()) -> ImageBatch:
        """Rows `start` to `stop` of this step's batch, whichever process or micro-batch needs them. `quarantined`:
        dataset indices that are not drawn; another row of the same group takes their place."""
        ids = self._draw(step, start, stop, quarantined)
        pixels = self._images.take(ids)
        if self._views.side is not None and self._views.side < pixels.shape[1]:
            pixels = windows(pixels, self._views.side, self._numbers("crop", step, start, stop)[:, :2])
        if self._views.flip:
            flipped = self._numbers("flip", step, start, stop)[:, 0] < 0.5
            pixels[flipped] = pixels[flipped, :, ::-1]
        scaled = scale(pixels)
        if self._views.jitter:
            scaled = jitter(scaled, self._views.jitter, self._numbers("jitter", step, start, stop)[:, :3])
        labels = None if self._images.labels is None else torch.from_numpy(self._images.labels[ids].astype(np.int64))
        return ImageBatch(torch.from_numpy(scaled), labels, ids)

    def epoch(self, step: int) -> float:
        """Passes over the data completed before this step."""
        return step * self._batch_size / self.count

    def _draw(self, step: int, start: int, stop: int, quarantined: frozenset[int]) -> np.ndarray:
        assert step >= 0, f"step {step}"
        assert 0 <= start <= stop <= self._batch_size, f"rows {start} to {stop} of {self._batch_size}"
        first, last = step * self._batch_size + start, step * self._batch_size + stop
        if len(self._groups) == 1 and not quarantined:
            group = self._groups[0]
            turn, offset = divmod(first, len(group))
            if offset + last - first <= len(group):  # all of one pass, as nearly always
                return group[self._order(0, turn)[offset : offset + last - first]]
        positions = np.arange(first, last)
        groups, places = self._groups_of(positions)
        ids = np.empty(len(positions), np.int64)
        for number in np.unique(groups):
            group, chosen = self._groups[number], np.flatnonzero(groups == number)
            passes, offsets = np.divmod(places[chosen], len(group))
            for turn in np.unique(passes):
                now = passes == turn
                ids[chosen[now]] = group[self._order(int(number), int(turn))[offsets[now]]]
        if quarantined:
            self._replace(ids, positions, groups, list(quarantined))
        return ids

    def _replace(self, ids: np.ndarray, positions: np.ndarray, groups: np.ndarray, quarantined: list[int]) -> None:
        """In place. The same in every process: a function of its place among all samples of the run."""
        for place in np.flatnonzero(np.isin(ids, quarantined)):
            healthy = np.setdiff1d(self._groups[groups[place]], quarantined)
            assert len(healthy), "every image of a group is in quarantine"
            word = _random_uint64(derive_seed(self._seed, "replacement"), int(positions[place]), 1)[0]
            ids[place] = healthy[int(word % np.uint64(len(healthy)))]

    def _groups_of(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(group, place in the endless row of passes over that group) of each position."""
        count = len(self._groups)
        if count == 1:
            return np.zeros(len(positions), np.int64), positions
        # Each round visits every class once, in an order of its own: no class may be tied to a row of the batch.
        rounds, turns = np.divmod(positions, count)
        if not len(rounds):
            return turns, rounds
        first, last = rounds[0], rounds[-1]
        width = -(-count // 4)  # blocks of four words
        words = _random_uint64(derive_seed(self._seed, "balance"), int(first) * width, int(last - first + 1) * width)
        orders = words.reshape(-1, width * 4)[:, :count].argsort(axis=1, kind="stable")
        return orders[rounds - first, turns], rounds

    def _order(self, group: int, turn: int) -> np.ndarray:
        with self._lock:  # held while drawing, so that two prefetch threads do not sort the same pass
            if (group, turn) in self._orders:
                self._orders.move_to_end((group, turn))
                return self._orders[group, turn]
            count = len(self._groups[group])
            where = (turn,) if len(self._groups) == 1 else (turn, group)
            # NumPy guarantees the raw stream of Philox, but not the result of permutation().
            words = _random_uint64(derive_seed(self._seed, "order", *where), 0, -(-count // 4))[:count]
            drawn = self._orders[group, turn] = np.argsort(words, kind="stable")
            if len(self._orders) > self._kept:
                self._orders.popitem(last=False)
            return drawn

    def _numbers(self, stream: str, step: int, start: int, stop: int) -> np.ndarray:
        """Four numbers in [0, 1) for each of these rows, by its place among all samples of the run."""
        words = _random_uint64(derive_seed(self._seed, stream), step * self._batch_size + start, stop - start)
        return (words >> np.uint64(11)).reshape(-1, 4) * 2.0**-53


def _by_class(images: Images, ids: np.ndarray) -> list[np.ndarray]:
    assert images.labels is not None, "balance needs labels"
    labels = np.asarray(images.labels)[ids]
    order = np.argsort(labels, kind="stable")
    return np.split(ids[order], np.flatnonzero(np.diff(labels[order])) + 1)


def scale(pixels: np.ndarray) -> np.ndarray:
    """uint8 [n, height, width, channels] to float32 [n, channels, height, width] by x / 127.5 - 1.

    In NumPy, because torch would start a pool of OpenMP threads for each prefetch thread that calls this.
    """
    count, height, width, channels = pixels.shape
    scaled = np.empty((count, channels, height, width), np.float32)
    # Without dtype, NumPy 1 divides bytes by a scalar in half precision.
    np.divide(pixels.transpose(0, 3, 1, 2), np.float32(127.5), out=scaled, dtype=np.float32)
    return np.subtract(scaled, np.float32(1), out=scaled)


def _random_uint64(philox_key: int, block: int, blocks: int) -> np.ndarray:
    """Words 4 * block to 4 * (block + blocks) of one stream: any part of it can be had without the rest."""
    return np.asarray(np.random.Philox(key=philox_key).advance(block).random_raw(4 * blocks), np.uint64)
