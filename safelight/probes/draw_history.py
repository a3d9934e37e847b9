"""Noise, timesteps, images and labels over many steps: what repeats, and what never comes."""

from __future__ import annotations

import functools
from collections import Counter, deque

import numpy as np
import torch
from torch import Tensor

from safelight import checks
from safelight.probes.forward_pass import ForwardPass

REMEMBERED = 4096  # steps whose fingerprints are kept
PLACES = 64  # parts of the range of timesteps
TOLD_EVERY, OFTEN = 16, 4  # looks between two readings of the counts, at first and later
RECENT = 8  # looks


def prints_of(micro_batch: ForwardPass) -> dict[str, Tensor]:
    """A number for each sample that no other has by chance; small vectors on the device."""
    found: dict[str, Tensor] = {}
    for name, values in (("noise", micro_batch.noise), ("images", micro_batch.x0)):
        if values is not None and values.dim() > 1 and values.numel():
            found[name] = values.detach().flatten(1).float() @ _weights(values[0].numel(), values.device)
    if (t := micro_batch.times) is not None and t.dim() == 1:
        found["times"] = t.detach().double() if t.device.type != "mps" else t.detach().float()
    if micro_batch.labels is not None and micro_batch.labels.dim() == 1:
        found["labels"] = micro_batch.labels.detach().float()
    call = micro_batch.call
    if call is not None and call.labels is not None and not call.labels.is_floating_point():
        found["seen_labels"] = call.labels.detach().float()
    return found


@functools.lru_cache(maxsize=4)
def _weights(count: int, device: torch.device) -> Tensor:
    """So that flipped images differ."""
    return torch.linspace(0.5, 1.5, count, device=device)


