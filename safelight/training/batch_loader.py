"""The input of every step: rows, timesteps, noise and labels, as a pure function of the step."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from safelight.config import Config
from safelight.data.batches import Batches
from safelight.diffusion.densities import make_time_quantile
from safelight.diffusion.draws import draw_label_drop, draw_noise, draw_times
from safelight.diffusion.micro_batch import MicroBatch
from safelight.healing.step_settings import StepSettings, effective_settings


class BatchLoader:
    """Returns the micro-batches of one process, prepared ahead by threads if there are any. Without `step_settings`: as
    the config says."""

    def __init__(self, config: Config, batches: Batches, *, rank: int = 0, processes: int = 1) -> None:
        self.config, self.batches = config, batches
        self._rank, self._processes = rank, processes
        self._density = make_time_quantile(config.diffusion)
        self._step_settings = self._default = effective_settings(config, (), 0)
        self._workers = workers = config.data.workers or 0
        self._pool = ThreadPoolExecutor(workers, "safelight-feed") if workers else None
        self._ahead: dict[int, Future[list[MicroBatch]]] = {}

    def spans(self, step_settings: StepSettings | None = None) -> list[tuple[int, int]]:
        """Rows of the batch in each micro-batch; in exact mode these are always the parts that train.shards cuts it
        into."""
        train, count = self.config.train, (step_settings or self._default).micro_batches
        if train.shards is not None:
            count = train.shards // self._processes
        share = train.batch_size // self._processes
        size, start = share // count, self._rank * share
        return [(start + i * size, start + (i + 1) * size) for i in range(count)]

    def load(self, step: int, step_settings: StepSettings | None = None) -> list[MicroBatch]:
        """The micro-batches of a step; any step may be taken at any time."""
        step_settings = step_settings or self._default
        if self._pool is None:
            return self.prepare(step, step_settings)
        if step_settings != self._step_settings:  # what was prepared ahead is cut or drawn differently
            self._step_settings, self._ahead = step_settings, {}
        for near in range(step, step + 1 + self._workers):
            if near not in self._ahead:
                self._ahead[near] = self._pool.submit(self.prepare, near, step_settings)
        self._ahead = {near: future for near, future in self._ahead.items() if near >= step}
        return self._ahead.pop(step).result()

    def prepare(self, step: int, step_settings: StepSettings | None = None) -> list[MicroBatch]:
        step_settings = step_settings or self._default
        train, diffusion = self.config.train, self.config.diffusion
        t = draw_times(
            diffusion.timestep_sampling,
            self._density,
            seed=train.seed,
            step=step,
            batch_size=train.batch_size,
        )
        return [
            self._micro_batch(step, *span, t[slice(*span)], step_settings.quarantined)
            for span in self.spans(step_settings)
        ]

    def _micro_batch(self, step: int, start: int, stop: int, t: Tensor, quarantined: frozenset[int]) -> MicroBatch:
        rows = self.batches.rows(step, start, stop, quarantined)
        noise = draw_noise(self.config.train.seed, step, start, stop, tuple(rows.images.shape[1:]))
        labels = self._labels(rows.labels, step, start, stop) if self.config.model.conditional else None
        return MicroBatch(start, rows.ids, rows.images, noise, t, labels)

    def _labels(self, labels: Tensor | None, step: int, start: int, stop: int) -> Tensor:
        assert labels is not None, "conditional runs need labels"
        assert self.config.data.classes is not None, "conditional runs need classes"
        train = self.config.train
        dropped = draw_label_drop(train.seed, step, train.batch_size, self.config.model.label_drop)
        return labels.masked_fill(dropped[start:stop], self.config.data.classes)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
