"""What watching costs: step time with and without it, beside what other watches cost the same loop.

    python -m bench.watch                 # a few minutes, on a quiet machine
    python -m bench.watch --rounds 3      # to try it

TensorBoard and W&B are measured where they are installed (they are in the dev extra); W&B runs offline.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor, nn

import safelight
from bench.measure import ratios, spread, write_table
from safelight.config.resolve import resolve
from safelight.data.prepare import open_images
from safelight.diffusion.micro_batch import MicroBatch
from safelight.diffusion.schedule import make_schedule
from safelight.model.unet import predict
from safelight.monitors.suite import FULL_READ_INTERVAL
from safelight.observing.batch_check import BatchCheck
from safelight.observing.observer import Observer
from safelight.probes.probe_runner import ProbeRunner
from safelight.probes.probe_schedule import DENSE_UNTIL_STEP, ProbeSchedule
from safelight.record.store import RecordWriter
from safelight.training.build import Setup, build, infer_data_settings
from safelight.training.network import build_model
from safelight.training.preflight import make_probe_runner

Step = Callable[[int], object]  # told: whether a window was brought to the host
RECORD_THREAD = "safelight-record"
ASKED = "replayed or searched"
WANTED = {"trainer": 0.1, "plain loop": 0.2}  # milliseconds of a step: 1 % and 2 % of one of 10 ms
REPLAY_STEPS, SEARCH_STEPS = 1.4, 3.4  # what the schedule books for them, at a batch of up to 32
HORIZON = 10_000  # steps that replays and searches are spread over
PAIRS = {"short": 3000, "long": 1000}
SIZES: dict[str, dict[str, Any]] = {
    "short": {"model.widths": (8,), "model.norm_groups": 4, "model.attention": (), "train.batch_size": 8},
    "long": {"train.batch_size": 48},
}


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    host: str  # the name of what it is compared with
    step: Step
    is_ours: bool = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--steps", type=int, help="steps of a block; without it, about two seconds")
    given = parser.parse_args()
    rows: list[Sequence[object]] = []
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for size, settings in SIZES.items():
            with contextlib.ExitStack() as stack:
                contenders = list(enter(stack, Path(folder) / size, settings))
                by_name = {contender.name: contender for contender in contenders}
                closely = {
                    seen.name: measure_closely(by_name[seen.host], seen, PAIRS[size])
                    for seen in contenders
                    if seen.is_ours
                }
                seconds = measure(contenders, given.rounds, given.steps)
            for contender in contenders:
                own = spread([1000 * second for second in seconds[contender.name]]).show(".2f")
                factor = ratios(seconds[contender.host], seconds[contender.name]) if contender.host else None
                rows.append((size, contender.name, f"{own} ms", factor.show(".3f") if factor else ""))
            for name, each in closely.items():
                shown = f"{1000 * each.alone:.2f} ms without"
                rows.append((size, f"{name}, step by step", shown, f"{each.factor:.4f} ± {each.error:.4f}"))
                wanted = next(number for kind, number in WANTED.items() if name.startswith(kind))
                notes.append(
                    f"{name}, {size} step: {1000 * each.alone * (each.whole - 1):.2f} ms (wanted: {wanted}), or "
                    f"{each.whole:.4f} with the replays and searches of {HORIZON:,} steps, of which each takes "
                    f"{each.asked:.1f} steps; {each.factor:.4f} without, of which the record's thread is "
                    f"{each.writing:.4f}."
                )
    write_table(
        "watch",
        "What watching costs",
        ("step", "loop", "time of a step, median (quartiles)", "against the same loop without"),
        rows,
        (
            f"{given.rounds} rounds in turns; factors are taken within each round. The trainer is safelight's own step "
            "on the digits (long: the demo's network with a batch of 48; short: one level of 8 channels, batch 8, the "
            "smallest U-Net there is). The plain loop is forward, mean square, backward, AdamW on the same network and "
            "batch.",
            "Step by step: single steps of the two in turns, so that what else the machine does hits both alike. "
            "Medians of the ratios of neighbours: for ordinary steps, for those that bring a window to the host, that "
            "measure magnitudes, are checked closely or more, and that read every weight, in their proportions; what "
            "the record's thread computes is added as if the training waited for all of it. "
            "The blocks are too coarse for a percent.",
            "Recorded: all monitors of every step, the pool, the record on disk. Diagnosed: with all probes of the "
            "live diagnosis; safelight.watch is given everything that it can be given at a step.",
            "Steps that are replayed or searched are not in the factors of the table. There are "
            f"{asked_in(1000)} of them in the first 1,000 steps, {asked_in(10_000)} in 10,000 and "
            f"{asked_in(100_000)} in 100,000.",
            "Tutorial: norm of every parameter and of its gradient by .item(), every step. TensorBoard: the same "
            "numbers through SummaryWriter. wandb.watch: log='all', every 100 backward passes (its default is 1,000), "
            "and the loss by wandb.log at every step, offline.",
            *notes,
        ),
    )


def enter(stack: contextlib.ExitStack, folder: Path, settings: dict[str, Any]) -> Iterator[Contender]:
    config = resolve(preset="digits", settings=settings)
    images = open_images(config.data)
    config = infer_data_settings(config, images)
    unwatched, recorded, diagnosed = (build(config, images, lambda _: None) for _ in range(3))
    alone, seen = trainer(stack, folder / "diagnosed", unwatched, diagnosed)
    yield alone
    step = recording(stack, folder / "recorded", recorded)
    yield Contender("trainer, recorded", alone.name, step, is_ours=True)
    yield seen
    batch = build(config, images, lambda _: None).loader.load(0)[0]
    alphas = make_schedule(config.diffusion).alphas_cumprod

    def network() -> nn.Module:
        return build_model(config).train()

    bare = "plain loop, alone"
    yield Contender(bare, "", plain(network(), batch))
    yield Contender("plain loop, safelight.watch", bare, watched(stack, folder / "own", network(), batch, alphas), True)
    yield Contender("plain loop, tutorial with .item()", bare, tutorial(network(), batch))
    with contextlib.suppress(ImportError):
        yield Contender("plain loop, TensorBoard's writer", bare, tensorboard(stack, folder / "tb", network(), batch))
    with contextlib.suppress(ImportError):
        yield Contender("plain loop, wandb.watch", bare, weights_and_biases(stack, folder / "wandb", network(), batch))


def trainer(stack: contextlib.ExitStack, folder: Path, unwatched: Setup, parts: Setup) -> Iterator[Contender]:
    """Each on a network of its own: hooks of the one must not be in the other."""
    inputs = [unwatched.loader.load(step) for step in range(8)]
    probe_runner = make_probe_runner(parts, print, after_preflight=True)
    probe_runner.attach()

    def step(number: int) -> None:
        unwatched.stepper.step(inputs[number % 8], number)

    alone = Contender("trainer, alone", "", step)
    yield alone
    seen = recording(stack, folder, parts, probe_runner)
    yield Contender("trainer, recorded and diagnosed", alone.name, seen, is_ours=True)


def recording(stack: contextlib.ExitStack, folder: Path, parts: Setup, probe_runner: ProbeRunner | None = None) -> Step:
    """All monitors of a step and the record; probes too, if there is an inspection."""
    folder.mkdir(parents=True)
    record = RecordWriter(folder / "record.sqlite", from_step=0, say=print)
    stack.callback(record.close)
    observer = Observer(record, parts.state.monitors, probe_runner)
    inputs = [parts.loader.load(step) for step in range(8)]
    batch_check = (
        None
        if probe_runner is None
        else BatchCheck(parts.config, parts.images, parts.held_out_ids, parts.runtime.to_device)
    )

    def step(number: int) -> bool:
        view = parts.stepper.step(inputs[number % 8], number, observer=observer)
        compared = () if batch_check is None else batch_check.check(view)
        observer.add(number, [*view.readings, *compared], {"optimizer/lr": view.lr})
        if due := observer.is_due:
            observer.read()
        return due

    return step


def plain(model: nn.Module, batch: MicroBatch, look: Callable[[int, Tensor], None] | None = None) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    return around(model, optimizer, batch, look)


def around(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: MicroBatch,
    look: Callable[[int, Tensor], None] | None,
    after: Callable[..., None] | None = None,
) -> Step:
    def step(number: int) -> None:
        x_t = batch.x0 + batch.noise
        pred = predict(model, x_t, batch.t, batch.labels)
        loss = nn.functional.mse_loss(pred, batch.noise)
        loss.backward()
        if look is not None:
            look(number, loss)
        optimizer.step()
        optimizer.zero_grad()
        if after is not None:
            after(loss, t=batch.t, x0=batch.x0, noise=batch.noise, x_t=x_t, target=batch.noise, pred=pred.detach(),
                  labels=batch.labels)  # fmt: skip

    return step


def watched(stack: contextlib.ExitStack, folder: Path, model: nn.Module, batch: MicroBatch, alphas: Tensor) -> Step:
    """With all that it can be given at a step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    watch = stack.enter_context(
        safelight.watch(model, optimizer, run=folder, schedule=alphas, prediction="epsilon", say=lambda _: None)
    )
    return around(model, optimizer, batch, None, watch.step)


