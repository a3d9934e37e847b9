"""What the machine does: loaders that keep it waiting, memory that is wasted, processes that disagree or wait."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import AtLeast, Detection, Detector, error_rule, on_latest, warning_rule
from safelight.diagnosis.run_history import RunHistory, episode_of
from safelight.vocabulary import (
    DATA_APART,
    DATA_WAIT,
    DRIFT,
    GRADIENTS_APART,
    OVERLAP,
    PROCESS_SECONDS,
    REDUCTION,
    SAME_NOISE,
    SLOWEST,
    WAITING,
    Signal,
)

OTHER_LOADER = Fix(
    "Raise num_workers of the DataLoader, and decode and resize the images once instead of in every epoch; look also "
    "at what else the loop does between its steps."
)
STARVED_SHARE, WINDOWS = 0.3, 4  # the demo waits 0.9 % of a step; four looks are 64 steps
MOSTLY_STARVED_SHARE = 0.6  # of a step: more is the loader in any loop
SLOW_PROCESS_FACTOR, LOOKS = 1.5, 3  # what equal processes had: bench/results/scale.md
WAITS = 0.15  # of a step: less is not noticeable
SUMMED, SUMMED_LOOKS = 1.5, 2  # half way to a sum over two processes
DATA_LOOKS = 3
# Of a foreign loop, that may draw with replacement and fill up the last batch of an epoch
SAME_DATA, SAME_LOOKS = 0.9, 2


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
        fix=None if run.config is not None else OTHER_LOADER,
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


def used_twice(signal: Signal, summary: str, least: float) -> Detector:
    """In our own runs an identity. In a user's loop a chance may repeat some: most have to, again and again."""
    exact = above_zero(signal, summary)

    def detect(run: RunHistory) -> Detection | None:
        if run.config is not None:
            return exact(run)
        episode = run.episode(signal, lambda numbers: numbers >= least, SAME_LOOKS)
        if episode is None:
            return None
        value = float(run.during(signal, episode)[-1])
        evidence = Evidence(signal.name, value, (episode.first, episode.last), "0")
        return Detection(
            episode.first, summary.format(value), (evidence,), ended_at=episode.ended_at, severity="warning"
        )

    return detect


def summed(run: RunHistory) -> Detection | None:
    episode = run.episode(REDUCTION, lambda factors: factors > SUMMED, SUMMED_LOOKS)
    if episode is None:
        return None
    factor = float(run.during(REDUCTION, episode)[-1])
    return Detection(
        episode.first,
        f"The optimizer is given {factor:.3g} times the mean of the gradients of all processes: they are added.",
        (Evidence(REDUCTION.name, factor, (episode.first, episode.last), "1"),),
        ended_at=episode.ended_at,
        # Adam divides by the size of the gradient: it is a choice there, but for a limit of its norm.
        severity="info" if run.latest(checks.OPTIMIZER_ADAPTIVE) == 1 else None,
    )


