"""Owns which images a step sees: every batch is a pure function of (seed, step, row)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import torch

from safelight.data.sources import Images
from safelight.keys import key


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of one step's batch, ready for the model."""

    images: torch.Tensor
    """float32 [n, channels, side, side] in [-1, 1]."""
    labels: torch.Tensor | None
    """int64 [n]."""
    ids: np.ndarray
    """int64 [n], dataset index of each row."""


@dataclass(frozen=True, slots=True)
class _Epoch:
    order: np.ndarray
    flipped: np.ndarray | None
    """bool [n], by dataset index."""


class Batches:
    """One permutation of the set after another, cut into batches that run on across the end of an epoch."""

    def __init__(self, images: Images, *, seed: int, batch_size: int, flip: bool) -> None:
        assert len(images.pixels) > 0, "no images"
        assert batch_size > 0, f"batch_size is {batch_size}"
        assert images.pixels.dtype == np.uint8, f"pixels are {images.pixels.dtype}, not uint8"
        every_value = scale(np.arange(256, dtype=np.uint8).reshape(256, 1, 1, 1))
        assert (every_value.min(), every_value.max()) == (-1, 1), "the scale leaves [-1, 1]"
        self._images = images
        self._seed = seed
        self._batch_size = batch_size
        self._flip = flip
        self._epochs: OrderedDict[int, _Epoch] = OrderedDict()
        # The current epoch, the next, and as many more as one batch of a tiny set runs through.
        self._kept = 2 + batch_size // len(images.pixels)
        self._lock = threading.Lock()

    def ids(self, step: int) -> np.ndarray:
        """Dataset index of each of the `batch_size` rows of this step; steps count from 0."""
        return self._draw(step, 0, self._batch_size)[0]

    def rows(self, step: int, start: int, stop: int) -> Rows:
        """Rows `start` to `stop` of this step's batch, whichever process or micro-batch asks for them."""
        ids, flipped = self._draw(step, start, stop)
        pixels = self._images.pixels.take(ids, axis=0)
        if flipped is not None:
            pixels[flipped] = pixels[flipped, :, ::-1]
        labels = None if self._images.labels is None else torch.from_numpy(self._images.labels.take(ids))
        return Rows(torch.from_numpy(scale(pixels)), labels, ids)

    def epoch(self, step: int) -> float:
        """Passes over the data completed before this step."""
        return step * self._batch_size / len(self._images.pixels)

    def _draw(self, step: int, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
        assert step >= 0, f"step {step}"
        assert 0 <= start <= stop <= self._batch_size, f"rows {start} to {stop} of {self._batch_size}"
        position, end = step * self._batch_size + start, step * self._batch_size + stop
        count = len(self._images.pixels)
        ids = np.empty(stop - start, np.int64)
        flipped = np.empty(stop - start, np.bool_) if self._flip else None
        filled = 0
        while position < end:
            number, offset = divmod(position, count)
            length = min(count - offset, end - position)
            epoch = self._epoch(number)
            piece = slice(filled, filled + length)
            ids[piece] = epoch.order[offset : offset + length]
            if flipped is not None and epoch.flipped is not None:
                flipped[piece] = epoch.flipped[ids[piece]]
            position, filled = position + length, filled + length
        return ids, flipped

    def _epoch(self, number: int) -> _Epoch:
        with self._lock:  # held while drawing, so that two prefetch threads do not sort the same epoch
            if number in self._epochs:
                self._epochs.move_to_end(number)
                return self._epochs[number]
            drawn = self._epochs[number] = self._draw_epoch(number)
            if len(self._epochs) > self._kept:
                self._epochs.popitem(last=False)
            return drawn

    def _draw_epoch(self, number: int) -> _Epoch:
        # NumPy promises the raw stream of Philox for ever, but not what permutation() makes of it.
        count = len(self._images.pixels)
        order = np.argsort(_raw(key(self._seed, "order", number), count), kind="stable")
        flipped = _raw(key(self._seed, "flip", number), count) >> np.uint64(63) == 1 if self._flip else None
        return _Epoch(order, flipped)


def scale(pixels: np.ndarray) -> np.ndarray:
    """uint8 [n, height, width, channels] to float32 [n, channels, height, width] by x / 127.5 - 1.

    In NumPy, because torch would start a pool of OpenMP threads for each prefetch thread that calls this.
    """
    count, height, width, channels = pixels.shape
    scaled = np.empty((count, channels, height, width), np.float32)
    # Without dtype, NumPy 1 divides bytes by a scalar in half precision.
    np.divide(pixels.transpose(0, 3, 1, 2), np.float32(127.5), out=scaled, dtype=np.float32)
    return np.subtract(scaled, np.float32(1), out=scaled)


def _raw(philox_key: int, count: int) -> np.ndarray:
    return np.asarray(np.random.Philox(key=philox_key).random_raw(count), np.uint64)
