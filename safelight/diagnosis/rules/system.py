"""A machine that waits."""

from __future__ import annotations

from safelight.diagnosis.case import Case
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Rule, Seen
from safelight.vocabulary import DATA_WAIT

SHARE, LOOKS = 0.3, 4  # the demo waits 0.9 % of a step; four looks are 64 steps


def look_starved(case: Case) -> Seen | None:
    steps, shares = case.series(DATA_WAIT.name)
    if len(steps) < LOOKS + 1 or not (shares[-LOOKS:] > SHARE).all():
        return None
    over = shares > SHARE
    first = len(over) - 1
    while first > 0 and over[first - 1]:
        first -= 1
    return Seen(
        severity="warning",
        step=int(steps[first]),
        confidence=1.0,
        summary=f"{float(shares[-LOOKS:].mean()):.0%} of every step is spent waiting for images.",
        evidence=(
            Evidence(DATA_WAIT.name, float(shares[-LOOKS:].mean()), (int(steps[first]), int(steps[-1])), "below 0.05"),
        ),
        fix=Fix(
            "Let threads prepare batches ahead, or put the cache on a faster disk (data.cache).",
            {"data.workers": 4},
            "safe",
        ),
        ruled_out=("a slow start: the last 64 steps alone are counted",),
    )


RULES = (
    Rule(
        code="SYS001",
        cause="system.starved-loader",
        title="Training waits for images",
        what="Most of a step is spent waiting for its batch.",
        why="The device stands idle: the same run could take half the time.",
        alike="A slow step with little waiting is the model's own work.",
        misses="Waiting in loops that are not ours: they do not tell.",
        fix="data.workers, a faster disk for data.cache.",
        look=look_starved,
    ),
)
