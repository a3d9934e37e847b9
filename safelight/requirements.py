"""What a run would need: memory by a traced step, time by a timed one, disk by counting."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from safelight.config import Config
from safelight.config.epochs import has_epochs
from safelight.data.images import Images
from safelight.data.sources import KNOWN
from safelight.diffusion.micro_batch import MicroBatch
from safelight.errors import UsageError
from safelight.healing.step_settings import configured_precision
from safelight.model.memory import Memory, available_memory, largest_batch, trace_second_step, traced
from safelight.terminal import duration
from safelight.training.build import Setup, build, infer_data_settings
from safelight.training.previews import preview_steps
from safelight.training.runtime import choose_device
from safelight.training.step import seconds_per_step
from safelight.words import in_bytes

BEST_CHECKPOINTS = 1  # checkpoint that is kept in addition to the last ones
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

    def in_words(self) -> str:
        rows = [
            ("parameters", f"{self.parameters / 1e6:,.2f} M"),
            *self.memory.rows(self.micro_batch),
            ("fits", f"{in_bytes(self.available)} are available: {self._fits()}"),
            ("disk", f"{in_bytes(self.disk)} ({in_bytes(self.checkpoint)} a checkpoint)"),
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
    if has_epochs(config):
        raise UsageError("An estimate reads no images, so it cannot turn epochs into steps. Give the steps instead.")
    config = replace(config, train=replace(config.train, precision=configured_precision(config)))
    micro_batches = 1 if config.train.accumulate == "auto" else config.train.accumulate
    micro_batch = config.train.batch_size // micro_batches
    memory = trace_step(config, micro_batch)
    available = available_memory(choose_device(config.train.device))
    seconds = None
    if timed and memory.peak < available:
        parts = parts_for(replace(config, train=replace(config.train, accumulate=micro_batches)))
        seconds = seconds_per_step(parts.stepper, parts.loader.prepare(0))
    checkpoint = memory.parameters * (1 + 2) + memory.ema  # weights, two moments, EMA
    profiles = config.ema.snapshots * len(config.ema.profiles) * memory.parameters
    return Estimate(
        parameters=memory.parameters // BYTES,
        memory=memory,
        micro_batch=micro_batch,
        available=available,
        largest_micro_batch=largest_batch(available, lambda count: trace_step(config, count)),
        checkpoint=checkpoint,
        disk=checkpoint * (config.checkpoint.keep_last + BEST_CHECKPOINTS + 1)
        + profiles,  # one more while the next is written
        seconds_per_step=seconds,
        seconds=None if seconds is None else seconds * config.train.steps,
        pictures=len(preview_steps(config)),
    )


def trace_step(config: Config, micro_batch: int) -> Memory:
    """The very step of training, on tensors without content. The second one is counted: it has moments."""
    precision = configured_precision(config)
    train = replace(config.train, batch_size=micro_batch, accumulate=1, device="cpu", precision=precision)
    config = replace(config, train=train, model=replace(config.model, compile=False))
    with traced() as live:
        parts = parts_for(config)
        state, inputs = parts.state, [empty_inputs(parts.config, micro_batch)]
        activations, peak = trace_second_step(
            live, lambda number: parts.stepper.step(inputs, number), lambda: parts.stepper.forward(inputs[0], 1)
        )
        parameters = sum(weight.nbytes for weight in state.model.parameters())
        optimizer = sum(value.nbytes for entry in state.optimizer.state.values() for value in entry.values())
        ema = sum(weight.nbytes for shadow in state.ema.shadows.values() for weight in shadow)
        return Memory(parameters, parameters, optimizer, ema, activations, peak)


def empty_inputs(config: Config, count: int) -> MicroBatch:
    side, channels = config.data.image_size, config.data.channels or 3
    x0, t = torch.empty(count, channels, side, side), torch.zeros(count, dtype=torch.long)
    labels = torch.zeros(count, dtype=torch.long) if config.model.conditional else None
    return MicroBatch(0, np.zeros(count, np.int64), x0, torch.empty_like(x0), t, labels)


def parts_for(config: Config) -> Setup:
    """A run on one black image in the shape of the data."""
    source = config.data.source
    channels = config.data.channels or KNOWN.get(source.partition(":")[0], 1 if "idx" in source else 3)
    classes = config.data.classes or (10 if config.model.conditional else 0)
    side = config.data.image_size
    images = Images(
        pixels=np.zeros((1, side, side, channels), np.uint8),
        labels=np.zeros(1, np.int64) if classes else None,
        class_names=tuple(map(str, range(classes))),
        fingerprint="",
    )
    return build(infer_data_settings(config, images), images, lambda _: None)
