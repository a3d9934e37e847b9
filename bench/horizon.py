"""What a run would cost beyond this machine: bytes between processes, efficiency, checkpoints; and a check of the sums.

    python -m bench.horizon               # the tables of docs/planning.md, a minute
    python -m bench.horizon --check       # and the same sums against 1, 2 and 4 processes here
    python -m bench.horizon --parameters 860e6 --gigaflops 800 --images 16     # a model of your own

Every number is a sum over the assumptions in `CLUSTERS`; nothing here was measured on a cluster.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.measure import timed, write_table
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.model.memory import traced
from safelight.processes.buckets import cut
from safelight.requirements import empty_inputs, parts_for

BYTES = 4  # of a gradient: gradients, weights and moments are fp32
COPIES = 5  # of the weights in a checkpoint: weights, two averages, two moments
BACKWARD = 2 / 3  # of the work of a step
SHARDS = 4  # of each process, in the tables
SIZES = (8, 64, 1024)
CHECKED = (1, 2, 4)
CHECK = {"model.widths": (32, 64), "train.batch_size": 16, "train.threads": 1}


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a plan assumes of the machines; bytes and operations each second."""

    name: str
    per_machine: int
    inside: float
    """Between the processes of one machine, for each of them."""
    between: float
    """Between machines, for each machine."""
    latency: float
    """Seconds of one message."""
    operations: float
    """That a network really gets of a device."""
    memory: float
    """Of a device, for a copy on it."""
    disk: float
    """Of the folder that checkpoints go to, for all machines together."""
    hours: float = 50_000.0
    """Of one device between two failures. Llama 3 405B had 419 unexpected ones in 54 days on 16,384 GPUs."""
    restart: float = 300.0
    """Seconds from a failure to the next step."""


FAST = Cluster("NVLink, 400 Gbit/s for each GPU", 8, 300e9, 8 * 40e9, 10e-6, 250e12, 2e12, 10e9)
CLUSTERS = (
    FAST,
    replace(FAST, name="NVLink, 100 Gbit/s for each machine", between=10e9, latency=30e-6, disk=2e9),
    Cluster("PCIe, 25 Gbit/s for each machine", 8, 12e9, 2.5e9, 50e-6, 60e12, 0.8e12, 1e9),
)


@dataclass(frozen=True, slots=True)
class Moment:
    """When a bucket of gradients can be sent."""

    reached: float
    """Share of the backward pass that is over."""
    share: float
    """Of all gradients, that are in it."""


@dataclass(frozen=True, slots=True)
class Network:
    """A model, and what one process gives it to do in a step."""

    name: str
    parameters: int
    operations: float
    """Of one image, forward and backward."""
    images: int
    """Of one process in a step."""
    moments: tuple[Moment, ...] = tuple(Moment(place / 10, 0.1) for place in range(1, 11))
    """Measured on one image; else as if gradients came evenly, in ten buckets."""


def traffic(parameters: int, processes: int) -> float:
    """Bytes that each process sends in a step. A ring and the exact sum send the same where a process holds one whole
    branch of the tree of shards: every process adds up one slice of the gradient and hands it out."""
    return 2 * (processes - 1) / processes * parameters * BYTES


def seconds_of_sum(parameters: int, processes: int, cluster: Cluster) -> float:
    """First inside the machines, then between them, then inside again."""
    near = min(processes, cluster.per_machine)
    machines = math.ceil(processes / cluster.per_machine)
    inside = traffic(parameters, near) / cluster.inside + 2 * (near - 1) * cluster.latency
    between = traffic(parameters, machines) / cluster.between + 2 * math.log2(machines) * cluster.latency
    return inside + (between if machines > 1 else 0.0)


def seconds_of_work(network: Network, cluster: Cluster) -> float:
    return network.operations * network.images / cluster.operations


def efficiency(network: Network, processes: int, cluster: Cluster, *, passes: int = 1) -> float:
    """Images each second over those of as many processes that never wait. Buckets are sent one after the other as their
    gradients come; what is under way at the end of the backward pass is waited for. `passes`: of a step, through which
    a process sends its images in turn (shards, micro-batches): the sum runs beside the last of them."""
    work, together = seconds_of_work(network, cluster), seconds_of_sum(network.parameters, processes, cluster)
    backward = BACKWARD * work / passes
    sent = 0.0
    for moment in network.moments:
        sent = max(sent, moment.reached * backward) + moment.share * together
    return work / (work + max(0.0, sent - backward))


