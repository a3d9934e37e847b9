"""Processes of one run that have diverged from each other, or wait for one of them."""

from __future__ import annotations

import numpy as np

from safelight.diagnosis.finding import Evidence
from safelight.diagnosis.rule import Detection, Detector, error, warning
from safelight.diagnosis.run_history import RunHistory, episode_of
from safelight.vocabulary import DRIFT, OVERLAP, PROCESS_SECONDS, SAME_NOISE, SLOWEST, WAITING, Signal

SLOW, LOOKS = 1.5, 3  # what equal processes had: bench/results/scale.md
WAITS = 0.15  # of a step: less is not noticeable


def above_zero(signal: Signal, summary: str) -> Detector:
    """An identity: any number above 0 proves it."""

    def detect(run: RunHistory) -> Detection | None:
        if (episode := run.episode(signal, lambda numbers: numbers > 0)) is None:
            return None
        value = float(run.during(signal, episode)[0])
        evidence = Evidence(signal.name, value, (episode.first, episode.last), "0")
        return Detection(episode.first, summary.format(value), (evidence,), over=episode.over)

    return detect


def straggler(run: RunHistory) -> Detection | None:
    steps, ratios = run.series(SLOWEST)
    waits = run.at(WAITING, steps, 0.0)
    episode = episode_of(steps, (ratios > SLOW) & (waits > WAITS), LOOKS)
    if episode is None:
        return None
    rank = _slowest(run, episode.last)
    who = "One process" if rank is None else f"Process {rank}"
    ratio, wait = float(run.during(SLOWEST, episode).mean()), float(waits[steps == episode.last][0])
    return Detection(
        episode.first,
        f"{who} takes {ratio:.1f} times as long for its share as others do, which wait for it {wait:.0%} of a step.",
        (
            Evidence(SLOWEST.name, ratio, (episode.first, episode.last), f"below {SLOW}"),
            Evidence(WAITING.name, wait, (episode.last, episode.last), f"below {WAITS}"),
        ),
        ruled_out=("a slow network: time spent waiting is not counted as work",),
        over=episode.over,
    )


def _slowest(run: RunHistory, step: int) -> str | None:
    """The process that took longest at a step."""
    at = np.array([step])
    seconds = {rank: float(run.at(f"{PROCESS_SECONDS.name}/{rank}", at)[0]) for rank in run.parts(PROCESS_SECONDS)}
    found = {rank: each for rank, each in seconds.items() if not np.isnan(each)}
    return str(int(max(found, key=lambda rank: found[rank]))) if found else None


RULES = (
    error("DST001", "distributed.drift", "Processes have different weights")(
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
    error("DST002", "distributed.same-noise", "Two processes draw the same noise")(
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
    error("DST003", "distributed.overlap", "Processes train on the same images")(
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
    warning("DST004", "distributed.straggler", "All processes wait for one")(
        what="One process needs much longer for its share than the others, over 192 steps and more.",
        why="A step ends with its slowest process: the others are idle.",
        similar="A slow network makes all wait, and no process work longer. A slow loader shows in the time "
        "spent waiting for images.",
        limits="GPUs: the time of the host is measured, which does not wait for them.",
        fix="Check that machine: other programs, heat, a slower disk or device. Remove or replace it.",
        needs=(SLOWEST, WAITING),
        detect=straggler,
    ),
)
