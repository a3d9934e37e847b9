"""What the machine does: loaders that keep it waiting, memory that is wasted, processes that disagree or wait."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Detection, Detector, Several, error_rule, on_latest, warning_rule
from safelight.diagnosis.run_history import RunHistory, episode_of
from safelight.vocabulary import DATA_WAIT, DRIFT, OVERLAP, PROCESS_SECONDS, SAME_NOISE, SLOWEST, WAITING, Signal

STARVED_SHARE, WINDOWS = 0.3, 4  # the demo waits 0.9 % of a step; four looks are 64 steps
MOSTLY_STARVED_SHARE = 0.6  # of a step: more is the loader in any loop
SLOW_PROCESS_FACTOR, LOOKS = 1.5, 3  # what equal processes had: bench/results/scale.md
WAITS = 0.15  # of a step: less is not noticeable


def starved_loader(run: RunHistory) -> Detection | None:
    steps, shares = run.series(DATA_WAIT)
    episode = run.episode(DATA_WAIT, lambda shares: shares > STARVED_SHARE, WINDOWS)
    if len(steps) < WINDOWS + 1 or episode is None or episode.ended_at is not None:
        return None
    share = float(shares[-WINDOWS:].mean())
    return Detection(
        episode.first,
        f"{share:.0%} of every step is spent waiting for images.",
        (Evidence(DATA_WAIT.name, share, (episode.first, episode.last), "below 0.05"),),
        ("a slow start: only the last 64 steps are counted",),
        # On a busy machine loaders wait for their turn, in a foreign loop also for its logging and pictures. Time is
        # lost, nothing of the model.
        severity="info" if run.config is None and share < MOSTLY_STARVED_SHARE else None,
    )


def above_zero(signal: Signal, summary: str) -> Detector:
    """An identity: any number above 0 proves it."""

    def detect(run: RunHistory) -> Detection | None:
        if (episode := run.episode(signal, lambda numbers: numbers > 0)) is None:
            return None
        value = float(run.during(signal, episode)[0])
        evidence = Evidence(signal.name, value, (episode.first, episode.last), "0")
        return Detection(episode.first, summary.format(value), (evidence,), ended_at=episode.ended_at)

    return detect


def straggler(run: RunHistory) -> Detection | None:
    steps, ratios = run.series(SLOWEST)
    waits = run.at(WAITING, steps, 0.0)
    episode = episode_of(steps, (ratios > SLOW_PROCESS_FACTOR) & (waits > WAITS), LOOKS)
    if episode is None:
        return None
    rank = _slowest(run, episode.last)
    who = "One process" if rank is None else f"Process {rank}"
    ratio, wait = float(run.during(SLOWEST, episode).mean()), float(waits[steps == episode.last][0])
    return Detection(
        episode.first,
        f"{who} takes {ratio:.1f} times as long for its share as others do, which wait for it {wait:.0%} of a step.",
        (
            Evidence(SLOWEST.name, ratio, (episode.first, episode.last), f"below {SLOW_PROCESS_FACTOR}"),
            Evidence(WAITING.name, wait, (episode.last, episode.last), f"below {WAITS}"),
        ),
        ruled_out=("a slow network: time spent waiting is not counted as work",),
        ended_at=episode.ended_at,
    )


def _slowest(run: RunHistory, step: int) -> str | None:
    """The process that took longest at a step."""
    at = np.array([step])
    seconds = {rank: float(run.at(f"{PROCESS_SECONDS.name}/{rank}", at)[0]) for rank in run.parts(PROCESS_SECONDS)}
    found = {rank: each for rank, each in seconds.items() if not np.isnan(each)}
    return str(int(max(found, key=lambda rank: found[rank]))) if found else None


RULES = (
    error_rule(
        "DST001",
        "distributed.drift",
        "Processes have different weights",
        what="The weights of the processes of one run are no longer the same bits.",
        why="Every process makes its updates from the sum of all gradients; with different weights that sum is the "
        "gradient of none of them. The checkpoint holds the first process only.",
        similar="Processes that see different images are meant to. Weights are compared, and bit for bit: all of them "
        "add the same numbers.",
        limits="A difference that is gone again within 64 steps. Buffers such as the running means of batch norm, "
        "which do differ.",
        fix="Resume from the last checkpoint before it began. If it comes again: a device that computes wrongly, a "
        "process with another version of torch, or code that changes weights on one process only.",
        needs=(DRIFT,),
        detect=above_zero(
            DRIFT,
            "{:.0f} processes have different weights than the first one: they no longer train the same model, "
            "and the checkpoint holds only one of them.",
        ),
    ),
    error_rule(
        "DST002",
        "distributed.same-noise",
        "Two processes draw the same noise",
        what="The noise of a step is the same on several processes.",
        why="Their gradients are not independent: the batch is smaller than it seems.",
        similar="Timesteps may be equal by chance, noise of thousands of numbers never is.",
        limits="Noise that is partly the same.",
        fix="Let the seed of a process depend on its rank (RANK); start the processes by torchrun or accelerate.",
        needs=(SAME_NOISE,),
        detect=above_zero(
            SAME_NOISE,
            "{:.0f} processes draw the same noise as another: they have the same seed and rank.",
        ),
    ),
    error_rule(
        "DST003",
        "distributed.overlap",
        "Processes train on the same images",
        what="Within one pass over the images, an image comes on several processes in the same step.",
        why="The batch is smaller than it seems, and an epoch does not show every image once.",
        similar="Where a batch continues into the next pass, an image may come twice: such steps are not checked. Nor "
        "are balanced classes, and images in quarantine.",
        limits="Images that two processes see in different steps.",
        fix="Give every process its own rows of the batch, by its rank (RANK).",
        needs=(OVERLAP,),
        detect=above_zero(
            OVERLAP,
            "{:.0%} of the samples of a step are images that another process has in the same step: the batch is "
            "smaller than it seems.",
        ),
    ),
    warning_rule(
        "DST004",
        "distributed.straggler",
        "All processes wait for one",
        what="One process needs much longer for its share than the others, over 192 steps and more.",
        why="A step ends with its slowest process: the others are idle.",
        similar="A slow network makes all wait, and no process work longer. A slow loader shows in the time "
        "spent waiting for images.",
        limits="GPUs: the time of the host is measured, which does not wait for them.",
        fix="Check that machine: other programs, heat, a slower disk or device. Remove or replace it.",
        needs=(Several(SLOWEST, LOOKS), WAITING),
        detect=straggler,
    ),
    warning_rule(
        "SYS001",
        "system.starved-loader",
        "Training waits for images",
        what="Most of a step is spent waiting for its batch.",
        why="The device is idle: the same run could take half the time.",
        similar="A slow step with little waiting is the model's own work.",
        limits="In a user's loop it is a remark below 60 %: other work between steps counts as waiting.",
        fix="Let threads prepare batches ahead, or put the cache on a faster disk (data.cache).",
        default_fix=Fix("", {"data.workers": 4}, "safe"),
        needs=(Several(DATA_WAIT, WINDOWS + 1),),
        detect=starved_loader,
    ),
    warning_rule(
        "SYS002",
        "system.sampling-with-gradients",
        "Sampling with gradients",
        what="Gradients are not switched off while samples are drawn.",
        why="Memory grows with every step of the sampler, for nothing.",
        fix="torch.no_grad() or torch.inference_mode() around the sampler.",
        needs=(checks.SAMPLER_WITH_GRADIENTS,),
        detect=on_latest(
            {checks.SAMPLER_WITH_GRADIENTS: "0"},
            lambda flag: flag == 1,
            "The sampler keeps the graph for gradients: its memory grows with every step.",
        ),
    ),
)
