"""The pictures drawn while training: always from the same noise, so that only the model changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from safelight import checks
from safelight.config import Config
from safelight.config.epochs import every_in_steps
from safelight.generate import Request, columns_for, generate
from safelight.pictures.grid import grid, save_png, side_by_side, strip, to_uint8
from safelight.pictures.timelapse import timelapse
from safelight.probes.probe_runner import with_check_prefix
from safelight.processes.group import ProcessGroup
from safelight.run import RunFolder
from safelight.training.clipping import global_norm
from safelight.training.ema import MAIN
from safelight.training.state import State

STAGES = 20  # pictures of a run that does not say how many
COMPARED, STRIP_IMAGES, STRIP_COLUMNS = 16, 6, 9


class RegularSteps(Set[int]):
    """Every so many steps and the last one; holds none of them, however many they are."""

    def __init__(self, every: int, last: int) -> None:
        self._regular, self._last = range(every, last + 1, every), last

    def __contains__(self, step: object) -> bool:
        return step in self._regular or step == self._last

    def __iter__(self) -> Iterator[int]:
        yield from self._regular
        if self._last not in self._regular:
            yield self._last

    def __len__(self) -> int:
        return len(self._regular) + (self._last not in self._regular)


def planned_steps(steps: int, every: int | None, count: int) -> Set[int]:
    """Every so many steps and the last one; unset: so many, closer together at the start, where most happens."""
    if every is not None:
        return RegularSteps(every, steps)
    return {max(1, round(steps * ((i + 1) / count) ** 2)) for i in range(count)}


def preview_steps(config: Config) -> Set[int]:
    """The steps after which a picture is drawn."""
    return planned_steps(config.train.steps, every_in_steps(config.sample.every), STAGES)


def preview_request(config: Config, count: int) -> Request:
    settings = config.sample
    return Request(count, config.train.seed, settings.sampler, settings.steps, settings.guidance)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Samples of a stage, the picture's first, and how long the others took."""

    samples: Tensor
    seconds_beyond: float
    raw: Tensor | None  # some of them from the raw weights, for the pictures of the first process
    distance: float  # of EMA and raw weights, over the length of the raw ones
    columns: Columns


def draw_preview(state: State, config: Config, group: ProcessGroup, *, samples: int = 0) -> Drawn:
    """Images of this step from the EMA and some from the raw weights. Where more `samples` are wanted than
    the grid shows, it shows the first of them. Every process draws its share of them."""
    columns, count = Columns(config), config.sample.count
    request = preview_request(config, max(count, samples))
    compared = preview_request(config, min(COMPARED, count))
    begun, together = time.perf_counter(), state.weights.shard is not None

    with state.weights.swapped_in(state.ema.tensors()) as ema:

        def draw(start: int, stop: int) -> Tensor:
            on_step = columns.add if group.is_main else None
            return generate(state.model, config, request, weights=ema, on_step=on_step, rows=(start, stop))

        drawn = draw_together(group, request.count, draw, in_step=together)
    seconds = (time.perf_counter() - begun) * (1 - count / len(drawn))
    raw = None
    if together:
        raw = draw_together(
            group, compared.count, lambda a, b: generate(state.model, config, compared, rows=(a, b)), in_step=True
        )
    elif group.is_main:
        raw = generate(state.model, config, compared)
    return Drawn(drawn, seconds, raw, _distance(state), columns)


@torch.no_grad()
def _distance(state: State) -> float:
    ema, raw = state.ema.shadows[MAIN], [parameter.detach() for _, parameter in state.weights.named]
    apart, length = (global_norm(list(each)) for each in (torch._foreach_sub(ema, raw), raw))
    return float(apart / length.clamp(min=1e-12))


