"""From a config to the objects of a run: the only place that knows every class."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from safelight import __version__
from safelight.config import Config
from safelight.data.batches import Batches, Views
from safelight.data.images import Images, hold_out
from safelight.diffusion.inputs import Inputs
from safelight.diffusion.objective import Objective
from safelight.diffusion.schedule import NoiseSchedule, make_schedule
from safelight.errors import DataError, OutOfMemory, UsageError
from safelight.model.memory import find_accumulation, with_content
from safelight.model.unet import (
    add_spectral_norm,
    build_unet,
    checkpoint_blocks,
    load_pipeline_unet,
    unet_from_description,
    units_of,
)
from safelight.monitors.suite import Monitors
from safelight.processes.group import ProcessGroup
from safelight.processes.local_weights import LocalWeights, WholeWeights
from safelight.processes.reduction import make_reduction
from safelight.training.clipping import Clipper
from safelight.training.ema import Averages
from safelight.training.engine import Engine
from safelight.training.feed import Feed
from safelight.training.fine_tuning import check_inheritance
from safelight.training.fixed_set import FixedSet
from safelight.training.optimizer import make_optimizer
from safelight.training.scaling import LossScale
from safelight.training.state import State
from safelight.training.step import Stepper

GPU_WORKERS = 2  # threads that prepare batches while the device works


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects of a run."""

    config: Config  # resolved: channels, classes and micro-batches are numbers now
    engine: Engine
    state: State
    stepper: Stepper
    feed: Feed
    fixed_set: FixedSet
    held_out_set: FixedSet | None  # on images that are held out
    batches: Batches
    images: Images


def fit_to_data(config: Config, images: Images) -> Config:
    """Fills in what the data decides, and refuses what it cannot give."""
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
    return replace(config, data=data)


def build_model(config: Config, architecture: dict[str, Any] | None = None) -> nn.Module:
    """The U-Net of a config, on the CPU, with what is wrapped around its blocks. A run that began from a pipeline
    is rebuilt from the `architecture` it wrote down: the pipeline may be gone."""
    channels, classes = config.data.channels, config.data.classes
    assert channels is not None, "fit_to_data comes first"
    assert classes is not None, "fit_to_data comes first"
    if config.model.init is not None and architecture is not None:
        model = unet_from_description(architecture)
    elif config.model.init is not None:
        model = load_pipeline_unet(Path(config.model.init))
        check_inheritance(model, config)
    else:
        size = config.data.image_size
        model = build_unet(config.model, image_size=size, channels=channels, classes=classes, seed=config.train.seed)
    if config.model.spectral_norm:
        add_spectral_norm(model)
    if config.model.gradient_checkpointing:
        checkpoint_blocks(model)
    return model


def build(
    config: Config,
    images: Images,
    say: Callable[[str], None],
    model: nn.Module | None = None,
    group: ProcessGroup | None = None,
) -> Parts:
    """Everything, ready for step 0 or for a checkpoint to be restored into."""
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    engine = Engine(config.train.device, config.train.precision, group)
    check_shares(config, engine.processes)
    model = build_model(config) if model is None else model
    sharded = is_sharded(config, engine.processes)  # then moved block by block
    if not sharded and any(p.device != engine.device for p in model.parameters()):  # what is traced cannot be moved
        model = cast(nn.Module, model.to(engine.device))
    if config.model.channels_last:
        model = cast(nn.Module, model.to(memory_format=torch.channels_last))  # pyright: ignore[reportCallIssue]
    with torch.no_grad():  # a model of the user's own may have been drawn differently by every process
        for tensor in (*model.parameters(), *model.buffers()):
            engine.group.broadcast_tensor(tensor)
    weights = _divide(model, engine, say) if sharded else WholeWeights(model)
    network = cast(nn.Module, torch.compile(model)) if config.model.compile else model
    model.train()
    with with_content():
        schedule = make_schedule(config.diffusion)
        levels = log_snr(schedule)
    state = State(
        model=model,
        weights=weights,
        optimizer=make_optimizer(config.optimizer, model, weights.named),
        averages=Averages(config.ema, model, weights.named),
        clipper=Clipper(config.clipping, engine.device),
        scale=LossScale(config.train.precision, engine.device),
        monitors=Monitors(model, levels, weights.named, weights.total),
    )
    objective = Objective(config.diffusion, schedule, engine.device)
    batches = make_batches(config, images)
    config = _with_micro_batches(config, engine, objective, state, network, batches, say)
    micro_batches = int(config.train.accumulate)
    check_micro_batches(config.train.batch_size, micro_batches, engine.processes)
    train_ids, held_ids = hold_out(images, config.data.held_out)
    fixed_set = FixedSet(config, images, train_ids, objective, engine)
    held_out_set = FixedSet(config, images, held_ids, objective, engine, len(fixed_set)) if len(held_ids) else None
    feed = Feed(
        _with_workers(config, engine),
        batches,
        micro_batches=micro_batches,
        rank=engine.rank,
        processes=engine.processes,
    )
    parameters = [parameter for _, parameter in weights.named]
    reduction = weights.reduction or make_reduction(parameters, engine.group, config.train.shards)
    stepper = Stepper(config, engine, objective, state, network, watched=True, reduction=reduction)
    return Parts(config, engine, state, stepper, feed, fixed_set, held_out_set, batches, images)


