"""The loss of every step: as it is, freed of the draw of its timesteps, and by noise level."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from safelight.vocabulary import (
    LOSS,
    LOSS_AT_LEVEL,
    LOSS_DEVIATION,
    LOSS_NORMALISED,
    LOSS_SMOOTH,
    RECENT,
    TIMESTEPS_OUTSIDE,
)

LEVELS = 16  # noise levels that have a loss of their own
BINS = 4 * LEVELS  # finer ones, whose usual loss is remembered
SMOOTHING_DECAY = 0.98  # of the usual loss, per step that draws from a bin
STEPS_PER_CELL = 64  # steps over which the loss by level is averaged: one cell of the record
TINY = 1e-12


def noise_levels(log_snr: np.ndarray, levels: int) -> np.ndarray:
    """The level of each timestep, 0 the least noise: slices of equal probability, so that every one is drawn equally
    often. `log_snr`, or anything that falls and rises with it."""
    place = np.empty(len(log_snr), np.int64)
    place[np.argsort(-log_snr, kind="stable")] = np.arange(len(log_snr))
    return place * levels // len(log_snr)


NoiseBinning = Callable[[np.ndarray], np.ndarray]
"""Gives each time its slice of the noise, 0 to BINS − 1 from the least, and −1 to what is not a time of the process."""


def noise_binning_of_table(log_snr: np.ndarray) -> NoiseBinning:
    """The bins of discrete time, by `log_snr` of each timestep."""
    slices = noise_levels(log_snr, BINS)

    def bin_of(t: np.ndarray) -> np.ndarray:
        places = t.astype(np.int64, copy=False)
        is_timestep = (places >= 0) & (places < len(slices))
        return np.where(is_timestep, slices[np.where(is_timestep, places, 0)], -1)

    return bin_of


def make_noise_binning(
    log_snr: Callable[[Tensor], Tensor], time_quantile: Callable[[Tensor], Tensor], timesteps: int | None
) -> NoiseBinning:
    """The bins of a process whose times have this density: the noise grows with continuous time."""
    if timesteps is not None:
        return noise_binning_of_table(log_snr(torch.arange(timesteps)).numpy())
    ends = time_quantile(torch.arange(BINS + 1, dtype=torch.float64) / BINS).double().numpy()

    def bin_of(t: np.ndarray) -> np.ndarray:
        is_time = np.isfinite(t) & (t >= 0)
        return np.where(is_time, np.searchsorted(ends[1:-1], np.where(is_time, t, 0.0), side="right"), -1)

    return bin_of


def noise_binning_of_draws(log_snr: Callable[[Tensor], Tensor], draws: np.ndarray) -> NoiseBinning:
    """The bins of a loop whose density is known by its draws only: slices of log-SNR that are drawn equally often."""
    drawn = -log_snr(torch.as_tensor(draws, dtype=torch.float64)).numpy()
    ends = np.quantile(drawn, np.arange(1, BINS) / BINS)

    def bin_of(t: np.ndarray) -> np.ndarray:
        is_time = np.isfinite(t)
        noise = -log_snr(torch.as_tensor(np.where(is_time, t, 0.5), dtype=torch.float64)).numpy()
        return np.where(is_time, np.searchsorted(ends, noise, side="right"), -1)

    return bin_of


class RecentLosses:
    """The losses of the last steps, each at its place: a step that is measured again replaces its first loss."""

    def __init__(self) -> None:
        # Losses, and 1 where they are known: a checkpoint holds finite numbers only.
        self.memory = np.zeros((2, RECENT))

    def measure(self, step: int, loss: float) -> dict[str, float]:
        self.memory[:, step % RECENT] = (loss, 1) if math.isfinite(loss) else (0, 0)
        recent = self.memory[0, self.memory[1] > 0]
        if not len(recent):
            return {LOSS.name: loss}
        smooth, deviation = float(recent.mean()), float(recent.std())
        return {LOSS.name: loss, LOSS_SMOOTH.name: smooth, LOSS_DEVIATION.name: deviation}


class LossMonitor:
    """Remembers the usual loss at each noise level."""

    def __init__(self, noise_binning: NoiseBinning) -> None:
        self._noise_binning = noise_binning
        self._names = [f"{LOSS_AT_LEVEL.name}/{level:02d}" for level in range(LEVELS)]
        # What is remembered over steps, for each bin; a checkpoint holds it.
        self._memory = {name: np.zeros(BINS) for name in ("usual", "weight", "sums", "visits")}
        self.usual, self.weight, self.sums, self.visits = self._memory.values()

    def measure(self, step: int, loss: np.ndarray, t: np.ndarray) -> dict[str, float]:
        """`loss` and `t` [n], of every sample of the step."""
        mean = float(loss.mean(dtype=np.float64))
        readings = {LOSS.name: mean}
        bins = self._noise_binning(t)
        is_binned = bins >= 0
        if not is_binned.all():  # counted, and left out of the levels
            readings[TIMESTEPS_OUTSIDE.name] = float((~is_binned).mean())
            loss, bins = loss[is_binned], bins[is_binned]
        if not math.isfinite(mean):  # reported by the mean of its step; remembered, it would blank all that follow
            finite = np.isfinite(loss)
            loss, bins = loss[finite], bins[finite]
        hits, totals = np.bincount(bins, minlength=BINS), np.bincount(bins, loss, BINS)
        readings[LOSS_NORMALISED.name] = self._whitened(hits, totals) if math.isfinite(mean) else mean
        self._remember(hits, totals)
        if (step + 1) % STEPS_PER_CELL == 0:
            readings |= self._levels()
        return readings

    def _whitened(self, hits: np.ndarray, totals: np.ndarray) -> float:
        """Mean of loss over usual loss at the same noise level; 1 in a run that stands still, and where nothing is
        known yet. A bin that was never drawn has no usual loss and does not count."""
        count = (hits * (self.weight > 0)).sum()
        if not count:
            return 1.0
        # usual / weight: free of the bias of a memory that began empty
        expected = np.maximum(self.usual, TINY) / np.maximum(self.weight, TINY)
        return float((totals / expected * (self.weight > 0)).sum() / count)

    def _remember(self, hits: np.ndarray, totals: np.ndarray) -> None:
        new = (hits > 0) * (1 - SMOOTHING_DECAY)
        self.usual += new * (totals / np.maximum(hits, 1) - self.usual)
        self.weight += new * (1 - self.weight)
        self.sums += totals
        self.visits += hits

    def _levels(self) -> dict[str, float]:
        """The means since the last time; a level that was not drawn has none."""
        sums, visits = (each.reshape(LEVELS, -1).sum(1) for each in (self.sums, self.visits))
        self.sums[:] = self.visits[:] = 0
        means = sums / np.maximum(visits, 1)
        return {name: mean for name, mean, count in zip(self._names, means.tolist(), visits, strict=True) if count}

    def state(self) -> dict[str, Tensor]:
        return {f"loss/{name}": torch.from_numpy(array.copy()) for name, array in self._memory.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name, array in self._memory.items():
            array[:] = tensors[f"loss/{name}"].double().numpy()
