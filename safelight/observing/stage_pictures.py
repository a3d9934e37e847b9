"""The pictures of one stage of a training: samples, how they come out of noise, raw weights against their EMA; and all
stages as an animation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from pathlib import Path

import numpy as np
from torch import Tensor

from safelight import checks
from safelight.errors import UsageError
from safelight.files import DISK, Disk
from safelight.pictures.grid import grid, save_png, side_by_side, strip, to_uint8
from safelight.pictures.timelapse import timelapse
from safelight.probes.probe_runner import with_check_prefix
from safelight.run import picture_path, pictures_in

STAGES = 20  # pictures of a run that does not say how many
COMPARED_IMAGES, STRIP_IMAGES, STRIP_COLUMNS = 16, 6, 9
MAX_KEPT_CALLS = 128  # calls that are kept of a sampler whose number of steps is not known
KINDS = {"samples": "step", "denoising": "denoising", "raw_and_averaged": "raw_and_averaged"}  # in the record: files
TIMELAPSE = "timelapse.gif"


def after(steps: Set[int], step: int) -> int:
    """How many of the steps come after this one."""
    return steps.count_after(step) if isinstance(steps, RegularSteps) else sum(each > step for each in steps)


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

    def count_after(self, step: int) -> int:
        if step >= self._last:
            return 0
        done = min(len(self._regular), step // self._regular.step)
        return len(self) - done

    def __len__(self) -> int:
        return len(self._regular) + (self._last not in self._regular)


def planned_steps(steps: int, every: int | None, count: int) -> Set[int]:
    """Every so many steps and the last one; unset: so many, closer together at the start, where most happens."""
    if every is not None:
        return RegularSteps(every, steps)
    return {max(1, round(steps * ((i + 1) / count) ** 2)) for i in range(count)}


def spread_over(steps: int) -> set[int]:
    """Which of the steps of a sampler a strip shows beside the image itself."""
    return {round(i * steps / (STRIP_COLUMNS - 1)) for i in range(STRIP_COLUMNS - 1)}


class Columns:
    """Keeps a few images of the first batch at some steps of the sampler."""

    def __init__(self, images: int, wanted: Collection[int] | None = None) -> None:
        """`wanted`: which steps, counted from 0; None if nobody knows how many there will be: evenly spread ones."""
        self._images, self._wanted = min(STRIP_IMAGES, images), wanted
        self._count, self._stride = 0, 1
        self._frames: list[np.ndarray] = []
        self._captions: list[str] = []

    @property
    def is_used(self) -> bool:
        return bool(self._frames)

    def add(self, t: float, x: Tensor) -> None:
        kept = self._count % self._stride == 0 if self._wanted is None else self._count in self._wanted
        if kept:  # later batches count on past the last wanted step
            self._images = min(self._images, len(x))  # of several processes the first draws only its share
            self._frames.append(self._coloured(x.clamp(-1, 1)))
            self._captions.append(f"t = {t:.3g}" if isinstance(t, float) else f"t = {t}")
        if self._wanted is None and len(self._frames) > MAX_KEPT_CALLS:
            self._stride *= 2
            del self._frames[1::2], self._captions[1::2]
        self._count += 1

    def finish(self, images: Tensor) -> tuple[np.ndarray, list[str]]:
        """Frames and their captions, the images last."""
        chosen = list(range(len(self._frames)))
        if self._wanted is None and len(chosen) >= STRIP_COLUMNS:
            chosen = sorted(spread_over(len(chosen)))
        frames = [self._frames[place][: self._images] for place in chosen]
        return np.stack([*frames, self._coloured(images)]), [*(self._captions[place] for place in chosen), "image"]

    def _coloured(self, images: Tensor) -> np.ndarray:
        """With three channels always: a grey image has them only where a pixel is not finite, and is then magenta."""
        pixels = to_uint8(images[: self._images].cpu())
        return np.broadcast_to(pixels, (*pixels.shape[:3], 3))


def save_stage(
    folder: Path,
    step: int,
    images: Tensor,
    disk: Disk = DISK,
    *,
    raw: Tensor | None = None,
    denoising: tuple[np.ndarray, Sequence[str]] | None = None,
    columns: int | None = None,
) -> dict[str, Path]:
    """The grid of this step, the denoising strip, and `raw` weights against EMA: where they lie, by their kind."""
    found = {"samples": picture_path(folder, step)}
    save_png(grid(to_uint8(images), columns=columns), found["samples"], disk)
    if denoising is not None:
        found["denoising"] = picture_path(folder, step, KINDS["denoising"])
        save_png(strip(denoising[0], captions=denoising[1]), found["denoising"], disk)
    if raw is not None:
        found["raw_and_averaged"] = picture_path(folder, step, KINDS["raw_and_averaged"])
        labels = ("raw weights", "averaged weights")
        pair = side_by_side(to_uint8(raw), to_uint8(images[: len(raw)]), labels=labels)
        save_png(pair, found["raw_and_averaged"], disk)
    return found


def compare_weights(samples: Tensor, raw: Tensor | None, distance: float) -> dict[str, float]:
    """How far pictures of the EMA are from those of raw weights, which must differ where the weights do. `distance` of
    EMA and raw weights, over the length of the raw ones."""
    if raw is None:
        return {}
    apart = float((samples[: len(raw)] - raw).square().mean().sqrt())
    return with_check_prefix({checks.PICTURES_APART: apart, checks.PICTURES_DISTANCE: distance})


def draw_timelapse(
    folder: Path,
    disk: Disk = DISK,
    *,
    steps: Iterable[int] | None = None,
    fps: float | None = None,
    out: Path | None = None,
) -> Path | None:
    """Where it lies; None of a run that has too few stages for one. `steps`: only these stages; `fps`: how many of
    them per second, else all of them in six."""
    stages, path = pictures_in(folder), out or folder / TIMELAPSE
    if steps is not None:
        wanted = set(steps)
        if missing := wanted - {step for step, _ in stages}:
            there = ", ".join(str(step) for step, _ in stages) or "none"
            raise UsageError(f"{folder} has no picture of step {min(missing)}. It has: {there}.")
        stages = [(step, picture) for step, picture in stages if step in wanted]
    if fps is not None and not 0 < fps <= 25:
        raise UsageError(f"fps is {fps:g}. Use a number above 0 and up to 25: browsers slow down what is faster.")
    if len(stages) > 1:
        seconds = 6.0 if fps is None else len(stages) / fps
        timelapse(stages, path, seconds=seconds, disk=disk if out is None else DISK)
    return path if path.is_file() else None