def compare_weights(drawn: Drawn) -> dict[str, float]:
    """How far pictures of the EMA are from those of raw weights, which must differ where the weights do."""
    if drawn.raw is None:
        return {}
    apart = drawn.samples[: len(drawn.raw)] - drawn.raw
    distance = float(apart.square().mean().sqrt())
    return with_check_prefix({checks.PICTURES_APART: distance, checks.PICTURES_DISTANCE: drawn.distance})


def save_preview(drawn: Drawn, config: Config, folder: RunFolder, step: int) -> None:
    """The grid of this step, the denoising strip, and raw weights against EMA."""
    images, raw = drawn.samples[: config.sample.count], drawn.raw
    assert raw is not None, "only the first process has all that pictures are made of"
    save_png(grid(to_uint8(images), columns=columns_for(config)), folder.picture(step), folder.disk)
    save_png(
        side_by_side(to_uint8(raw), to_uint8(images[: len(raw)]), labels=("raw weights", "averaged weights")),
        folder.picture(step, "raw_and_averaged"),
        folder.disk,
    )
    frames, captions = drawn.columns.finish(images)
    save_png(strip(frames, captions=captions), folder.picture(step, "denoising"), folder.disk)


def draw_together(
    group: ProcessGroup, count: int, draw: Callable[[int, int], Tensor], *, in_step: bool = False
) -> Tensor:
    """Images `start` to `stop` by each process, and all of them on every one; where one process fails, all do.
    `in_step`: every pass takes all processes, so that each draws as many; those too many are dropped."""
    if group.size == 1:
        return draw(0, count)
    share = -(-count // group.size)
    start, stop = group.rank * share, (group.rank + 1) * share
    if in_step:
        return group.all_gather_host(draw(start, stop)).flatten(0, 1)[:count]
    start, stop = min(count, start), min(count, stop)
    mine: Tensor | None = None
    failed = None
    try:
        mine = draw(start, stop) if stop > start else None
    except Exception as error:  # whatever it is: the others must not wait for images that will not come
        failed = f"{type(error).__name__}: {error}"
    shares = group.all_gather_object([failed, None if mine is None else list(mine.shape[1:])])
    for rank, (reason, _) in enumerate(shares):
        if reason is not None:
            raise RuntimeError(f"process {rank}: {reason}")
    padded = torch.zeros(share, *shares[0][1])
    if mine is not None:
        padded[: len(mine)] = mine
    return group.all_gather_host(padded).flatten(0, 1)[:count]


class Columns:
    """Keeps a few images of the first batch at evenly spread timesteps while it is sampled."""

    def __init__(self, config: Config) -> None:
        steps = config.sample.steps
        self._images = min(STRIP_IMAGES, config.sample.count)
        self._wanted = {round(i * steps / (STRIP_COLUMNS - 1)) for i in range(STRIP_COLUMNS - 1)}
        self._count = 0
        self._frames: list[np.ndarray] = []
        self._captions: list[str] = []

    def add(self, t: float, x: Tensor) -> None:
        if self._count in self._wanted:  # later batches count on past the last wanted step
            self._images = min(self._images, len(x))  # of several processes the first draws only its share
            self._frames.append(self._coloured(x.clamp(-1, 1)))
            self._captions.append(f"t = {t:.3g}" if isinstance(t, float) else f"t = {t}")
        self._count += 1

    def finish(self, images: Tensor) -> tuple[np.ndarray, list[str]]:
        return np.stack([*self._frames, self._coloured(images)]), [*self._captions, "image"]

    def _coloured(self, images: Tensor) -> np.ndarray:
        """With three channels always: a grey image has them only where a pixel is not finite, and is then magenta."""
        pixels = to_uint8(images[: self._images].cpu())
        return np.broadcast_to(pixels, (*pixels.shape[:3], 3))


def draw_timelapse(folder: RunFolder) -> Path | None:
    """Where it lies; None of a run that has too few stages for one."""
    stages, path = folder.pictures(), folder.samples / "timelapse.gif"
    if len(stages) > 1:
        timelapse(stages, path, disk=folder.disk)
    return path if path.is_file() else None
