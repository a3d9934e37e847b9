"""Averages that are too long for the run."""

from __future__ import annotations

from safelight.config.check import TOLD_INITIAL_SHARE, initial_share
from safelight.diagnosis.case import Case
from safelight.diagnosis.finding import Evidence, Finding, Fix
from safelight.diagnosis.rule import Rule
from safelight.vocabulary import EMA_DECAY


def look_too_long(case: Case) -> Finding | None:
    """Closed form: what the average still holds of the initial weights after the last step."""
    if case.config is None or (share := initial_share(case.config)) <= TOLD_INITIAL_SHARE:
        return None
    decay, steps = case.config.ema.decay, case.config.train.steps
    return Finding(
        code="EMA001",
        cause="ema.too-long",
        severity="error",
        step=0,
        confidence=1.0,
        summary=f"An average with decay {decay} over {steps:,} steps still holds {share:.0%} of the random initial "
        "weights: its samples show them, however good the weights are.",
        evidence=(Evidence(EMA_DECAY.name, decay), Evidence("initial share", share, usual="below 0.01")),
        fix=Fix("Let the average grow with the run.", {"ema.kind": "power"}, "safe"),
        ruled_out=("bad weights: the raw ones are drawn beside the averaged ones at every picture",),
    )


RULES = (
    Rule(
        code="EMA001",
        cause="ema.too-long",
        title="An average longer than the run",
        what="An exponential average without warm-up, with a decay so near 1 that the initial weights are still in it.",
        why="Samples come from the average: they stay noise while the weights are fine.",
        alike="With weights that are bad themselves, samples of the raw weights are bad too.",
        misses="A decay that is a little too long for the speed of the training.",
        fix="ema.kind power, or ema.warmup true, or a smaller ema.decay.",
        look=look_too_long,
    ),
)
