"""Compares the processes of a run every so often: the same weights, samples and noise of their own, and their speed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from safelight.config import Config
from safelight.data.batches import Batches
from safelight.observing.observer import StepResult
from safelight.observing.speed import Speedometer
from safelight.processes.group import ProcessGroup
from safelight.processes.local_weights import LocalWeights
from safelight.vocabulary import DRIFT, OVERLAP, PROCESS_SECONDS, SAME_NOISE, SLOWEST, WAITING

CHECK_INTERVAL = 64  # steps: reads all weights once, and sends a few numbers
MAX_NAMED_PROCESSES = 64  # processes that have a signal each
NANOSECONDS = 1e9
PART = 1 << 22  # numbers that are summed up at once: whole turns of their places


class ProcessCheck:
    """Called by all processes after the same steps; one gather each."""

    def __init__(
        self,
        config: Config,
        group: ProcessGroup,
        model: nn.Module,
        weights: LocalWeights,
        batches: Batches,
        speed: Speedometer,
    ) -> None:
        self._config, self._group, self._model, self._batches, self._speed = config, group, model, batches, speed
        self._is_sharded = weights.shard is not None  # then no two have the same weights to compare
        self._before = (0, 0.0, 0.0)  # step, seconds of all steps, seconds of waiting

    def check(self, view: StepResult, *, replaced: bool) -> dict[str, float]:
        """Readings of all processes; none if there is only one, or it is not time yet. `replaced`: whether some
        samples are in quarantine."""
        if self._group.size == 1 or view.step % CHECK_INTERVAL:
            return {}
        now, before = (view.step, self._speed.seconds, self._group.seconds_waited), self._before
        steps, seconds, waited = (a - b for a, b in zip(now, before, strict=True))
        self._before = now
        ids = [int(i) for micro in view.inputs for i in micro.ids]
        own = [int((seconds - waited) / max(1, steps) * NANOSECONDS), int(waited / max(1, steps) * NANOSECONDS)]
        weights = 0 if self._is_sharded else checksum(self._model)
        head = [weights, checksum_of(view.inputs[0].noise[:1]), *own]
        rows = self._group.all_gather(torch.tensor([*head, *ids], device=view.loss.device)).cpu().numpy()
        return self._readings(view.step, rows, replaced)

    def _readings(self, step: int, rows: np.ndarray, replaced: bool) -> dict[str, float]:
        weights, noise, own, waited = rows[:, :4].T
        readings = {} if self._is_sharded else {DRIFT.name: float((weights != weights[0]).sum())}
        readings[SAME_NOISE.name] = float(len(noise) - len(np.unique(noise)))
        if not replaced and self._each_once(step):
            readings[OVERLAP.name] = shared_by_processes(rows[:, 4:])
        if step:  # the first step also pays for what is loaded and tuned once
            readings[SLOWEST.name] = float(own.max() / max(1.0, float(np.median(own))))
            readings[WAITING.name] = float(waited.mean() / max(1.0, float((own + waited).mean())))
            for rank, each in enumerate(own[:MAX_NAMED_PROCESSES].tolist()):
                readings[f"{PROCESS_SECONDS.name}/{rank:02d}"] = each / NANOSECONDS
        return readings

    def _each_once(self, step: int) -> bool:
        """Whether no image may come twice in this step: it lies within one pass over all of them."""
        size, batches = self._config.train.batch_size, self._batches
        within = step * size // batches.count == ((step + 1) * size - 1) // batches.count
        return within and not self._config.data.balance


def shared_by_processes(ids: Sequence[np.ndarray] | np.ndarray) -> float:
    """The share of rows whose image another process has too; `ids` [rows] of each process."""
    kinds, counts = np.unique(np.concatenate([np.unique(row) for row in ids]), return_counts=True)
    return float(np.isin(np.concatenate(list(ids)), kinds[counts > 1]).mean())


def checksum(model: nn.Module) -> int:
    """A number for all weights: any other bit in one of them, or two that changed places, gives another number."""
    return checksum_of(*(parameter.detach() for parameter in model.parameters()))


@torch.no_grad()
def checksum_of(*tensors: Tensor) -> int:
    found = 0
    for number in torch.stack([_sum_of_bits(tensor) for tensor in tensors]).cpu().tolist():
        found = (found * 1_000_003 + number) % (1 << 62)
    return found


def _sum_of_bits(tensor: Tensor) -> Tensor:
    """Part by part: the numbers need eight times the room of half precision."""
    flat = tensor.detach().reshape(-1)
    return torch.stack([_sum_of_part(part) for part in flat.split(PART)]).sum()


def _sum_of_part(part: Tensor) -> Tensor:
    bits = part.float().contiguous().view(torch.int32).long()
    places = torch.arange(1, len(bits) + 1, device=bits.device) & 0xFFFF
    return (bits * places).sum()
