"""The fixed probe set: the same images, timesteps and noise at every checkpoint, so that losses can be compared."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from safelight.config import Config
from safelight.data.batches import Batches, Views
from safelight.data.images import Images
from safelight.diffusion.draws import draw_noise, draw_timesteps
from safelight.diffusion.objective import Objective
from safelight.generate import WithWeights, evaluation_mode
from safelight.keys import key
from safelight.model.unet import predict
from safelight.train.engine import Engine
from safelight.train.feed import Inputs
from safelight.train.state import State

SIZE = 128
FEWEST = 32  # pairs whose mean is near enough to a normal one


class Probe:
    """Frozen inputs, evaluated on raw and averaged weights."""

    def __init__(
        self, config: Config, images: Images, ids: np.ndarray | None, objective: Objective, engine: Engine
    ) -> None:
        """`ids`: the images it is taken from; unset: all. Two probes of as many images see the same noise and
        timesteps, so that their difference is the images'."""
        seed = key(config.train.seed, "probe")
        count = min(SIZE, len(images if ids is None else ids))
        views = Views(side=config.data.image_size)
        rows = Batches(images, seed=seed, batch_size=count, views=views, ids=ids).rows(0, 0, count)
        timesteps = len(objective.signal)
        t = draw_timesteps("stratified", seed=seed, step=0, batch_size=count, timesteps=timesteps)
        noise = draw_noise(seed, 0, 0, count, tuple(rows.images.shape[1:]))
        inputs = Inputs(0, rows.ids, rows.images, noise, t, rows.labels if config.model.conditional else None)
        self._inputs, self._objective = inputs.moved(engine.send), objective

    @torch.no_grad()
    def zero_level(self) -> float:
        """The loss of a model that always answers zero: of one that knows nothing."""
        noised = self._objective.corrupt(self._inputs.x0, self._inputs.noise, self._inputs.t)
        return float(self._objective.loss(torch.zeros_like(noised.target), noised)[0].mean())

    def losses(self, state: State) -> tuple[float, float]:
        """(raw, averaged)."""
        raw, averaged = self.samples(state)
        return float(raw.mean()), float(averaged.mean())

    @torch.no_grad()
    def samples(self, state: State) -> tuple[Tensor, Tensor]:
        """(raw, averaged), of each sample."""
        noised = self._objective.corrupt(self._inputs.x0, self._inputs.noise, self._inputs.t)
        found = []
        with evaluation_mode(state.model):
            for network in (state.model, WithWeights(state.model, state.averages.tensors())):
                answer = predict(network, noised.x_t, noised.t, self._inputs.labels)
                found.append(self._objective.loss(answer, noised)[0])
        return found[0], found[1]


def gap(trained: Tensor, held: Tensor) -> float | None:
    """By how much held-out samples are worse, in standard errors; None where their noise is not the same."""
    if len(held) != len(trained) or len(held) < FEWEST:
        return None
    apart = (held - trained).double()
    return float(apart.mean() / (apart.std() / len(apart) ** 0.5).clamp(min=1e-12))
