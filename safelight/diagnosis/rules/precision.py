"""fp16 that never finds its scale."""

from __future__ import annotations

from safelight.diagnosis.case import Case
from safelight.diagnosis.finding import Evidence, Finding, Fix
from safelight.diagnosis.rule import Rule
from safelight.vocabulary import LOSS_SCALE, REFUSED

WINDOW, SHARE = 20, 0.5  # a healthy scale refuses one update in 2,000, and at most 16 in a row at the very start


def look_scale_halving(case: Case) -> Finding | None:
    steps, refused = case.series(REFUSED.name)
    if len(steps) < WINDOW or (not case.events("refused") and not refused.any()):
        return None
    overflow = {note.step for note in case.events("refused") if note.facts.get("overflow")}
    own = bool(case.events("refused"))
    hits = [bool(r) and (not own or int(s) in overflow) for s, r in zip(steps, refused, strict=True)]
    recent = hits[-WINDOW:]
    if sum(recent) < SHARE * WINDOW:
        return None
    places, scales = case.series(LOSS_SCALE.name)
    first = next(int(s) for s, hit in zip(steps[-WINDOW:], recent, strict=True) if hit)
    scale = (
        () if not len(scales) else (Evidence(LOSS_SCALE.name, float(scales[-1]), (int(places[0]), int(places[-1]))),)
    )
    return Finding(
        code="PRE001",
        cause="precision.scale-halving",
        severity="error",
        step=first,
        confidence=1.0,
        summary=f"{sum(recent)} of the last {WINDOW} updates overflowed in fp16: the loss scale is halved without end.",
        evidence=(
            Evidence(REFUSED.name, sum(recent) / WINDOW, (int(steps[-WINDOW]), int(steps[-1])), "below 0.01"),
            *scale,
        ),
        fix=Fix("Train in bf16, or in fp32 where the device has no bf16.", {"train.precision": "bf16"}, "safe"),
        ruled_out=("the search for a scale at the start: it ends after 16 halvings",),
    )


RULES = (
    Rule(
        code="PRE001",
        cause="precision.scale-halving",
        title="A loss scale that is halved without end",
        what="fp16 overflows at nearly every step, whatever the scale.",
        why="No update is made, and the run stands still.",
        alike="A few halvings at the start are how the scale is found. A NaN that does not come from fp16 is not "
        "marked as overflow (LOS001).",
        misses="Gradients that vanish in fp16 instead of overflowing.",
        fix="train.precision bf16 or fp32; find the layer whose activations exceed 65,504.",
        look=look_scale_halving,
    ),
)