def numbers_of(model: nn.Module) -> dict[str, float]:
    found = {}
    for name, parameter in model.named_parameters():
        found[f"weight/{name}"] = parameter.detach().norm().item()
        if parameter.grad is not None:
            found[f"gradient/{name}"] = parameter.grad.norm().item()
    return found


def tutorial(model: nn.Module, batch: MicroBatch) -> Step:
    def look(step: int, loss: Tensor) -> None:
        numbers_of(model)["loss"] = loss.item()

    return plain(model, batch, look)


def tensorboard(stack: contextlib.ExitStack, folder: Path, model: nn.Module, batch: MicroBatch) -> Step:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))
    stack.callback(writer.close)

    def look(step: int, loss: Tensor) -> None:
        for name, number in ({"loss": loss.item()} | numbers_of(model)).items():
            writer.add_scalar(name, number, step)

    return plain(model, batch, look)


def weights_and_biases(stack: contextlib.ExitStack, folder: Path, model: nn.Module, batch: MicroBatch) -> Step:
    import wandb  # pyright: ignore[reportMissingImports]

    folder.mkdir(parents=True)
    os.environ["WANDB_SILENT"] = "true"
    run = wandb.init(mode="offline", dir=str(folder), project="bench")
    stack.callback(run.finish)
    run.watch(model, log="all", log_freq=100)
    return plain(model, batch, lambda step, loss: run.log({"loss": loss.item()}))


