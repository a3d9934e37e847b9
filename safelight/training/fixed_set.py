"""The fixed set: the same images, timesteps and noise at every checkpoint, so that losses can be compared."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from safelight.config import Config
from safelight.data.batches import Augmentation, Batches
from safelight.data.cache import cache_root
from safelight.data.images import Images
from safelight.diffusion.objective import Objective
from safelight.generate import WithWeights, evaluation_mode
from safelight.keys import derive_seed
from safelight.model.unet import predict
from safelight.processes.group import ProcessGroup
from safelight.processes.shared_rows import share_rows
from safelight.training.runtime import Runtime
from safelight.training.state import State
from safelight.yardstick.cache import filter_path
from safelight.yardstick.denoisers import AT_ONCE, ClosedFormDenoisers
from safelight.yardstick.fixed_samples import SIZE, draw_samples
from safelight.yardstick.skill import Yardstick

# Images that the denoisers are fitted to: more of them move the filter by less than a percent
MAX_FITTED_IMAGES = 20_000
MAX_PIXELS = SIZE * 64**2  # of the images that go through a network at a time, for which nothing is kept: 2 of 512 px


class FixedSet:
    """Frozen inputs, evaluated on raw weights and EMA."""

    def __init__(
        self,
        config: Config,
        images: Images,
        ids: np.ndarray | None,
        objective: Objective,
        runtime: Runtime,
        count: int | None = None,
        denoisers: ClosedFormDenoisers | None = None,
    ) -> None:
        """`ids`: the images it is taken from; unset: all. `count`: of samples, in which images come again if they are
        fewer; unset: one of each, and 128 at most. Two sets of one count see the same noise and timesteps, so that
        their difference is the images'. `denoisers`: of the training images, where `ids` are others."""
        seed = derive_seed(config.train.seed, "probe")
        count = min(SIZE, len(images if ids is None else ids)) if count is None else count
        views = Augmentation(side=config.data.image_size)

        def batches(size: int) -> Batches:
            return Batches(images, seed=seed, batch_size=size, views=views, ids=ids)

        rows, read = batches(count).rows(0, 0, count), min(MAX_FITTED_IMAGES, len(images if ids is None else ids))
        self._trained_on = denoisers is None
        # In the same order: the samples are among the images that are read.
        self.denoisers = denoisers or ClosedFormDenoisers(
            FirstRows(batches(read), read), _filter_of(config, images, ids, seed, read)
        )
        self._samples = draw_samples(seed, objective, rows.images)
        self.ids = rows.ids
        """Which image each sample is of."""
        labels = rows.labels if config.model.conditional else None
        self._labels = None if labels is None else runtime.to_device(labels)
        self._is_exact = config.train.shards is not None
        self._at_once = max(1, MAX_PIXELS // config.data.image_size**2)

    def __len__(self) -> int:
        return len(self._samples)

    @functools.cached_property
    def yardstick(self) -> Yardstick:
        """What closed-form denoisers of the training images lose on these samples."""
        return self._samples.compare(self.denoisers)

    def skills(self, raw: Tensor, ema: Tensor) -> dict[str, float]:
        """By signal, of losses that `losses` returned; without those that say nothing."""
        if self._trained_on:
            return self._samples.skills(self.yardstick, raw, ema)
        return self._samples.held_out_skill(self.yardstick, ema)

    @torch.no_grad()
    def zero_level(self) -> float:
        """The loss of a model that always predicts zero."""
        noised = self._samples.noised()
        return float(self._samples.losses(torch.zeros_like(noised.target), noised).mean())

    @torch.no_grad()
    def losses(self, state: State, group: ProcessGroup) -> tuple[Tensor, Tensor]:
        """(raw, EMA), of each sample. All processes of the group have to call it: each does some of the rows."""
        with evaluation_mode(state.model):
            if state.weights.shard is not None:  # a pass takes all processes
                raw = self._losses(state.model, 0, len(self))
                with state.weights.swapped_in(state.ema.tensors()):
                    return raw, self._losses(state.model, 0, len(self))
            ema = WithWeights(state.model, state.ema.tensors())
            raw, averaged = self._share((state.model, ema), group).chunk(2)
            return raw, averaged

    @torch.no_grad()
    def raw_losses(self, state: State, group: ProcessGroup) -> Tensor:
        """As `losses`, without those of the EMA."""
        with evaluation_mode(state.model):
            return self._share((state.model,), group)

    def _share(self, networks: Sequence[nn.Module], group: ProcessGroup) -> Tensor:
        """Of one network after the other."""
        count = len(self)

        def losses(start: int, stop: int) -> Tensor:
            bounds = [
                (max(0, start - place * count), min(count, stop - place * count)) for place in range(len(networks))
            ]
            pairs = zip(networks, bounds, strict=True)
            return torch.cat([self._losses(network, a, b) for network, (a, b) in pairs if a < b])

        # In exact mode a row must not depend on how many share them: kernels differ with the number of rows.
        return share_rows(group, count * len(networks), losses, unit=count if self._is_exact else 1)

    def _losses(self, network: nn.Module, start: int, stop: int) -> Tensor:
        """A few samples at a time, where images are large."""
        found = list[Tensor]()
        for first in range(start, stop, self._at_once):
            rows = slice(first, min(stop, first + self._at_once))
            noised = self._samples.noised(rows)
            labels = None if self._labels is None else self._labels[rows]
            found.append(self._samples.losses(predict(network, *self._samples.objective.input(noised), labels), noised))
        return torch.cat(found)


def _filter_of(config: Config, images: Images, ids: np.ndarray | None, seed: int, read: int) -> Path:
    """Where the linear filter of these images is kept, by all that it depends on."""
    rows = None if ids is None else hashlib.sha256(np.ascontiguousarray(ids, np.int64).tobytes()).hexdigest()
    # The seed is the order in which they are summed, which the last bits depend on.
    identity = {"data": images.fingerprint, "rows": rows, "side": config.data.image_size, "read": read, "seed": seed}
    return filter_path(cache_root(config.data, lambda _: None), **identity)


class FirstRows:
    """The first rows of the batch of step 0, a few at a time, as often as they are asked for."""

    def __init__(self, batches: Batches, count: int) -> None:
        self._batches, self._count = batches, count

    def __iter__(self) -> Iterator[Tensor]:
        for start in range(0, self._count, AT_ONCE):
            yield self._batches.rows(0, start, min(self._count, start + AT_ONCE)).images