@dataclass(frozen=True, slots=True)
class Saving:
    """What checkpoints cost a run of one size."""

    bytes: float
    stall: float
    """Seconds that the training stands still for one: a copy on the device."""
    written: float
    """Seconds until it is on disk, beside the training."""
    between: float
    """Seconds between two failures of any process."""
    interval: float
    """Seconds between two saves at which stalls and lost work together are least (Young 1974), but no shorter than a
    save takes to be written."""
    lost: float
    """Share of the time that stalls, lost work and restarts take."""


def saving(network: Network, processes: int, cluster: Cluster) -> Saving:
    size = network.parameters * BYTES * COPIES
    stall, written = 2 * size / cluster.memory, size / cluster.disk
    between = cluster.hours * 3600 / processes
    interval = max(math.sqrt(2 * stall * between), written)
    lost = stall / interval + (interval / 2 + cluster.restart) / between
    return Saving(size, stall, written, between, interval, lost)


def networks() -> Iterator[Network]:
    """The presets, and the largest of them twice as wide: counted on tensors without content."""
    yield from (count(name, {}) for name in ("tiny", "small", "base"))
    yield count("base", {"model.widths": (256, 512, 512, 768, 1024)}, "base, twice as wide")


def count(preset: str, settings: dict[str, object], name: str | None = None) -> Network:
    config = resolve(preset=preset, settings={"data.source": "shapes", "train.device": "cpu", **settings})
    images = {"tiny": 64, "small": 64, "base": 32}[preset]
    with traced(torch.device("cpu")):
        parts = parts_for(replace(config, train=replace(config.train, batch_size=1, precision="fp32")))
        parameters = sum(parameter.numel() for parameter in parts.state.model.parameters())
        with FlopCounterMode(display=False) as counter:
            parts.stepper.accumulate(empty_inputs(parts.config, 1), 0)
    return Network(name or preset, parameters, float(counter.get_total_flops()), images, measure_moments(config))


def measure_moments(config: Config) -> tuple[Moment, ...]:
    """Of one image on this CPU, by the clock of the thread that computes: which share of a backward pass is over when a
    bucket is full."""
    torch.set_num_threads(1)
    parts = parts_for(replace(config, train=replace(config.train, batch_size=1, precision="fp32")))
    inputs, came = empty_inputs(parts.config, 1), dict[torch.nn.Parameter, float]()
    parameters = [parameter for _, parameter in parts.state.weights.named_parameters]

    def note(parameter: torch.nn.Parameter) -> None:
        came[parameter] = time.thread_time()

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(note)
    for tensor in (inputs.x0, inputs.noise):
        tensor.normal_()
    backward, begun = parts.stepper.backward, list[float]()

    def timed_backward(weighted: torch.Tensor) -> None:
        begun.append(time.thread_time())
        backward(weighted)
        begun.append(time.thread_time())

    parts.stepper.backward = timed_backward  # type: ignore[method-assign]
    parts.stepper.accumulate(inputs, 0)  # pays for what is set up once
    came.clear()
    parts.stepper.accumulate(inputs, 0)
    start, end = begun[-2:]
    whole = sum(parameter.numel() for parameter in came)
    return tuple(
        Moment((max(came[p] for p in bucket) - start) / (end - start), sum(p.numel() for p in bucket) / whole)
        for bucket in cut([*came])
    )


# Against processes here


def worker() -> None:
    """One of the processes that are timed: its share of the work alone, the sum alone, and whole steps."""
    from safelight.data.prepare import open_images
    from safelight.processes.group import join_group
    from safelight.training.build import build, infer_data_settings

    torch.set_num_threads(1)
    processes = int(os.environ["WORLD_SIZE"])
    settings = CHECK | {"train.batch_size": CHECK["train.batch_size"] * processes, "train.device": "cpu"}
    config = resolve(preset="digits", settings=settings)
    with join_group(config.train) as group:
        images = group.local_main_first(lambda: open_images(config.data))
        parts = build(infer_data_settings(config, images), images, lambda _: None, group=group)
        inputs = parts.loader.load(0)
        flat = torch.zeros(sum(parameter.numel() for parameter in parts.state.model.parameters()))
        for step in range(3):
            parts.stepper.step(inputs, step)
        sums = [timed(lambda: group.wait(group.start_all_reduce(flat))) for _ in range(20)]
        steps = [timed(lambda step=step: parts.stepper.step(inputs, step)) for step in range(3, 33)]
        if group.is_main:
            print(json.dumps({"sum": statistics.median(sums), "step": statistics.median(steps)}), flush=True)