class DrawHistory:
    """Remembers what was drawn; fed on the host, in the order of the steps."""

    def __init__(self, timesteps: int | None) -> None:
        self._timesteps = timesteps
        self._seen: dict[str, set[int]] = {}
        self._drawn = np.zeros(PLACES, np.int64)
        self._lowest, self._highest = np.inf, -np.inf
        self._labels: Counter[int] = Counter()
        self._shown: Counter[int] = Counter()
        self._recent: deque[tuple[int, int, frozenset[int]]] = deque(maxlen=RECENT)  # hidden, compared, shown
        self._pairs = self._equal = 0
        self._last: dict[str, np.ndarray] = {}
        self._different: set[float] = set()
        self._kinds_of_time: set[float] = set()
        self._kinds_drawn = 0
        self._drawn_samples = 0
        self._steps = 0

    def look(self, **vectors: np.ndarray) -> dict[str, float]:
        """One step: repeats as they come, and now and then the counts."""
        told: dict[str, float] = {}
        for name in ("noise", "images"):
            if name in vectors:
                last, self._last[name] = self._last.get(name), vectors[name]
                told[checks.STREAM_AGAIN[name]] = self._again(name, vectors[name])
                told[checks.STREAM_ALIKE[name]] = float(last is not None and np.array_equal(last, vectors[name]))
        if "images" in vectors and len(self._different) < REMEMBERED:
            self._different.update(vectors["images"].astype(np.float32).tolist())
            self._drawn_samples += len(vectors["images"])
        if (times := vectors.get("times")) is not None:
            told |= self._look_at_times(times)
        if (labels := vectors.get("labels")) is not None:
            self._count_labels(labels, vectors.get("seen_labels"))
        elif (shown := vectors.get("seen_labels")) is not None:
            self._count_labels(shown, shown)
        self._steps += 1
        every = TOLD_EVERY if self._steps <= 4 * TOLD_EVERY else OFTEN
        if self._steps & (self._steps - 1) == 0 or self._steps % every == 0:
            told |= self._counts()
        return told

    def _again(self, name: str, values: np.ndarray) -> float:
        seen = self._seen.setdefault(name, set())
        mark = hash(values.astype(np.float32).tobytes())
        again = mark in seen
        if len(seen) < REMEMBERED:
            seen.add(mark)
        return float(again)

    def _look_at_times(self, times: np.ndarray) -> dict[str, float]:
        told: dict[str, float] = {}
        if len(times) > 3:
            one = len(np.unique(times)) == 1  # for the whole batch: such come again by chance
            told[checks.STREAM_TIMES_AGAIN] = 0.0 if one else self._again("times", times)
            told[checks.STREAM_TIMES_ALIKE] = float(one)
        self._lowest, self._highest = min(self._lowest, times.min()), max(self._highest, times.max())
        if self._timesteps is not None:
            places = np.clip(times * PLACES // self._timesteps, 0, PLACES - 1).astype(np.int64)
            different = np.unique(times, return_index=True)[1]  # one for a batch that shares its timestep
            self._drawn += np.bincount(places[different], minlength=PLACES)
            if len(self._kinds_of_time) < REMEMBERED:
                self._kinds_of_time.update(times[different].tolist())
                self._kinds_drawn += len(different)
            outside = float(((times < 0) | (times >= self._timesteps)).mean())
            if outside:
                told[checks.STREAM_TIMES_OUTSIDE] = outside
        return told

    def _count_labels(self, labels: np.ndarray, shown: np.ndarray | None) -> None:
        self._labels.update(labels.astype(np.int64).tolist())
        if shown is not None:
            seen = shown.astype(np.int64).tolist()
            self._shown.update(seen)
            same = shown.shape == labels.shape
            hidden = int((shown != labels).sum()) if same else 0
            self._recent.append((hidden, len(labels) if same else 0, frozenset(seen)))
        self._equal += int((labels[1:] == labels[:-1]).sum())
        self._pairs += max(0, len(labels) - 1)

    def _expected_kinds(self) -> float:
        """How many different timesteps as many uniform draws would have found."""
        assert self._timesteps is not None
        return self._timesteps * (1 - (1 - 1 / self._timesteps) ** self._kinds_drawn)

    def _counts(self) -> dict[str, float]:
        told: dict[str, float] = {}
        drawn = int(self._drawn.sum())
        if drawn:
            told[checks.STREAM_TIMES_DRAWN] = float(drawn)
            told[checks.STREAM_TIMES_GAP] = _longest_gap(self._drawn == 0) / PLACES
            told[checks.STREAM_TIMES_KINDS] = len(self._kinds_of_time) / self._expected_kinds()
            told[checks.STREAM_TIMES_HIGHEST] = float(self._highest)
            told[checks.STREAM_TIMES_LOWEST] = float(self._lowest)
        if self._drawn_samples:
            told[checks.STREAM_DIFFERENT] = float(len(self._different))
            told[checks.STREAM_DRAWN] = float(self._drawn_samples)
        if self._labels:
            counts = np.array(list(self._labels.values()), np.float64)
            shares = counts / counts.sum()
            told[checks.STREAM_LABELS_KINDS] = float(len(counts))
            told[checks.STREAM_LABELS_DRAWN] = float(counts.sum())
            told[checks.STREAM_LABELS_NEIGHBOURS] = self._equal / max(1, self._pairs)
            told[checks.STREAM_LABELS_NEIGHBOURS_EXPECTED] = float((shares**2).sum())
            told[checks.STREAM_LABELS_PAIRS] = float(self._pairs)
        if compared := sum(count for _, count, _ in self._recent):
            told[checks.STREAM_LABELS_HIDDEN] = sum(count for count, _, _ in self._recent) / compared
        if self._recent:
            recent = frozenset[int]().union(*(shown for _, _, shown in self._recent))
            told[checks.STREAM_RECENT_KINDS], told[checks.STREAM_RECENT_HIGHEST] = (
                float(len(recent)),
                float(max(recent)),
            )
        if self._shown:
            told[checks.STREAM_SHOWN_KINDS] = float(len(self._shown))
            told[checks.STREAM_SHOWN_LOWEST], told[checks.STREAM_SHOWN_HIGHEST] = map(
                float, (min(self._shown), max(self._shown))
            )
        return told


def _longest_gap(empty: np.ndarray) -> int:
    longest = run = 0
    for each in empty.tolist():
        run = run + 1 if each else 0
        longest = max(longest, run)
    return longest
