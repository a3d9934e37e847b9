"""The fixed set: the same images, timesteps and noise at every checkpoint, so that losses can be compared."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from safelight.config import Config
from safelight.data.batches import Augmentation, Batches
from safelight.data.cache import cache_root
from safelight.data.images import Images
from safelight.diffusion.objective import NoisedBatch, Objective
from safelight.generate import WithWeights, evaluation_mode
from safelight.keys import derive_seed
from safelight.model.unet import predict
from safelight.training.runtime import Runtime
from safelight.training.state import State
from safelight.yardstick.cache import filter_path
from safelight.yardstick.denoisers import AT_ONCE, ClosedFormDenoisers
from safelight.yardstick.fixed_samples import SIZE, draw_samples
from safelight.yardstick.skill import Yardstick

# Images that the denoisers are fitted to: more of them move the filter by less than a percent
MAX_FITTED_IMAGES = 20_000
MIN_IMAGES = 32  # images whose mean is near enough to a normal one


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
    def losses(self, state: State) -> tuple[Tensor, Tensor]:
        """(raw, EMA), of each sample. Where weights are divided, all processes have to call it."""
        noised = self._samples.noised()
        with evaluation_mode(state.model):
            raw = self._losses(state.model, noised)
            with state.weights.swapped_in(state.ema.tensors()) as weights:
                ema = state.model if weights is None else WithWeights(state.model, weights)
                return raw, self._losses(ema, noised)

    @torch.no_grad()
    def raw_losses(self, state: State) -> Tensor:
        """As `losses`, without those of the EMA."""
        with evaluation_mode(state.model):
            return self._losses(state.model, self._samples.noised())

    def _losses(self, network: nn.Module, noised: NoisedBatch) -> Tensor:
        shown = self._samples.objective.input(noised)
        return self._samples.losses(predict(network, *shown, self._labels), noised)


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


def gap(lower: Tensor, higher: Tensor, ids: np.ndarray) -> float | None:
    """By how much losses are above others with the same noise, in standard errors. `ids`: of the images of the higher
    ones; samples of one image hang together, and count as one. None if there are too few images."""
    _, image = np.unique(ids, return_inverse=True)
    count = int(image.max()) + 1
    if count < MIN_IMAGES:
        return None
    apart = (higher - lower).double().cpu().numpy()
    mean = apart.mean()
    sums = np.bincount(image, apart - mean, count)
    error = float(np.sqrt(np.square(sums).sum() * count / (count - 1))) / len(apart)
    return float(mean / max(error, 1e-12))
