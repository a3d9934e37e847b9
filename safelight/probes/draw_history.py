"""Noise, timesteps, images and labels over many steps: what repeats, and what never comes."""

from __future__ import annotations

import functools
import itertools
from collections import Counter, deque

import numpy as np
import torch
from torch import Tensor

from safelight import checks
from safelight.probes.forward_pass import ForwardPass

MAX_FINGERPRINTS = 4096  # steps whose fingerprints are kept
PLACES = 64  # parts of the range of timesteps
COUNTED_FIRST, COUNTED_LATER = 16, 4  # steps between two readings of the counts, at first and later
RECENT = 8  # steps


def fingerprints(micro_batch: ForwardPass) -> dict[str, Tensor]:
    """A number for each sample that no other has by chance; small vectors on the device."""
    found: dict[str, Tensor] = {}
    for name, values in (("noise", micro_batch.noise), ("images", micro_batch.x0)):
        if values is not None and values.dim() > 1 and values.numel():
            found[name] = values.detach().flatten(1).float() @ _weights(values[0].numel(), values.device)
    if (t := micro_batch.times) is not None and t.dim() == 1:
        found["times"] = t.detach().double() if t.device.type != "mps" else t.detach().float()
    if (labels := micro_batch.labels) is not None and labels.dim() == 1:
        found["labels"] = labels.detach().float()
    shown = None if micro_batch.call is None else micro_batch.call.labels
    if shown is not None and not shown.is_floating_point():
        found["shown_labels"] = shown.detach().float()
    return found


@functools.lru_cache(maxsize=4)
def _weights(count: int, device: torch.device) -> Tensor:
    """So that flipped images differ."""
    return torch.linspace(0.5, 1.5, count, device=device)


