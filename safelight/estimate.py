"""What a run would need: memory by a traced step, time by a timed one, disk by counting."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from safelight.config import Config
from safelight.data.sources import KNOWN, Images
from safelight.model.memory import Memory, available_memory, largest_batch, trace_memory
from safelight.terminal import duration
from safelight.train.build import build, build_model, fit_to_data
from safelight.train.ema import tracks
from safelight.train.engine import choose_device
from safelight.train.stages import stage_steps
from safelight.train.trial import seconds_per_step

BEST = 1  # checkpoint that is kept beside the last ones
BYTES = 4  # of an fp32 number


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes, seconds and images."""

    parameters: int
    memory: Memory
    micro_batch: int
    available: int
    largest_micro_batch: int
    checkpoint: int
    disk: int
    seconds_per_step: float | None
    seconds: float | None
    pictures: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def in_words(self) -> str:
        memory = self.memory
        rows = [
            ("parameters", f"{self.parameters / 1e6:,.2f} M"),
            ("memory", f"{size(memory.peak)} at the peak of a step with {self.micro_batch} images at a time"),
            ("", f"{size(memory.parameters)} parameters, {size(memory.gradients)} gradients"),
            ("", f"{size(memory.optimizer)} optimizer, {size(memory.ema)} averages"),
            ("", f"{size(memory.activations)} activations"),
            ("fits", f"{size(self.available)} are available: {self._fits()}"),
            ("disk", f"{size(self.disk)} ({size(self.checkpoint)} a checkpoint)"),
            ("time", self._time()),
        ]
        return "\n".join(f"  {name:<11}{value}" for name, value in rows)

    def _fits(self) -> str:
        if self.largest_micro_batch < 1:
            return "not even one image at a time. Try gradient checkpointing, a smaller model or smaller images"
        return f"up to {self.largest_micro_batch:,} images at a time"

    def _time(self) -> str:
        if self.seconds is None or self.seconds_per_step is None:
            return "not measured"
        pictures = f", and {self.pictures} pictures" if self.pictures else ""
        return f"{duration(self.seconds)} ({self.seconds_per_step:.3g} s a step{pictures})"


def estimate(config: Config, *, timed: bool = True) -> Estimate:
    """Reads no data: the images are made up in the size and number of channels that the config says."""
    micro_batches = 1 if config.train.accumulate == "auto" else config.train.accumulate
    micro_batch = config.train.batch_size // micro_batches
    images = stand_ins(config, micro_batch)
    config = fit_to_data(config, images)

    def trace(count: int) -> Memory:
        return trace_memory(config, lambda: build_model(config), micro_batch=count, ema_copies=len(tracks(config.ema)))

    memory = trace(micro_batch)
    parameters = memory.parameters // BYTES
    available = available_memory(choose_device(config.train.device))
    seconds = None
    if timed and memory.peak < available:
        once = replace(config, train=replace(config.train, accumulate=micro_batches))
        seconds = seconds_per_step(build(once, images, lambda _: None))
    checkpoint = parameters * BYTES * (1 + 2 + len(tracks(config.ema)))  # weights, two moments, averages
    profiles = config.ema.snapshots * len(config.ema.profiles) * parameters * BYTES
    return Estimate(
        parameters=parameters,
        memory=memory,
        micro_batch=micro_batch,
        available=available,
        largest_micro_batch=largest_batch(available, trace),
        checkpoint=checkpoint,
        disk=checkpoint * (config.checkpoint.keep_last + BEST + 1) + profiles,  # one more while the next is written
        seconds_per_step=seconds,
        seconds=None if seconds is None else seconds * config.train.steps,
        pictures=len(stage_steps(config)),
    )


def stand_ins(config: Config, count: int) -> Images:
    """Grey noise in the shape of the data."""
    grey = config.data.source in KNOWN or "idx" in config.data.source
    channels = config.data.channels or (1 if grey else 3)
    classes = config.data.classes or (10 if config.model.conditional else 0)
    side = config.data.image_size
    return Images(
        pixels=np.zeros((max(1, count), side, side, channels), np.uint8),
        labels=np.zeros(max(1, count), np.int64) if classes else None,
        class_names=tuple(map(str, range(classes))),
        names=None,
        rejected=(),
        fingerprint="",
    )


def size(count: float) -> str:
    """1.5 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
