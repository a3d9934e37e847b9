"""The input of every step: rows, timesteps, noise and labels, as a pure function of the step."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from safelight.config import Config
from safelight.data.batches import Batches
from safelight.diffusion.draws import draw_label_drop, draw_noise, draw_timesteps
from safelight.diffusion.inputs import Inputs


class Feed:
    """Hands out the micro-batches of one process, prepared ahead by threads if there are any."""

    def __init__(self, config: Config, batches: Batches, *, micro_batches: int, rank: int = 0, processes: int = 1):
        self.config, self.batches = config, batches
        self._rank, self._processes, self._share = rank, processes, config.train.batch_size // processes
        self.split(micro_batches)
        self._workers = workers = config.data.workers or 0
        self._pool = ThreadPoolExecutor(workers, "safelight-feed") if workers else None
        self._ahead: dict[int, Future[list[Inputs]]] = {}

    def split(self, micro_batches: int) -> None:
        """Cuts every batch into so many pieces; in exact mode always into its shards."""
        if self.config.train.shards is not None:
            micro_batches = self.config.train.shards // self._processes
        size, start = self._share // micro_batches, self._rank * self._share
        self.spans = [(start + i * size, start + (i + 1) * size) for i in range(micro_batches)]

    def forget(self) -> None:
        """Drops what was prepared ahead: it is to be cut or drawn otherwise."""
        self._ahead = {}

    def take(self, step: int) -> list[Inputs]:
        """The micro-batches of a step; any step may be asked for at any time."""
        if self._pool is None:
            return self.prepare(step)
        for near in range(step, step + 1 + self._workers):
            if near not in self._ahead:
                self._ahead[near] = self._pool.submit(self.prepare, near)
        self._ahead = {near: future for near, future in self._ahead.items() if near >= step}
        return self._ahead.pop(step).result()

    def prepare(self, step: int) -> list[Inputs]:
        train, diffusion = self.config.train, self.config.diffusion
        t = draw_timesteps(
            diffusion.timestep_sampling,
            seed=train.seed,
            step=step,
            batch_size=train.batch_size,
            timesteps=diffusion.timesteps,
        )
        return [self._micro_batch(step, start, stop, t[start:stop]) for start, stop in self.spans]

    def _micro_batch(self, step: int, start: int, stop: int, t: Tensor) -> Inputs:
        rows = self.batches.rows(step, start, stop)
        noise = draw_noise(self.config.train.seed, step, start, stop, tuple(rows.images.shape[1:]))
        labels = self._labels(rows.labels, step, start, stop) if self.config.model.conditional else None
        return Inputs(start, rows.ids, rows.images, noise, t, labels)

    def _labels(self, labels: Tensor | None, step: int, start: int, stop: int) -> Tensor:
        assert labels is not None, "conditional runs need labels"
        assert self.config.data.classes is not None, "conditional runs need classes"
        train = self.config.train
        dropped = draw_label_drop(train.seed, step, train.batch_size, self.config.model.label_drop)
        return labels.masked_fill(dropped[start:stop], self.config.data.classes)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
