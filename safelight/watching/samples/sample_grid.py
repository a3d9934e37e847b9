"""Pictures of samples in anyone's loop: always from the same noise, so that only the model changes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from safelight.diffusion.draws import sample_generators
from safelight.errors import UsageError
from safelight.generate import LARGEST_BATCH, evaluation_mode
from safelight.keys import derive_seed
from safelight.model.copies import copy_without_hooks
from safelight.monitors.parameters import trainable_parameters, unwrapped
from safelight.observing.stage_pictures import COMPARED_IMAGES, Columns, draw_timelapse, save_stage
from safelight.probes.random_state import kept_random_state
from safelight.probes.sampler import accepts
from safelight.run import pictures_in
from safelight.watching.foreign import ema_of_trained
from safelight.watching.samples.sampled_images import SampledImages
from safelight.words import with_article

Sampler = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """What was drawn: samples in [-1, 1] on the host, and some of the raw weights where there is an EMA."""

    samples: Tensor
    raw: Tensor | None
    denoising: tuple[np.ndarray, list[str]] | None


class SampleGrid:
    """Draws the same samples at every stage of a training, and keeps them as pictures.

    `sampler(model, noise)` returns samples and uses only the model that it is given. `noise`: how many images, or a
    tensor of noise [n, channels, height, width]. `shape` of one image, such as (3, 32, 32), where neither `noise` nor
    the config of a diffusers model says it. Samples may be uint8, [0, 1] or [-1, 1]; `value_range` decides it.
    """

    def __init__(
        self,
        folder: str | Path,
        sampler: Sampler,
        noise: int | Tensor = 16,
        *,
        shape: tuple[int, int, int] | None = None,
        seed: int = 0,
        columns: int | None = None,
        value_range: str | None = None,
        batch_size: int = LARGEST_BATCH,
    ) -> None:
        """`columns` of the grid; `batch_size`: how many are drawn at once."""
        if not callable(sampler) or not accepts(sampler):
            raise UsageError("sampler should be a function of (model, noise) that returns samples.")
        if isinstance(noise, Tensor) and noise.dim() != 4:
            raise UsageError(f"noise should have the shape [n, channels, height, width], but has {list(noise.shape)}.")
        self.count = len(noise) if isinstance(noise, Tensor) else noise
        if not isinstance(self.count, int) or self.count < 1:
            raise UsageError(f"noise is {noise!r}. Use a number of images from 1 on, or a tensor.")
        self._noise = noise.detach().float().cpu().clone() if isinstance(noise, Tensor) else None
        self.folder, self._sampler, self._shape = Path(folder), sampler, shape
        self._seed, self._columns, self.batch_size = seed, columns, max(1, batch_size)
        self._images = SampledImages(value_range)

    def __repr__(self) -> str:
        return f"SampleGrid({str(self.folder)!r}, noise={self.count}, steps={self.steps})"

    @property
    def steps(self) -> list[int]:
        """Stages that have a picture."""
        return [step for step, _ in pictures_in(self.folder)]

    def save(self, step: int, model: nn.Module, *, ema: Any = None) -> Path:
        """Draws and writes the pictures of a stage: `step_….png`, `denoising_….png`, and with `ema` also
        `raw_and_averaged_….png`. Returns the first of them. Model, gradients, modes and random states stay as they are:
        a copy of the model draws. `ema`: whatever holds averages, as for `safelight.watch`; samples are those of it."""
        if isinstance(step, bool) or not isinstance(step, int) or not isinstance(model, nn.Module):
            given = ", ".join(with_article(type(each).__name__) for each in (step, model))
            raise UsageError(f"save takes the step, a whole number, and the model: save(step, model). It got {given}.")
        return self.write(step, self.draw(model, ema=ema))["samples"]

    def draw(self, model: nn.Module, *, ema: Any = None, count: int | None = None, seconds: float = math.inf) -> Stage:
        """The same, without writing; the first `count` of the samples, which may be more than the grid has. After
        `seconds` a TimeoutError ends it, at the next call of the model."""
        network, count, end = unwrapped(model), count or self.count, time.monotonic() + seconds
        with as_it_is(network):
            copied = copy_without_hooks(network).requires_grad_(False)
            raw = None
            if ema is not None:
                raw = self._draw(copied, min(COMPARED_IMAGES, self.count), end)
                load_ema(copied, network, ema)
            columns = Columns(self.count)
            samples = self._draw(copied, count, end, columns)
        return Stage(samples, raw, columns.finish(samples) if columns.is_used else None)

    def write(self, step: int, stage: Stage) -> dict[str, Path]:
        """The pictures of a stage, by their kind."""
        shown = stage.samples[: self.count]
        return save_stage(
            self.folder, step, shown, raw=stage.raw, denoising=stage.denoising, columns=self._columns
        )  # fmt: skip

    def timelapse(self, *, steps: Iterable[int] | None = None, fps: float | None = None) -> Path | None:
        """`timelapse.gif` of all stages, or of these `steps`; `fps`: stages per second. None with fewer than two."""
        return draw_timelapse(self.folder, steps=steps, fps=fps)

    def _draw(self, model: nn.Module, count: int, end: float, columns: Columns | None = None) -> Tensor:
        parameter = next(iter(model.parameters()), torch.zeros(()))
        found: list[Tensor] = []
        with kept_random_state(parameter.device), torch.no_grad():
            for start in range(0, count, self.batch_size):
                stop = min(count, start + self.batch_size)
                noise = self._noise_of(model, start, stop).to(parameter)
                torch.manual_seed(derive_seed(self._seed, "sampler", start))  # of samplers that add noise themselves
                with _seen(model.eval(), end, columns if start == 0 else None):
                    found.append(self._images.of(self._sampler(model, noise), stop - start))
        return torch.cat(found)

    def _noise_of(self, model: nn.Module, start: int, stop: int) -> Tensor:
        """Each image has noise of its own: how many are drawn at once changes none of it."""
        kept = self._noise
        if kept is not None and stop <= len(kept):
            return kept[start:stop]
        shape = tuple(kept.shape[1:]) if kept is not None else self._shape or shape_of(model)
        drawn = [torch.randn(shape, generator=each) for each in sample_generators(self._seed, start, stop)]
        own = kept[start:] if kept is not None else torch.empty(0, *shape)
        return torch.cat([own, torch.stack(drawn)[len(own) :]])


def shape_of(model: nn.Module) -> tuple[int, int, int]:
    """The shape of one image, as the config of a diffusers model says it."""
    config = getattr(model, "config", None)
    side, channels = getattr(config, "sample_size", None), getattr(config, "in_channels", None)
    if not isinstance(side, int | list | tuple) or not isinstance(channels, int):
        raise UsageError(
            "The shape of an image is not known. Pass shape=(channels, height, width), or noise as a tensor."
        )
    height, width = (side, side) if isinstance(side, int) else side
    return channels, height, width


def load_ema(copied: nn.Module, model: nn.Module, ema: Any) -> None:
    """Writes the averages of `model` into its copy."""
    averages = ema_of_trained(ema, list(model.named_parameters()), trainable_parameters(model))
    if averages is None:
        raise UsageError("The EMA could not be matched with the model: pass a module, an EMA object or a dict by name.")
    weights = dict(copied.named_parameters())
    with torch.no_grad():
        for (name, _), average in zip(trainable_parameters(model), averages, strict=True):
            weights[name].copy_(average)


@contextmanager
def as_it_is(model: nn.Module) -> Iterator[None]:
    """Samplers that use another model than the one they are given leave this one in its modes."""
    with evaluation_mode(model):
        yield


@contextmanager
def _seen(model: nn.Module, end: float, columns: Columns | None) -> Iterator[None]:
    """`columns` see what the model is called with, until its time is up."""

    def see(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        if time.monotonic() > end:
            raise TimeoutError("the sampler took longer than it may")
        x = next((each for each in (*inputs, *named.values()) if isinstance(each, Tensor) and each.dim() == 4), None)
        if columns is not None and x is not None and x.shape[1] in (1, 3):
            columns.add(_time_of(inputs, named), x.detach().float())

    hook = model.register_forward_pre_hook(see, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def _time_of(inputs: tuple[Any, ...], named: dict[str, Any]) -> float:
    found = next((named[name] for name in ("timestep", "timesteps", "t", "time", "sigma") if name in named), None)
    found = inputs[1] if found is None and len(inputs) > 1 else found
    if found is None:
        return float("nan")
    values = torch.as_tensor(found).reshape(-1)
    first = values[0].item() if len(values) else float("nan")
    return int(first) if isinstance(first, float) and first.is_integer() and first > 1 else first
