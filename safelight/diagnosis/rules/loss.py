"""Losses and gradients that are not finite."""

from __future__ import annotations

import numpy as np

from safelight.diagnosis.case import Case
from safelight.diagnosis.finding import Evidence, Finding, Fix
from safelight.diagnosis.rule import Rule
from safelight.vocabulary import LOSS, NONFINITE_PARAMETERS, REFUSED


def look_nonfinite(case: Case) -> Finding | None:
    """Exact: a number is finite or it is not. What fp16 does while it looks for its scale is no disease."""
    told = [note for note in case.events("refused") if not note.facts.get("overflow")]
    foreign = case.events("nonfinite")
    if not told and not foreign:
        return None
    first = min(note.step for note in (*told, *foreign))
    stops = case.events("stopped")
    steps, losses = case.series(LOSS.name)
    places = stops[0].facts.get("first_nonfinite") if stops else None
    names = next((n.facts.get("nonfinite_gradients") or n.facts.get("parameters") for n in (*told, *foreign)), None)
    evidence = [
        Evidence(REFUSED.name if told else NONFINITE_PARAMETERS.name, float(len(told) or len(foreign)), usual="0")
    ]
    if places:
        evidence.append(Evidence("first_nonfinite", str(places)))
    if names:
        evidence.append(Evidence("parameters", ", ".join(names)))
    number = len(told) or len(foreign)
    what = f"{number} update{'s' * (number != 1)} had a loss or a gradient that was not finite"
    acted = ", and were refused" if told else ""
    since = f"{what}{acted}, the first at step {first:,}"
    where = f". The first such value appeared in {places}" if places else ""
    last = max(note.step for note in (*told, *foreign))
    sound = steps[(steps > last) & np.isfinite(losses)]
    return Finding(
        code="LOS001",
        cause="loss.nonfinite",
        severity="error" if stops or (foreign and not len(sound)) else "warning",
        step=first,
        confidence=1.0,
        summary=f"{since}{where}.",
        evidence=tuple(evidence),
        fix=Fix(
            "Look at the images and timesteps that the event names. If it happens at random steps, lower the learning "
            "rate or lengthen the warm-up; in fp16, use bf16.",
            safety="manual",
        ),
        ruled_out=("fp16 looking for its scale: those refusals are marked as overflow and left out",),
        over=int(sound[0]) if len(sound) else None,
    )


RULES = (
    Rule(
        code="LOS001",
        cause="loss.nonfinite",
        title="A loss or gradient that is not finite",
        what="NaN or infinity in the loss or in a gradient. Safelight's own trainer refuses such an update.",
        why="One such update makes every weight NaN; refused ones are steps that were not trained.",
        alike="fp16 overflows on purpose while it looks for its loss scale; those are not counted here (PRE001 tells "
        "when they never end). A NaN in the data comes back whenever that image is drawn: compare the samples of the "
        "events.",
        misses="Values that are finite and absurd.",
        fix="Take out the image, lower optimizer.lr, lengthen optimizer.warmup, use bf16 instead of fp16.",
        look=look_nonfinite,
    ),
)
