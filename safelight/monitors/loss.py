"""The loss of every step: as it is, freed of the draw of its timesteps, and by noise level."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from safelight.monitors.pool import Piece
from safelight.vocabulary import LOSS, LOSS_AT_LEVEL, LOSS_WHITENED

LEVELS = 16  # noise levels that the loss is told for
BINS = 64  # finer ones, whose usual loss is remembered
MEMORY = 0.98  # of the usual loss, per visit of a bin
WINDOW = 64  # steps over which the loss by level is averaged: one cell of the record


class LossMonitor:
    """Levels are slices of equal probability, from little noise to much: every one is visited equally often."""

    def __init__(self, log_snr: np.ndarray, device: torch.device) -> None:
        """`log_snr` [timesteps], of each timestep."""
        order = np.argsort(-log_snr, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))  # 0: least noise
        self.edges = [float(log_snr[part[0]]) for part in np.array_split(order, LEVELS) if len(part)]
        self._level = torch.from_numpy(place * LEVELS // len(order)).to(device)
        self._bin = torch.from_numpy(place * BINS // len(order)).to(device)
        self._names = tuple(f"{LOSS_AT_LEVEL.name}/{level:02d}" for level in range(LEVELS))
        # What is remembered over steps; a checkpoint holds it.
        self.usual = torch.zeros(BINS, device=device)
        self.weight = torch.zeros(BINS, device=device)
        self.sums = torch.zeros(2, LEVELS, device=device)  # losses, visits

    @torch.no_grad()
    def look(self, step: int, loss: Tensor, t: Tensor) -> list[Piece]:
        """`loss` and `t` [n], of every sample of the step."""
        loss = loss.float()
        pieces = [
            Piece((LOSS.name, LOSS_WHITENED.name), torch.stack([loss.mean(), self._whitened(loss, self._bin[t])]))
        ]
        # A loss that is not finite is told by the mean of its step; here it would blank a level for 64 steps.
        finite = loss.isfinite()
        self.sums.index_add_(1, self._level[t], torch.stack([loss.where(finite, 0.0), finite.float()]))
        if (step + 1) % WINDOW == 0:
            pieces.append(Piece(self._names, self.sums.flatten(), _means))
            self.sums = torch.zeros_like(self.sums)
        return pieces

    def _whitened(self, loss: Tensor, bins: Tensor) -> Tensor:
        """Mean of loss over usual loss at the same noise level, 1 in a run that stands still.

        A bin that was never visited has no usual loss and does not count. A loss that is not finite shows in the result
        and is not remembered.
        """
        known = self.weight[bins] > 0
        usual = self.usual[bins] / self.weight[bins].clamp(min=1e-12)
        ratio = torch.where(known, loss / usual.clamp(min=1e-12), torch.zeros_like(loss))
        finite = loss.isfinite()
        hits = torch.zeros_like(self.usual).index_add_(0, bins, finite.float())
        total = torch.zeros_like(self.usual).index_add_(0, bins, torch.where(finite, loss, torch.zeros_like(loss)))
        fade = torch.where(hits > 0, MEMORY, 1.0)
        self.usual = self.usual * fade + (total / hits.clamp(min=1)) * (1 - fade)
        self.weight = self.weight * fade + (1 - fade)
        # At the first step nothing is known yet: 1, which is what a usual loss gives.
        count = known.sum()
        return torch.where(count > 0, ratio.sum() / count.clamp(min=1), torch.ones_like(usual[0]))

    def state(self) -> dict[str, Tensor]:
        return {"loss/usual": self.usual, "loss/weight": self.weight, "loss/sums": self.sums}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.usual.copy_(tensors["loss/usual"])
        self.weight.copy_(tensors["loss/weight"])
        self.sums.copy_(tensors["loss/sums"])


def _means(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total, visits = sums.reshape(2, -1)
    return total / np.maximum(visits, 1), visits > 0