class DrawHistory:
    """Remembers what was drawn; fed on the host, in the order of the steps."""

    def __init__(self, timesteps: int | None) -> None:
        self._timesteps = timesteps
        self._hashes: dict[str, set[int]] = {}
        self._last: dict[str, np.ndarray] = {}
        self._images: set[float] = set()
        self._images_drawn = 0
        self._looked_images, self._looked_steps = 0, 0  # however many are remembered
        self._places_drawn = np.zeros(PLACES, np.int64)
        self._lowest, self._highest = np.inf, -np.inf
        self._different_times: set[float] = set()
        self._times_drawn, self._all_times = 0, 0
        self._is_noised = False  # whether the loop passes its noise: then a time is that of a noise level
        self._labels: Counter[int] = Counter()
        self._shown: set[int] = set()
        self._recent: deque[tuple[int, int, frozenset[int]]] = deque(maxlen=RECENT)  # hidden, compared, shown
        self._pairs = self._equal_pairs = 0
        self._steps = 0

    def add_step(self, **vectors: np.ndarray) -> dict[str, float]:
        """Repeats as they come, and now and then the counts."""
        readings: dict[str, float] = {}
        for name in ("noise", "images"):
            if name in vectors:
                last, self._last[name] = self._last.get(name), vectors[name]
                readings[checks.STREAM_AGAIN[name]] = self._is_repeated(name, vectors[name])
                readings[checks.STREAM_ALIKE[name]] = float(last is not None and np.array_equal(last, vectors[name]))
        if "images" in vectors:
            self._add_images(vectors["images"])
        if "times" in vectors:
            self._is_noised |= "noise" in vectors
            readings |= self._add_times(vectors["times"])
        shown = vectors.get("shown_labels")
        if (labels := vectors.get("labels", shown)) is not None:
            self._add_labels(labels, shown)
        self._steps += 1
        every = COUNTED_FIRST if self._steps <= 4 * COUNTED_FIRST else COUNTED_LATER
        if self._steps & (self._steps - 1) == 0 or self._steps % every == 0:
            readings |= self._counts()
        return readings

    def _add_images(self, images: np.ndarray) -> None:
        self._looked_images += len(images)
        self._looked_steps += 1
        if len(self._images) < MAX_FINGERPRINTS:
            self._images.update(images.astype(np.float32).tolist())
            self._images_drawn += len(images)

    def _is_repeated(self, name: str, values: np.ndarray) -> float:
        hashes, fingerprint = self._hashes.setdefault(name, set()), hash(values.astype(np.float32).tobytes())
        is_repeated = fingerprint in hashes
        if len(hashes) < MAX_FINGERPRINTS:
            hashes.add(fingerprint)
        return float(is_repeated)

    def _add_times(self, times: np.ndarray) -> dict[str, float]:
        readings: dict[str, float] = {}
        first = np.unique(times, return_index=True)[1]  # of each value: one for a batch that shares its timestep
        if len(times) > 3:  # one for the whole batch comes again by chance
            readings[checks.STREAM_TIMES_AGAIN] = 0.0 if len(first) == 1 else self._is_repeated("times", times)
            readings[checks.STREAM_TIMES_ALIKE] = float(len(first) == 1)
        self._lowest, self._highest = min(self._lowest, times.min()), max(self._highest, times.max())
        self._all_times += len(first)
        if self._timesteps is not None and np.array_equal(times, np.round(times)):  # not t in [0, 1]
            places = np.clip(times * PLACES // self._timesteps, 0, PLACES - 1).astype(np.int64)
            self._places_drawn += np.bincount(places[first], minlength=PLACES)
            if len(self._different_times) < MAX_FINGERPRINTS:
                self._different_times.update(times[first].tolist())
                self._times_drawn += len(first)
            if outside := float(((times < 0) | (times >= self._timesteps)).mean()):
                readings[checks.STREAM_TIMES_OUTSIDE] = outside
        return readings

    def _add_labels(self, labels: np.ndarray, shown: np.ndarray | None) -> None:
        self._labels.update(labels.astype(np.int64).tolist())
        if shown is not None:
            kinds = frozenset(shown.astype(np.int64).tolist())
            self._shown |= kinds
            same = shown.shape == labels.shape
            self._recent.append((int((shown != labels).sum()) if same else 0, len(labels) if same else 0, kinds))
        self._equal_pairs += int((labels[1:] == labels[:-1]).sum())
        self._pairs += max(0, len(labels) - 1)

    def _counts(self) -> dict[str, float]:
        readings: dict[str, float] = {}
        if self._timesteps is not None and (drawn := int(self._places_drawn.sum())):
            runs = itertools.groupby((self._places_drawn == 0).tolist())
            longest_gap = max((len(list(run)) for is_empty, run in runs if is_empty), default=0)
            uniform = self._timesteps * (1 - (1 - 1 / self._timesteps) ** self._times_drawn)  # as many uniform draws
            readings[checks.STREAM_TIMES_DRAWN] = float(drawn)
            readings[checks.STREAM_TIMES_GAP] = longest_gap / PLACES
            readings[checks.STREAM_TIMES_KINDS] = len(self._different_times) / uniform
        elif self._is_noised and self._all_times:
            readings[checks.STREAM_TIMES_DRAWN] = float(self._all_times)
        if checks.STREAM_TIMES_DRAWN in readings:
            readings[checks.STREAM_TIMES_HIGHEST] = float(self._highest)
            readings[checks.STREAM_TIMES_LOWEST] = float(self._lowest)
        if self._images_drawn:
            readings[checks.STREAM_DIFFERENT] = float(len(self._images))
            readings[checks.STREAM_DRAWN] = float(self._images_drawn)
            readings[checks.STREAM_PER_STEP] = self._looked_images / self._looked_steps
        if self._labels:
            counts = np.array(list(self._labels.values()), np.float64)
            readings[checks.STREAM_LABELS_KINDS] = float(len(counts))
            readings[checks.STREAM_LABELS_DRAWN] = float(counts.sum())
            readings[checks.STREAM_LABELS_NEIGHBOURS] = self._equal_pairs / max(1, self._pairs)
            readings[checks.STREAM_LABELS_NEIGHBOURS_EXPECTED] = float(((counts / counts.sum()) ** 2).sum())
            readings[checks.STREAM_LABELS_PAIRS] = float(self._pairs)
        if self._recent:
            hidden, compared, shown = zip(*self._recent, strict=True)
            if sum(compared):
                readings[checks.STREAM_LABELS_HIDDEN] = sum(hidden) / sum(compared)
            recent = frozenset[int]().union(*shown)
            readings[checks.STREAM_RECENT_KINDS] = float(len(recent))
            readings[checks.STREAM_RECENT_HIGHEST] = float(max(recent))
            readings[checks.STREAM_SHOWN_KINDS] = float(len(self._shown))
            readings[checks.STREAM_SHOWN_LOWEST] = float(min(self._shown))
            readings[checks.STREAM_SHOWN_HIGHEST] = float(max(self._shown))
        return readings
