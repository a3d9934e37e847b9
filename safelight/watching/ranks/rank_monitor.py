"""What one process tells of an update, so that the first can compare all: a few sums and samples, no tensor of size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import torch.utils.data.dataloader as loaders
from torch import Tensor, nn

from safelight.capturing.explanation import tensors_in
from safelight.capturing.patches import Patches
from safelight.monitors.shards import local_of, pieces_of, share_data
from safelight.observing.process_check import CHECK_INTERVAL, checksum_of
from safelight.watching.ranks.fully_sharded import FullySharded
from safelight.watching.ranks.local_gradient import LocalGradient

FIRST_LOOKS = 8  # updates that are all looked at; a rank that differs usually does from the start
MAX_ROWS = 1024  # of a batch


def is_look(call: int) -> bool:
    """By the number of the update alone, so that all processes look at the same ones."""
    return call < FIRST_LOOKS or call % CHECK_INTERVAL == 0


def trained_by(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """In the order of the optimizer, which is the same on all processes."""
    found = {id(p): p for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    return list(found.values())


class RankMonitor:
    """Measures and changes nothing, and communicates nothing."""

    def __init__(self, parameters: Sequence[nn.Parameter], processes: int) -> None:
        self._parameters = parameters
        self.pieces = pieces_of(parameters)
        self.kinds = sorted(set(self.pieces))
        self._shares_data = share_data(parameters)
        self._local = LocalGradient(parameters, self.pieces)
        self._fully_sharded, self._processes = FullySharded(parameters), processes
        self._batch: Tensor | None = None
        self._is_wanted = False  # the update that is made next
        self._random = 0  # at the update before
        self._patches = Patches()
        self._patches.wrap(loaders._BaseDataLoaderIter, "__next__", self._take_batch)

    def close(self) -> None:
        self._patches.restore()
        self._local.close()

    def begin(self, call: int) -> None:
        """The update with this number is made next."""
        self._is_wanted = is_look(call)
        self._local.begin(is_wanted=self._is_wanted)

    @torch.no_grad()
    def take(self, call: int) -> dict[str, np.ndarray]:
        """Gradients are there, weights are the old ones."""
        batch, self._batch = self._batch, None
        random, before = self._random_state(), self._random
        self._random = random
        if not is_look(call):
            return {}
        weights = [local_of(p.detach()) for p in self._parameters]
        gradients = [None if p.grad is None else local_of(p.grad.detach()) for p in self._parameters]
        found = {"weights": self._by_kind(weights), "gradients": self._by_kind(gradients)}
        found |= self._local.take() | {"random": np.array([random, random != before and call > 0], np.int64)}
        found |= self._fully_sharded.describe(self._processes)
        return found | self._describe("loaded", batch)

    @torch.no_grad()
    def describe(self, x0: Tensor | None, noise: Tensor | None) -> dict[str, np.ndarray]:
        """What the loop passes of the update."""
        prints = {} if noise is None else {"noise": np.array([checksum_of(noise.detach()[:1])], np.int64)}
        return prints | self._describe("passed", x0)

    def _describe(self, source: str, batch: Tensor | None) -> dict[str, np.ndarray]:
        """The samples of a batch: each as a number, and what all of them are like."""
        if batch is None or self._shares_data or not batch.is_floating_point() or batch.dim() < 2:
            return {}
        values = batch.detach()[:MAX_ROWS].float().flatten(1)
        moments = torch.stack([values.mean(), values.square().mean()]).double().cpu().numpy()
        rows = np.array([checksum_of(row) for row in values.cpu()], np.int64)
        return {f"{source}/rows": rows, f"{source}/moments": moments}

    def _by_kind(self, tensors: Sequence[Tensor | None]) -> np.ndarray:
        """One number for all pieces of a kind."""
        sums = []
        for kind in self.kinds:
            held = [t for t, piece in zip(tensors, self.pieces, strict=True) if piece == kind and t is not None]
            held = [t.coalesce().values() if t.is_sparse else t for t in held]
            sums.append(checksum_of(*held) if held else 0)
        return np.array(sums, np.int64)

    def _random_state(self) -> int:
        device = self._parameters[0].device
        state = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
        return checksum_of(state[:8192])

    def _take_batch(self, function: Any, loader: Any) -> Any:
        batch = function(loader)
        if self._is_wanted:
            with suppress(Exception):  # of a batch that cannot be looked into: the loop has it in any case
                self._batch = next((t for t in tensors_in(batch) if t.is_floating_point() and t.dim() > 1), None)
        return batch


def layout_entry(pieces: Sequence[str]) -> Mapping[str, np.ndarray]:
    return {"layout": np.frombuffer("\n".join(pieces).encode(), np.uint8)}


def read_layout(entry: Mapping[str, np.ndarray]) -> list[str]:
    return entry["layout"].tobytes().decode().split("\n")
