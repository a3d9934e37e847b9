"""Puts a loop that is not ours under watch: `watch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from safelight.config.tree import Features
from safelight.observing.live_diagnosis import OnFinding
from safelight.watching.arguments import PreviewIntervals, Space, WatchArguments
from safelight.watching.foreign import is_first_process
from safelight.watching.loop import Watch
from safelight.watching.ranks.joining import OptimizerStepCounts, join_as_member
from safelight.watching.silent_watch import NullWatch
from safelight.watching.watched_run import WatchedRun
from safelight.words import print_to_stderr


def watch(
    model: nn.Module,
    optimizer: Any = None,
    *,
    run: str | Path | None = None,
    ema: Any = None,
    process: Any = None,
    schedule: Any = None,
    prediction: str | None = None,
    sampler: Callable[..., Tensor] | None = None,
    data: Any = None,
    held_out: Any = None,
    scaler: Any = None,
    step: int = 0,
    steps: int | None = None,
    space: Space | None = None,
    loggers: str | Sequence[str] = (),
    sample_every: int | None = None,
    evaluate_every: int | None = None,
    features: Features = "lite0",
    target_distance: float | None = None,
    say: Callable[[str], None] | None = None,
    on_finding: OnFinding | None = None,
) -> Watch | NullWatch:
    """Puts a training loop under watch; nothing but the model is needed, and nothing that is given is touched.

    `run`: the folder of the record; without it runs/watch-1, runs/watch-2, … `process`: how x_t is made: a diffusers
    scheduler of any kind, a tensor of alphas_cumprod, a safelight.Process, or two functions (a, s) of t; without it the
    watch recognises it where x0, noise and x_t are passed. `schedule`: the same, by its older name.

    `scaler`: a torch.amp.GradScaler, so that updates it skips are counted; accelerate's is found by itself. `step`:
    updates that were made before, when a loop is resumed: what was recorded from there on is replaced. `steps`: how
    many updates are planned in all. `space`: pixel or latent, where the data does not show it. `loggers`: tensorboard,
    wandb, jsonl, in a list or separated by commas. For the diagnosis: `prediction`, what the model predicts: epsilon,
    sample, v_prediction, flow (noise − x0), reverse_flow (x0 − noise), score or edm; `sampler(model, noise)`, which
    returns samples and uses only the model it is given; `data`, a tensor, an array or a Dataset of images as the loop
    trains on them: with process and prediction also for the skill of the model; `held_out`, images of the same kind
    that the loop does not train on, for overfitting.

    With a `sampler`, samples are drawn from the same noise every `sample_every` updates, as pictures of the run; with
    `data` or x0 they are compared with the images every `evaluate_every` updates, by `features` (lite0, inception).
    Unset, both are done at times, within a small share of the time; 0: never. `target_distance`: the distance that is
    aimed at, a line in its chart.

    What is wrong is reported by `say` while the loop runs, on stderr unless it is given; `on_finding` is then called
    with the finding, inside `step`, and may raise to end the training.

    With several processes, call it on all of them: the first one is watched and hears what the others tell it of their
    share, by the store in which they met, so that none waits for another. Of sharded weights (FSDP2, FSDP1) norms are
    those of whole tensors; replicas, reductions and data of the processes are compared. The losses are those of the
    first one's share of the batch.
    """
    often = PreviewIntervals(sample_every, evaluate_every, features, target_distance)
    arguments = WatchArguments(
        model, optimizer, ema, schedule, scaler, prediction, sampler, data, process, often, space, held_out
    )
    say = say or print_to_stderr
    return open_watch(
        arguments, lambda: WatchedRun(run, step, say, steps=steps, loggers=loggers), step, say, on_finding
    )


def open_watch(
    arguments: WatchArguments,
    open_run: Callable[[], WatchedRun],
    step: int,
    say: Callable[[str], None],
    on_finding: OnFinding | None,
    *,
    is_captured: bool = False,
    calls: OptimizerStepCounts | None = None,
) -> Watch | NullWatch:
    """On every process; only the first one opens the run. `calls`: of a script that is captured."""
    if not is_first_process():
        return NullWatch() if is_captured else join_as_member(arguments)
    return Watch(arguments, open_run(), step, say, on_finding, is_captured=is_captured, calls=calls)
