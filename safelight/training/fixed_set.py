"""The fixed probe set: the same images, timesteps and noise at every checkpoint, so that losses can be compared."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor, nn

from safelight.config import Config
from safelight.data.batches import Augmentation, Batches
from safelight.data.images import Images
from safelight.diffusion.draws import draw_noise, draw_timesteps
from safelight.diffusion.micro_batch import MicroBatch
from safelight.diffusion.objective import Noised, Objective, per_sample, target_of
from safelight.generate import WithWeights, evaluation_mode
from safelight.keys import derive_seed
from safelight.model.unet import predict
from safelight.monitors.loss import LEVELS
from safelight.training.runtime import Runtime
from safelight.training.state import State
from safelight.vocabulary import SKILL_AT_LEVEL, SKILL_EMA, SKILL_EXACT, SKILL_FLOOR, SKILL_HELD, SKILL_RAW
from safelight.yardstick.denoisers import MOST, DatasetDenoisers
from safelight.yardstick.skill import Yardstick, level_of, skill, skill_by_level, way_to_floor

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
        denoisers: DatasetDenoisers | None = None,
    ) -> None:
        """`ids`: the images it is taken from; unset: all. `count`: of samples, in which images come again if they are
        fewer; unset: one of each, and 128 at most. Two probes of one count see the same noise and timesteps, so that
        their difference is the images'. `denoisers`: of the training images, where `ids` are others."""
        seed = derive_seed(config.train.seed, "probe")
        count = min(SIZE, len(images if ids is None else ids)) if count is None else count
        views = Augmentation(side=config.data.image_size)

        def batches(size: int) -> Batches:
            return Batches(images, seed=seed, batch_size=size, views=views, ids=ids)

        rows, read = batches(count).rows(0, 0, count), min(MOST, len(images if ids is None else ids))
        self._trained_on = denoisers is None
        self.denoisers = denoisers or DatasetDenoisers(batches(read), read)  # the same order: it has these images too
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

    @functools.cached_property
    def yardstick(self) -> Yardstick:
        """What closed-form denoisers of the training images lose on these samples."""
        objective, inputs = self._objective, self._inputs
        noised, a, s = objective.add_noise(inputs.x0, inputs.noise, inputs.t), objective.signal, objective.noise
        a, s = a[inputs.t], s[inputs.t]

        def loss(x0: Tensor, noise: Tensor) -> Tensor:
            x0, noise = x0.to(a.device, torch.float32), noise.to(a.device, torch.float32)
            wide = per_sample(a, x0), per_sample(s, x0)
            return objective.loss(target_of(objective.settings.prediction, x0, noise, *wide), noised)[0]

        return self.denoisers.measure(noised.x_t, a, s, loss, trained_on=self._trained_on)

    def skills(self, raw: Tensor, ema: Tensor) -> dict[str, float]:
        """By signal, of losses that `samples` returned; without those that say nothing."""
        stick = self.yardstick
        own, averaged = (losses.double().cpu().numpy() for losses in (raw, ema))
        found = {SKILL_HELD.name: skill(averaged, stick, self.level, LEVELS)}
        if self._trained_on:
            skills = (skill(each, stick, self.level, LEVELS) for each in (own, averaged))
            found = dict(zip((SKILL_RAW.name, SKILL_EMA.name), skills, strict=True))
            found[SKILL_FLOOR.name] = way_to_floor(own, stick)
            if stick.exact is not None:
                found[SKILL_EXACT.name] = skill(stick.exact, stick, self.level, LEVELS)
            by_level = skill_by_level(averaged, stick, self.level, LEVELS)
            found |= {f"{SKILL_AT_LEVEL.name}/{level:02d}": number for level, number in enumerate(by_level)}
        return {name: float(number) for name, number in found.items() if np.isfinite(number)}

    @functools.cached_property
    def level(self) -> np.ndarray:
        """The noise level of each sample."""
        snr = (self._objective.signal / self._objective.noise.clamp(min=1e-12)).double().cpu().numpy()
        return level_of(snr, self._inputs.t.cpu().numpy(), LEVELS)

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
            with state.weights.swapped_in(state.ema.tensors()) as weights:
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
