"""The fixed probe set: the same images, timesteps and noise at every checkpoint, so that losses can be compared."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from safelight.config import Config
from safelight.data.batches import Batches, Views
from safelight.data.images import Images
from safelight.diffusion.draws import draw_noise, draw_timesteps
from safelight.diffusion.micro_batch import MicroBatch
from safelight.diffusion.objective import Noised, Objective
from safelight.generate import WithWeights, evaluation_mode
from safelight.keys import key
from safelight.model.unet import predict
from safelight.training.runtime import Runtime
from safelight.training.state import State

SIZE = 128
FEWEST = 32  # images whose mean is near enough to a normal one


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
    ) -> None:
        """`ids`: the images it is taken from; unset: all. `count`: of samples, in which images come again if they are
        fewer; unset: one of each, and 128 at most. Two probes of one count see the same noise and timesteps, so that
        their difference is the images'."""
        seed = key(config.train.seed, "probe")
        count = min(SIZE, len(images if ids is None else ids)) if count is None else count
        views = Views(side=config.data.image_size)
        rows = Batches(images, seed=seed, batch_size=count, views=views, ids=ids).rows(0, 0, count)
        timesteps = len(objective.signal)
        t = draw_timesteps("stratified", seed=seed, step=0, batch_size=count, timesteps=timesteps)
        noise = draw_noise(seed, 0, 0, count, tuple(rows.images.shape[1:]))
        inputs = MicroBatch(0, rows.ids, rows.images, noise, t, rows.labels if config.model.conditional else None)
        self._inputs, self._objective = inputs.moved(runtime.to_device), objective

    def __len__(self) -> int:
        return len(self._inputs.x0)

    @property
    def ids(self) -> np.ndarray:
        """Which image each sample is of."""
        return self._inputs.ids

    @torch.no_grad()
    def zero_level(self) -> float:
        """The loss of a model that always predicts zero: of one that knows nothing."""
        noised = self._objective.add_noise(self._inputs.x0, self._inputs.noise, self._inputs.t)
        return float(self._objective.loss(torch.zeros_like(noised.target), noised)[0].mean())

    @torch.no_grad()
    def losses(self, state: State) -> tuple[Tensor, Tensor]:
        """(raw, EMA), of each sample. Where weights are divided, all processes have to call it."""
        noised = self._objective.add_noise(self._inputs.x0, self._inputs.noise, self._inputs.t)
        with evaluation_mode(state.model):
            raw = self._losses(state.model, noised)
            with state.weights.lend(state.ema.tensors()) as weights:
                ema = state.model if weights is None else WithWeights(state.model, weights)
                return raw, self._losses(ema, noised)

    def _losses(self, network: nn.Module, noised: Noised) -> Tensor:
        answer = predict(network, noised.x_t, noised.t, self._inputs.labels)
        return self._objective.loss(answer, noised)[0].detach()  # of a loss that asks for gradients by itself


def gap(trained: Tensor, held: Tensor, ids: np.ndarray) -> float | None:
    """By how much held-out samples are worse than trained ones with the same noise, in standard errors. `ids`: of the
    held-out images; samples of one image hang together, and count as one. None where there are too few images."""
    _, image = np.unique(ids, return_inverse=True)
    count = int(image.max()) + 1
    if count < FEWEST:
        return None
    apart = (held - trained).double().cpu().numpy()
    mean = apart.mean()
    sums = np.bincount(image, apart - mean, count)
    error = float(np.sqrt(np.square(sums).sum() * count / (count - 1))) / len(apart)
    return float(mean / max(error, 1e-12))