def is_sharded(config: Config, processes: int) -> bool:
    """Whether each process holds a part of the weights; one alone holds all of them, whatever the settings say."""
    return config.train.weights == "divided" and processes > 1


def _divide(model: nn.Module, engine: Engine, say: Callable[[str], None]) -> LocalWeights:
    from safelight.processes.sharding import shard_weights  # FSDP takes a second to import

    if not units_of(model):
        say("The model has no lists of modules that could be gathered one by one: every pass gathers all of it.")
    return shard_weights(model, engine.group, engine.device)


def _with_workers(config: Config, engine: Engine) -> Config:
    if config.data.workers is not None:
        return config
    return replace(config, data=replace(config.data, workers=0 if engine.device.type == "cpu" else GPU_WORKERS))


def make_batches(config: Config, images: Images) -> Batches:
    data = config.data
    ids, _ = hold_out(images, data.held_out)
    views = Views(flip=data.flip, side=data.image_size, jitter=data.jitter)
    seed, batch_size = config.train.seed, config.train.batch_size
    return Batches(images, seed=seed, batch_size=batch_size, views=views, ids=ids, balance=data.balance)


def log_snr(schedule: NoiseSchedule) -> np.ndarray:
    """Of each timestep; a terminal one without any signal comes last, and need not be infinite for that."""
    return schedule.snr.double().clamp(min=1e-12, max=1e12).log().numpy()


def check_shares(config: Config, processes: int) -> None:
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


def _with_micro_batches(
    config: Config,
    engine: Engine,
    objective: Objective,
    state: State,
    network: nn.Module,
    batches: Batches,
    say: Callable[[str], None],
) -> Config:
    """Resolves `accumulate: auto` by trying: forward and backward of one micro-batch, nothing updated."""
    if config.train.accumulate != "auto":
        return config
    if config.train.shards is not None:
        return replace(config, train=replace(config.train, accumulate=1))  # every shard is a micro-batch
    stepper = Stepper(config, engine, objective, state, network)

    def attempt(micro_batch: int) -> None:
        count = config.train.batch_size // micro_batch // engine.processes
        idle = replace(config, data=replace(config.data, workers=0))
        feed = Feed(idle, batches, micro_batches=count, processes=engine.processes)
        try_pass(stepper, feed.prepare(0)[:1])

    share = config.train.batch_size // engine.processes
    found = max(
        engine.group.all_gather_object(find_accumulation(attempt, share))
    )  # what the smallest of the devices can hold
    if found > 1:
        say(f"A batch of {share} does not fit into memory; it is trained as {found} micro-batches of {share // found}.")
    return replace(config, train=replace(config.train, accumulate=found))


def out_of_memory(config: Config) -> OutOfMemory:
    if config.train.shards is not None:
        return OutOfMemory(
            f"Out of memory with shards of {config.train.batch_size // config.train.shards} images of "
            f"{config.data.image_size} px. A run with more shards (train.shards, now {config.train.shards}) needs "
            "less, and so does --set model.gradient_checkpointing=true."
        )
    size = config.train.batch_size // int(config.train.accumulate if config.train.accumulate != "auto" else 1)
    return OutOfMemory(
        f"Out of memory with micro-batches of {size} images of {config.data.image_size} px. Try --accumulate auto "
        "(the same batch in smaller pieces, the same result), --set model.gradient_checkpointing=true, or "
        "--precision bf16. `safelight estimate` tells what fits."
    )


def environment() -> dict[str, Any]:
    """What the bits depend on: resume is exact where none of this changes."""
    return {
        "safelight": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "processes": torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1,
    }


def try_pass(stepper: Stepper, inputs: Sequence[Inputs]) -> None:
    """Gradients are dropped, and buffers that a forward pass moves (spectral norm, batch norm) are put back."""
    model = stepper.state.model
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        for micro in inputs:
            stepper.accumulate(micro.moved(stepper.engine.send), 0)
    finally:
        stepper.state.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)
