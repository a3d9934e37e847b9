"""The input of every step: rows, timesteps, noise and labels, as a pure function of the step."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from safelight.config import Config
from safelight.data.batches import Batches
from safelight.diffusion.draws import draw_label_drop, draw_noise, draw_timesteps
from safelight.diffusion.inputs import Inputs
from safelight.healing.step_settings import StepSettings, settings_at


class Feed:
    """Returns the micro-batches of one process, prepared ahead by threads if there are any. `how`: as the config says,
    where it is not given."""

    def __init__(self, config: Config, batches: Batches, *, rank: int = 0, processes: int = 1) -> None:
        self.config, self.batches = config, batches
        self._rank, self._processes = rank, processes
        self._how = self._default = settings_at(config, (), 0)
        self._workers = workers = config.data.workers or 0
        self._pool = ThreadPoolExecutor(workers, "safelight-feed") if workers else None
        self._ahead: dict[int, Future[list[Inputs]]] = {}

    def spans(self, how: StepSettings | None = None) -> list[tuple[int, int]]:
        """Rows of the batch in each micro-batch; in exact mode these are always the shards."""
        train, count = self.config.train, (how or self._default).micro_batches
        if train.shards is not None:
            count = train.shards // self._processes
        share = train.batch_size // self._processes
        size, start = share // count, self._rank * share
        return [(start + i * size, start + (i + 1) * size) for i in range(count)]

    def take(self, step: int, how: StepSettings | None = None) -> list[Inputs]:
        """The micro-batches of a step; any step may be taken at any time."""
        how = how or self._default
        if self._pool is None:
            return self.prepare(step, how)
        if how != self._how:  # what was prepared ahead is cut or drawn differently
            self._how, self._ahead = how, {}
        for near in range(step, step + 1 + self._workers):
            if near not in self._ahead:
                self._ahead[near] = self._pool.submit(self.prepare, near, how)
        self._ahead = {near: future for near, future in self._ahead.items() if near >= step}
        return self._ahead.pop(step).result()

    def prepare(self, step: int, how: StepSettings | None = None) -> list[Inputs]:
        how = how or self._default
        train, diffusion = self.config.train, self.config.diffusion
        t = draw_timesteps(
            diffusion.timestep_sampling,
            seed=train.seed,
            step=step,
            batch_size=train.batch_size,
            timesteps=diffusion.timesteps,
        )
        return [self._micro_batch(step, *span, t[slice(*span)], how.quarantined) for span in self.spans(how)]

    def _micro_batch(self, step: int, start: int, stop: int, t: Tensor, quarantined: frozenset[int]) -> Inputs:
        rows = self.batches.rows(step, start, stop, quarantined)
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
