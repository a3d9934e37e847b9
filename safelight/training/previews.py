"""The pictures drawn while training: always from the same noise, so that only the model changes."""

from __future__ import annotations

import time
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from safelight.config import Config
from safelight.config.epochs import every_in_steps
from safelight.generate import Request, columns_for, generate
from safelight.observing.stage_pictures import COMPARED_IMAGES, STAGES, Columns, planned_steps, save_stage, spread_over
from safelight.processes.group import ProcessGroup
from safelight.processes.shared_rows import share_rows
from safelight.run import RunFolder
from safelight.training.clipping import global_norm
from safelight.training.ema import MAIN_EMA
from safelight.training.state import State

FORWARD = 1 / 3  # of a step that also has a backward pass; drawing without gradients takes less
LEAST, FEWEST = 4, 2  # pictures of a run, and of one that takes less time than the former


def preview_steps(config: Config) -> Set[int]:
    """The steps after which a picture is drawn. Counted, and not measured by a clock: a repeated run has the same."""
    every, steps = every_in_steps(config.sample.every), config.train.steps
    if every == 0:
        return set()
    cost = cost_in_steps(config)
    least = LEAST if LEAST * cost <= steps else FEWEST
    return planned_steps(steps, every, min(STAGES, max(least, int(config.sample.budget * steps / cost))))


def cost_in_steps(config: Config) -> float:
    """What a picture costs, at most, in steps of the training."""
    settings = config.sample
    images = settings.count + min(COMPARED_IMAGES, settings.count)
    passes = settings.steps * (1 if settings.guidance == 1 else 2)
    return images * passes * FORWARD / config.train.batch_size


def preview_request(config: Config, count: int) -> Request:
    settings = config.sample
    return Request(count, config.train.seed, settings.sampler, settings.steps, settings.guidance)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Samples of a stage, the picture's first, and how long the others took."""

    samples: Tensor
    seconds_beyond: float
    raw: Tensor  # some of them from the raw weights
    distance: float  # of EMA and raw weights, over the length of the raw ones
    columns: Columns


def draw_preview(state: State, config: Config, group: ProcessGroup, *, samples: int = 0) -> Drawn:
    """Images of this step from the EMA and some from the raw weights. Where more `samples` are wanted than
    the grid shows, it shows the first of them. Every process draws its share of them."""
    count = config.sample.count
    columns = Columns(count, spread_over(config.sample.steps))
    request = preview_request(config, max(count, samples))
    compared = preview_request(config, min(COMPARED_IMAGES, count))
    begun, together = time.perf_counter(), state.weights.shard is not None

    with state.weights.swapped_in(state.ema.tensors()) as ema:

        def draw(start: int, stop: int) -> Tensor:
            on_step = columns.add if group.is_main else None
            return generate(state.model, config, request, weights=ema, on_step=on_step, rows=(start, stop))

        drawn = share_rows(group, request.count, draw, in_step=together)
    seconds = (time.perf_counter() - begun) * (1 - count / len(drawn))

    def draw_raw(start: int, stop: int) -> Tensor:
        return generate(state.model, config, compared, rows=(start, stop))

    raw = share_rows(group, compared.count, draw_raw, in_step=together)
    return Drawn(drawn, seconds, raw, _distance(state), columns)


@torch.no_grad()
def _distance(state: State) -> float:
    ema, raw = state.ema.shadows[MAIN_EMA], [parameter.detach() for _, parameter in state.weights.named_parameters]
    apart, length = (global_norm(list(each)) for each in (torch._foreach_sub(ema, raw), raw))
    return float(apart / length.clamp(min=1e-12))


def save_preview(drawn: Drawn, config: Config, folder: RunFolder, step: int) -> dict[str, Path]:
    """The pictures of this step, by their kind."""
    images = drawn.samples[: config.sample.count]
    columns, strip = columns_for(config), drawn.columns.finish(images)
    return save_stage(folder.samples, step, images, folder.disk, raw=drawn.raw, denoising=strip, columns=columns)
