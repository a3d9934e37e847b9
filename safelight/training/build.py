"""From a config to the objects of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import torch
from torch import nn

from safelight.config import Config
from safelight.config.epochs import in_steps, in_words
from safelight.data.batches import Augmentation, Batches
from safelight.data.images import Images, hold_out
from safelight.diffusion.densities import make_time_quantile
from safelight.diffusion.micro_batch import MicroBatch
from safelight.diffusion.objective import Objective
from safelight.diffusion.schedule import make_process
from safelight.errors import DataError, OutOfMemory, UsageError
from safelight.healing.step_settings import StepSettings, configured_micro_batches
from safelight.model.memory import find_accumulation, outside_fake_mode
from safelight.monitors.loss import make_noise_binning
from safelight.processes.group import ProcessGroup
from safelight.processes.reduction import make_reduction
from safelight.training.batch_loader import BatchLoader
from safelight.training.fixed_set import FixedSet
from safelight.training.network import apply_gradient_checkpointing, build_model, place_model
from safelight.training.runtime import Runtime, has_native_bf16
from safelight.training.state import State, make_state
from safelight.training.step import Stepper, times_as_fast

Choice = Literal["fp32", "bf16"]
WORTH_HALF = 1.15  # times as fast as fp32: less is not worth other bytes and less precision
GPU_WORKERS = 2  # threads that prepare batches while the device works


@dataclass(frozen=True, slots=True)
class Setup:
    """The objects of a run."""

    config: Config  # resolved: channels, classes and micro-batches are numbers now
    runtime: Runtime
    state: State
    stepper: Stepper
    loader: BatchLoader
    fixed_set: FixedSet
    held_out_set: FixedSet | None  # on images that are held out
    batches: Batches
    images: Images
    held_out_ids: np.ndarray
    """Dataset indices that are never trained on."""

    @property
    def group(self) -> ProcessGroup:
        return self.runtime.group

    @property
    def is_sharded(self) -> bool:
        """Whether each process holds a part of the weights."""
        return self.state.weights.shard is not None

    def inputs(self, step: int, step_settings: StepSettings | None = None) -> list[MicroBatch]:
        """The micro-batches of any step, on the device, whatever is prepared ahead."""
        return [micro.moved(self.runtime.to_device) for micro in self.loader.prepare(step, step_settings)]


def infer_data_settings(config: Config, images: Images, say: Callable[[str], None] = lambda text: None) -> Config:
    """Fills in what the data decides, and refuses what it cannot give. Epochs become steps. `say`: what a person should
    know about it."""
    classes = len(images.class_names)
    if config.data.balance and images.labels is None:
        raise DataError(
            f"data.balance is true, but {config.data.source} has no labels: there are no classes to balance. Put the "
            "images of each class in a subfolder of its own, or leave data.balance out."
        )
    data = replace(config.data, channels=images.pixels.shape[3], classes=classes)
    if config.model.conditional and (images.labels is None or classes < 2):
        raise DataError(
            f"model.conditional is true, but {config.data.source} has {classes} classes. Put the images of each class "
            "in a subfolder of its own, or leave model.conditional out."
        )
    if classes > 1 and not config.model.conditional:
        say(
            f"The images have {classes:,} classes, which the model does not learn. To draw images of one class: --set "
            "model.conditional=true"
        )
    count = images_in_epoch(config, images)
    for line in in_words(config, count):
        say(line)
    return in_steps(replace(config, data=data), count)


def images_in_epoch(config: Config, images: Images) -> int:
    """The number of images that are not held out."""
    ids, _ = hold_out(images, config.data.held_out)
    return len(images) if ids is None else len(ids)


def build(
    config: Config,
    images: Images,
    say: Callable[[str], None],
    model: nn.Module | None = None,
    group: ProcessGroup | None = None,
) -> Setup:
    """Everything, ready for step 0 or for a checkpoint to be restored into."""
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    runtime = Runtime(config.train.device, group)
    check_divisible(config, runtime.group.size)
    model, weights = place_model(
        build_model(config) if model is None else apply_gradient_checkpointing(model, config), config, runtime, say
    )
    network = cast(nn.Module, torch.compile(model, mode=config.model.compile_mode)) if config.model.compile else model
    model.train()
    with outside_fake_mode():
        process = make_process(config.diffusion)
        noise_binning = make_noise_binning(process.log_snr, make_time_quantile(config.diffusion), process.timesteps)
    state = make_state(config, model, weights, noise_binning, runtime.device)
    objective = Objective(config.diffusion, process, runtime.device)
    train_ids, held_out_ids = hold_out(images, config.data.held_out)
    batches = make_batches(config, images, train_ids)
    config = _with_micro_batches(Stepper(config, runtime, objective, state, network), batches, say)
    config = _with_precision(Stepper(config, runtime, objective, state, network), batches, say)
    state.note_origin(config, images.fingerprint)
    check_micro_batches(config.train.batch_size, int(config.train.accumulate), runtime.group.size)
    fixed_set = FixedSet(config, images, train_ids, objective, runtime)
    held_out_set = None
    if len(held_out_ids):
        count, denoisers = len(fixed_set), fixed_set.denoisers
        held_out_set = FixedSet(config, images, held_out_ids, objective, runtime, count, denoisers)
    loader = BatchLoader(_with_workers(config, runtime), batches, rank=runtime.group.rank, processes=runtime.group.size)
    parameters = [parameter for _, parameter in weights.named_parameters]
    reduction = weights.reduction or make_reduction(
        parameters, runtime.group, config.train.shards, state.gradient_order
    )
    stepper = Stepper(config, runtime, objective, state, network, reduction)
    return Setup(config, runtime, state, stepper, loader, fixed_set, held_out_set, batches, images, held_out_ids)


def _with_workers(config: Config, runtime: Runtime) -> Config:
    if config.data.workers is not None:
        return config
    return replace(config, data=replace(config.data, workers=0 if runtime.device.type == "cpu" else GPU_WORKERS))


def make_batches(config: Config, images: Images, ids: np.ndarray | None) -> Batches:
    """`ids`: the images that are trained on; None: all."""
    data = config.data
    views = Augmentation(flip=data.flip, side=data.image_size, jitter=data.jitter)
    seed, batch_size = config.train.seed, config.train.batch_size
    return Batches(images, seed=seed, batch_size=batch_size, views=views, ids=ids, balance=data.balance)


def check_divisible(config: Config, processes: int) -> None:
    train = config.train
    if train.shards is None:
        check_micro_batches(train.batch_size, 1, processes)
    elif train.shards % processes:
        fit = [n for n in range(1, train.shards + 1) if train.shards % n == 0]
        raise UsageError(
            f"train.shards is {train.shards}, which {processes} processes cannot share evenly. Launch one of "
            f"{', '.join(map(str, fit))} processes, or start a run with another number of shards."
        )


def check_micro_batches(batch_size: int, micro_batches: int, processes: int) -> None:
    shares = micro_batches * processes
    if batch_size % shares:
        below = batch_size // shares * shares
        raise UsageError(
            f"train.batch_size is {batch_size}, which {processes} processes with {micro_batches} micro-batches each "
            f"cannot share evenly. Use {f'{below} or ' if below else ''}{below + shares}."
        )


def _with_micro_batches(stepper: Stepper, batches: Batches, say: Callable[[str], None]) -> Config:
    """Resolves `accumulate: auto` by trying: forward and backward of one micro-batch, nothing updated."""
    config, runtime = stepper.config, stepper.runtime
    if config.train.accumulate != "auto":
        return config

    def accumulating(count: int) -> Config:
        return replace(config, train=replace(config.train, accumulate=count))

    if config.train.shards is not None:
        return accumulating(1)  # every exact part is a micro-batch
    share = config.train.batch_size // runtime.group.size

    def attempt(micro_batch: int) -> None:
        idle = replace(accumulating(share // micro_batch), data=replace(config.data, workers=0))
        stepper.dry_run(BatchLoader(idle, batches, processes=runtime.group.size).prepare(0)[:1])

    # What the smallest of the devices can hold.
    found = max(runtime.group.all_gather_object(find_accumulation(attempt, share)))
    if found > 1:
        say(f"A batch of {share} does not fit into memory; it is trained as {found} micro-batches of {share // found}.")
    return accumulating(found)


def _with_precision(stepper: Stepper, batches: Batches, say: Callable[[str], None]) -> Config:
    """Resolves `precision: auto`: on a GPU bf16 where it has it, on a CPU by timed passes of one micro-batch. What is
    chosen stays in the config: the bytes of the run depend on it, and a clock must not decide twice."""
    config, runtime = stepper.config, stepper.runtime
    if config.train.precision != "auto":
        return config

    def computing(precision: Choice) -> Config:
        return replace(config, train=replace(config.train, precision=precision))

    def choose() -> Choice:
        if not has_native_bf16(runtime.device) or stepper.state.weights.shard is not None:
            return "fp32"
        if runtime.device.type != "cpu":
            return "bf16"
        whole, half = (
            Stepper(computing(each), runtime, stepper.objective, stepper.state, stepper.network)
            for each in ("fp32", "bf16")
        )
        idle = replace(config, data=replace(config.data, workers=0))
        inputs = BatchLoader(idle, batches, processes=runtime.group.size).prepare(0)[:1]
        factor = times_as_fast(whole, half, inputs)
        say(f"Precision: bf16 is {factor:.2f} times as fast as fp32 here; from {WORTH_HALF:g} on it is used.")
        return "bf16" if factor >= WORTH_HALF else "fp32"

    chosen = computing(runtime.group.broadcast(choose))
    say(f"Precision: {chosen.train.precision} (train.precision was auto).")
    return chosen


def out_of_memory(config: Config) -> OutOfMemory:
    if config.train.shards is not None:
        return OutOfMemory(
            f"Out of memory with shards of {config.train.batch_size // config.train.shards} images of "
            f"{config.data.image_size} px. A run with more shards (train.shards, now {config.train.shards}) needs "
            "less, and so does --set model.gradient_checkpointing=true."
        )
    size = config.train.batch_size // configured_micro_batches(config)
    return OutOfMemory(
        f"Out of memory with micro-batches of {size} images of {config.data.image_size} px. Try --accumulate auto "
        "(the same batch in smaller pieces, the same result), --set model.gradient_checkpointing=true, or "
        "--precision bf16. `safelight estimate` says what fits."
    )