def other_data(run: RunHistory) -> Detection | None:
    """A process and not the data by chance: means over many batches, and again and again."""
    found = {
        rank: episode
        for rank in run.parts(DATA_APART)
        if (episode := run.episode(f"{DATA_APART.name}/{rank}", lambda apart: apart > 1, DATA_LOOKS)) is not None
    }
    if not found:
        return None
    ranks = sorted(map(int, found))
    rank, episode = max(found.items(), key=lambda each: float(run.during(f"{DATA_APART.name}/{each[0]}", each[1])[-1]))
    apart = float(run.during(f"{DATA_APART.name}/{rank}", episode)[-1])
    who = f"Process {ranks[0]} is" if len(ranks) == 1 else f"Processes {', '.join(map(str, ranks))} are"
    return Detection(
        episode.first,
        f"{who} given data with another mean or deviation than the others.",
        (Evidence(f"{DATA_APART.name}/{rank}", apart, (episode.first, episode.last), "below 1"),),
        ended_at=episode.ended_at,
    )


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
        "add the same numbers. Of sharded weights, those are compared that several processes hold.",
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
        explained_by="distributed.not-reduced",
    ),
    error_rule(
        "DST002",
        "distributed.same-noise",
        "Two processes draw the same noise",
        what="The noise of a step is the same on several processes.",
        why="Their gradients are not independent: the batch is smaller than it seems.",
        similar="Timesteps may be equal by chance, noise of thousands of numbers never is.",
        limits="Noise that is partly the same. In a user's loop that does not pass its noise, the state of torch's "
        "generator is compared, where it is used at every step: it also draws dropout. There it is a warning.",
        fix="Let the seed of a process depend on its rank (RANK); start the processes by torchrun or accelerate.",
        needs=(SAME_NOISE,),
        detect=used_twice(
            SAME_NOISE,
            "{:.0f} processes draw the same noise as another: they have the same seed.",
            1.0,
        ),
    ),
    error_rule(
        "DST003",
        "distributed.overlap",
        "Processes train on the same images",
        what="Within one pass over the images, an image comes on several processes in the same step.",
        why="The batch is smaller than it seems, and an epoch does not show every image once.",
        similar="Where a batch continues into the next pass, an image may come twice: such steps are not checked. Nor "
        "are balanced classes, and images in quarantine. In a user's loop nearly all have to be the same, and it is a "
        "warning: one that draws with replacement shares some by chance.",
        limits="Images that two processes see in different steps.",
        fix="Give every process its own rows of the batch, by its rank (RANK).",
        needs=(OVERLAP,),
        detect=used_twice(
            OVERLAP,
            "{:.0%} of the samples of a step are images that another process has in the same step: the batch is "
            "smaller than it seems.",
            SAME_DATA,
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
        needs=(AtLeast(SLOWEST, LOOKS), WAITING),
        detect=straggler,
    ),
    error_rule(
        "DST005",
        "distributed.not-reduced",
        "Gradients are not averaged over the processes",
        what="Processes that hold the same weights give the optimizer different gradients, or FSDP2 was told not to "
        "reduce them and keeps them from the optimizer.",
        why="Each trains a model of its own on its share of the data, and the checkpoint holds one of them; what FSDP2 "
        "keeps is never used.",
        similar="Gradients of micro-batches differ until the last of an update: those that the optimizer is given are "
        "compared.",
        limits="Averages that are made from time to time on purpose (local SGD).",
        fix="Call DistributedDataParallel and not the model inside of it, and use no_sync() for all micro-batches but "
        "the last; with FSDP2, set_requires_gradient_sync(True) before the last one. Without either, average the "
        "gradients before optimizer.step().",
        needs=(GRADIENTS_APART,),
        detect=above_zero(
            GRADIENTS_APART,
            "{:.0f} processes have gradients that were not averaged with those of the others: each would train a model "
            "of its own.",
        ),
    ),
    warning_rule(
        "DST006",
        "distributed.summed",
        "Gradients are added over the processes",
        what="The optimizer is given the sum of the gradients of all processes, not their mean.",
        why="The rate and the limit of the norm then depend on the number of processes.",
        similar="A loss that is divided by the batch of all processes has to be added: then this is no mistake. With "
        "Adam and its like it is a remark.",
        limits="FSDP1. Of FSDP2 its own setting is read (set_gradient_divide_factor). Gradients that are divided twice "
        "cannot be told from clipped ones.",
        fix="Divide by the number of processes after all_reduce, or use ReduceOp.AVG.",
        needs=(REDUCTION,),
        detect=summed,
    ),
    warning_rule(
        "DST007",
        "distributed.other-data",
        "Processes are given different kinds of data",
        what="The mean or the deviation of the data of one process is not that of the others, over many batches.",
        why="The model learns a mixture that none of the settings describes, such as images in [0, 1] and in [-1, 1].",
        similar="Parts of a dataset differ somewhat: by one deviation, or by half in scale, they do not.",
        limits="Data of another kind with the same mean and deviation. Two processes cannot be told apart: which of "
        "them is wrong is not known.",
        fix="Let every process read the same files in the same way: compare its arguments, its copy of the data and "
        "its transforms with those of the others.",
        needs=(DATA_APART,),
        detect=other_data,
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
        needs=(AtLeast(DATA_WAIT, WINDOWS + 1),),
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