def check() -> list[Sequence[object]]:
    """Predicted from one process and from the sum alone; `cores` says how many can work at the same time."""
    cores = len(os.sched_getaffinity(0))
    found = {processes: launch(processes) for processes in CHECKED}
    alone = found[1]["step"]
    rows: list[Sequence[object]] = []
    for processes, each in found.items():
        predicted = alone * max(1.0, processes / cores) + (each["sum"] if processes > 1 else 0.0)
        told = f"{1000 * each['step']:.1f} ms", f"{1000 * predicted:.1f} ms", f"{each['step'] / predicted:.2f}"
        rows.append((processes, f"{1000 * each['sum']:.1f} ms", *told))
    return rows


def launch(processes: int) -> dict[str, float]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [*command, "-m", "bench.horizon", "--worker"],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(lines[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the sums with 1, 2 and 4 processes here")
    parser.add_argument("--parameters", type=float, help="of a model of your own; with --gigaflops")
    parser.add_argument("--gigaflops", type=float, help="of one image, forward and backward")
    parser.add_argument("--images", type=int, default=16, help="of one process in a step")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker()
        return
    if (given.parameters is None) != (given.gigaflops is None):
        parser.error("--parameters and --gigaflops go together")
    if given.parameters is None:
        chosen = list(networks())
    else:
        chosen = [Network("yours", int(given.parameters), given.gigaflops * 1e9, given.images)]
    write_table("horizon", "What a run would cost on many devices", HEADS, list(rows_of(chosen)), NOTES)
    write_table("horizon-checkpoints", "What checkpoints would cost", SAVED, list(saved_of(chosen)), SAVED_NOTES)
    if given.check:
        heads = ("processes", "one sum", "a step", "predicted", "measured over predicted")
        write_table("horizon-check", "The same sums against processes here", heads, check(), CHECK_NOTES)


HEADS = ("model", "a process sends", "devices", *(cluster.name for cluster in CLUSTERS))
NOTES = (
    f"Each cell: efficiency with one pass of a process in a step / with {SHARDS}, as of train.shards with so many for "
    "each process, where sums run beside the last pass only. What smaller passes cost by themselves is not in it. "
    "Images for each process stay the same, so the batch grows with the processes.",
    "Assumed, in the order of the columns: "
    + "; ".join(
        f"{each.per_machine} devices in a machine, {each.inside / 1e9:g} GB/s for each, {each.between / 1e9:g} GB/s "
        f"between machines, {each.latency * 1e6:g} µs a message, {each.operations / 1e12:g} Tflop/s that a U-Net gets"
        for each in CLUSTERS
    )
    + ".",
    "Computed, not measured: no cluster was at hand. Not in it: waiting for data, evaluations, stragglers.",
)
SAVED = ("model", "checkpoint", "devices", "stands still", "on disk after", "a failure every", "save every", "lost")
SAVED_NOTES = (
    f"On {FAST.name}, one folder of {FAST.disk / 1e9:g} GB/s. A checkpoint is {COPIES} times the weights: weights, "
    "two averages, two moments. The first process writes it, beside the training.",
    f"A device fails every {FAST.hours:,.0f} hours, and {FAST.restart:g} s pass from a failure to the next step. Save "
    "every: where stalls and lost work are least together; a shorter interval costs little.",
)
CHECK_NOTES = (
    f"{os.cpu_count()} cores; the digits' network, {CHECK['train.batch_size']} images and one thread for each process, "
    "gloo on one machine. Predicted: the step of one process, times processes over cores where there are more, and one "
    "sum. Medians.",
)


def rows_of(chosen: Sequence[Network]) -> Iterator[Sequence[object]]:
    for network in chosen:
        for devices in SIZES:
            cells = [
                " / ".join(f"{efficiency(network, devices, each, passes=passes):.0%}" for passes in (1, SHARDS))
                for each in CLUSTERS
            ]
            name = f"{network.name}, {network.parameters / 1e6:,.0f} M, {network.images} images"
            yield (name, f"{traffic(network.parameters, devices) / 1e6:,.0f} MB", devices, *cells)


def saved_of(chosen: Sequence[Network]) -> Iterator[Sequence[object]]:
    for network in chosen:
        for devices in SIZES:
            each = saving(network, devices, FAST)
            yield (
                network.name,
                f"{each.bytes / 1e9:.2f} GB",
                devices,
                f"{1000 * each.stall:.1f} ms",
                f"{each.written:.1f} s",
                f"{each.between / 3600:,.0f} h",
                f"{each.interval:.0f} s",
                f"{each.lost:.3%}",
            )


if __name__ == "__main__":
    main()
