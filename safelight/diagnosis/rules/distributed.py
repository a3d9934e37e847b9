"""Processes of one run that have diverged from each other, or wait for one of them."""

from __future__ import annotations

from functools import partial

import numpy as np

from safelight.diagnosis.case import Case, spell_of
from safelight.diagnosis.finding import Evidence
from safelight.diagnosis.rule import Rule, Seen
from safelight.vocabulary import DRIFT, OVERLAP, PROCESS_SECONDS, SAME_NOISE, SLOWEST, WAITING, Signal

SLOW, LOOKS = 1.5, 3  # what equal processes had: bench/results/scale.md
WAITS = 0.15  # of a step: less is not noticeable


def _look_above_zero(case: Case, signal: Signal, words: str) -> Seen | None:
    """An identity: any number above 0 proves it."""
    steps, numbers = case.series(signal)
    spell = spell_of(steps, numbers > 0)
    if spell is None:
        return None
    value = float(numbers[steps == spell.first][0])
    evidence = Evidence(signal.name, value, (spell.first, spell.last), "0")
    return Seen(spell.first, words.format(value), (evidence,), over=spell.over)


def look_straggler(case: Case) -> Seen | None:
    steps, ratios = case.series(SLOWEST)
    waits = dict(zip(*(each.tolist() for each in case.series(WAITING)), strict=True))
    slow = (ratios > SLOW) & np.array([waits.get(step, 0.0) > WAITS for step in steps.tolist()], bool)
    spell = spell_of(steps, slow, LOOKS)
    if spell is None:
        return None
    rank = _slowest(case, spell.last)
    who = "One process" if rank is None else f"Process {rank}"
    seen = slice(int(np.searchsorted(steps, spell.first)), int(np.searchsorted(steps, spell.last)) + 1)
    ratio, wait = float(ratios[seen].mean()), waits.get(spell.last, 0.0)
    return Seen(
        spell.first,
        f"{who} takes {ratio:.1f} times as long for its share as others do, which wait for it {wait:.0%} of a step.",
        (
            Evidence(SLOWEST.name, ratio, (spell.first, spell.last), f"below {SLOW}"),
            Evidence(WAITING.name, wait, (spell.last, spell.last), f"below {WAITS}"),
        ),
        ruled_out=("a slow network: time spent waiting is not counted as work",),
        over=spell.over,
    )


def _slowest(case: Case, step: int) -> str | None:
    """The process that took longest at a step."""
    found: dict[str, float] = {}
    for rank in case.parts(PROCESS_SECONDS):
        steps, seconds = case.series(f"{PROCESS_SECONDS.name}/{rank}")
        if (steps == step).any():
            found[rank] = float(seconds[steps == step][0])
    return str(int(max(found, key=lambda rank: found[rank]))) if found else None


RULES = (
    Rule(
        code="DST001",
        cause="distributed.drift",
        title="Processes have different weights",
        what="The weights of the processes of one run are no longer the same bits.",
        why="Every process makes its updates from the sum of all gradients; with different weights that sum is the "
        "gradient of none of them. The checkpoint holds the first process only.",
        alike="Processes that see different images are meant to. Weights are compared, and bit for bit: all of them "
        "add the same numbers.",
        misses="A difference that is gone again within 64 steps. Buffers such as the running means of batch norm, "
        "which do differ.",
        fix="Resume from the last checkpoint before it began. If it comes again: a device that computes wrongly, a "
        "process with another version of torch, or code that changes weights on one process only.",
        needs=(DRIFT,),
        look=partial(
            _look_above_zero,
            signal=DRIFT,
            words="{:.0f} processes have different weights than the first one: they no longer train the same model, "
            "and the checkpoint holds only one of them.",
        ),
    ),
    Rule(
        code="DST002",
        cause="distributed.same-noise",
        title="Two processes draw the same noise",
        what="The noise of a step is the same on several processes.",
        why="Their gradients are not independent: the batch is smaller than it seems.",
        alike="Timesteps may be equal by chance, noise of thousands of numbers never is.",
        misses="Noise that is partly the same.",
        fix="Let the seed of a process depend on its rank (RANK); start the processes by torchrun or accelerate.",
        needs=(SAME_NOISE,),
        look=partial(
            _look_above_zero,
            signal=SAME_NOISE,
            words="{:.0f} processes draw the same noise as another: they have the same seed and rank.",
        ),
    ),
    Rule(
        code="DST003",
        cause="distributed.overlap",
        title="Processes train on the same images",
        what="Within one pass over the images, an image comes on several processes in the same step.",
        why="The batch is smaller than it seems, and an epoch does not show every image once.",
        alike="Where a batch continues into the next pass, an image may come twice: such steps are not checked. Nor "
        "are balanced classes, and images in quarantine.",
        misses="Images that two processes see in different steps.",
        fix="Give every process its own rows of the batch, by its rank (RANK).",
        needs=(OVERLAP,),
        look=partial(
            _look_above_zero,
            signal=OVERLAP,
            words="{:.0%} of the samples of a step are images that another process has in the same step: the batch is "
            "smaller than it seems.",
        ),
    ),
    Rule(
        code="DST004",
        cause="distributed.straggler",
        title="All processes wait for one",
        what="One process needs much longer for its share than the others, over 192 steps and more.",
        why="A step ends with its slowest process: the others are idle.",
        alike="A slow network makes all wait, and no process work longer. A slow loader shows in the share of waiting "
        "for images.",
        misses="GPUs: the time of the host is measured, which does not wait for them.",
        fix="Check that machine: other programs, heat, a slower disk or device. Remove or replace it.",
        needs=(SLOWEST, WAITING),
        look=look_straggler,
        severity="warning",
    ),
)