@dataclass(frozen=True, slots=True)
class Closely:
    """What watching makes of a step."""

    alone: float
    """Seconds of a step without."""
    factor: float
    error: float
    """Standard error of the factor, by drawing the pairs again."""
    writing: float
    """Share of the time that the record's thread computes; the factor has it already."""
    asked: float
    """What a step that is replayed or searched costs, in steps; not in the factor."""

    @property
    def whole(self) -> float:
        """The factor of a run of 10,000 steps, with its replays and searches."""
        return self.factor + self.asked * asked_in(HORIZON) / HORIZON


def measure_closely(alone: Contender, seen: Contender, pairs: int) -> Closely:
    """Single steps of the two in turns: finer than blocks on a machine that is never still. The watched one is past
    the first steps, which are all looked at closely."""
    agenda, usual, kinds = ProbeSchedule(), list[float](), dict[str, list[float]]()
    for step in range(DENSE_UNTIL_STEP + 8):
        seen.step(step)
        advance(agenda)
    alone.step(0)
    started, before = time.perf_counter(), thread_seconds(RECORD_THREAD)
    for number in range(DENSE_UNTIL_STEP + 8, DENSE_UNTIL_STEP + 8 + pairs):
        begun = time.perf_counter()
        alone.step(number)
        between = time.perf_counter()
        looked = seen.step(number)
        usual.append(between - begun)
        kinds.setdefault(kind_of(number, agenda, bool(looked)), []).append((time.perf_counter() - between) / usual[-1])
        advance(agenda)
    # The record stores by the clock, not by the step: what counts is its share of the time.
    share = (thread_seconds(RECORD_THREAD) - before) / (time.perf_counter() - started)
    deep = statistics.median(kinds.pop(ASKED, [1.0]))
    found = [np.array(each) for each in kinds.values()]
    generator = np.random.default_rng(0)
    drawn = [in_proportion([generator.choice(each, len(each)) for each in found]) for _ in range(200)]
    factor = in_proportion(found) + share
    return Closely(statistics.median(usual), factor, float(np.std(drawn)), share, deep - 1)


def in_proportion(kinds: Sequence[np.ndarray]) -> float:
    """Medians of the kinds of steps, each as often as it comes."""
    return float(sum(len(each) * np.median(each) for each in kinds) / sum(map(len, kinds)))


def asked_in(steps: int) -> int:
    agenda, found = ProbeSchedule(), 0
    for _ in range(steps):
        found += agenda.due.replay or agenda.due.search
        advance(agenda)
    return found


def advance(agenda: ProbeSchedule) -> None:
    """A step is over, and what was looked at has its price."""
    due = agenda.due
    for is_made, kind, steps in ((due.replay, "replay", REPLAY_STEPS), (due.search, "search", SEARCH_STEPS)):
        if is_made:
            agenda.book(kind, steps)
    agenda.advance()


def kind_of(number: int, agenda: ProbeSchedule, looked: bool) -> str:
    due = agenda.due
    if due.replay or due.search:
        return ASKED
    look = ("thorough" if due.ema else "close") if due.thorough else f"magnitudes {due.magnitudes}"
    return f"every weight {number % FULL_READ_INTERVAL == 0}, {look}, brought to the host {looked}"


def thread_seconds(name: str) -> float:
    """Processor time of the threads of that name."""
    ours = {thread.native_id for thread in threading.enumerate() if thread.name == name}
    return sum(each.user_time + each.system_time for each in psutil.Process().threads() if each.id in ours)


def measure(contenders: Sequence[Contender], rounds: int, steps: int | None) -> dict[str, list[float]]:
    """Seconds of a step in each round; the order turns, so that no one always comes after the same."""
    for contender in contenders:
        for step in range(9_996, 9_999):
            contender.step(step)
    begun = time.perf_counter()
    contenders[0].step(9_999)
    size = steps or max(4, round(2.0 / (time.perf_counter() - begun)) // 4 * 4)
    done = {contender.name: 10_000 for contender in contenders}  # behind the steps that were taken one by one
    seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for turn in range(rounds):
        shift = turn % len(contenders)
        for contender in [*contenders[shift:], *contenders[:shift]]:
            begun = time.perf_counter()
            for _ in range(size):
                contender.step(done[contender.name])
                done[contender.name] += 1
            seconds[contender.name].append((time.perf_counter() - begun) / size)
    return seconds


if __name__ == "__main__":
    main()
