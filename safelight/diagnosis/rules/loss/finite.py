"""Losses and gradients that are not finite."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Evidence
from safelight.diagnosis.rule import Detection
from safelight.diagnosis.run_history import RunHistory, name_of
from safelight.vocabulary import LOSS, NONFINITE_PARAMETERS, REFUSED

OVERFLOWING_ERROR = 1e30  # a squared error of fp32 numbers
MIN_FINITE_AFTER = 24  # finite losses after one that was not: a weight that overflows would have come again


def nonfinite(run: RunHistory) -> Detection | None:
    """Exact: a number is finite or it is not. Overflows of fp16 during the search for a loss scale do not count."""
    refused = [note for note in run.events("refused") if not note.facts.get("overflow")]
    foreign = run.events("nonfinite")
    notes = (*refused, *foreign)
    if not notes:
        return None
    first, last = min(note.step for note in notes), max(note.step for note in notes)
    stops = run.events("stopped")
    steps, losses = run.series(LOSS)
    named = (note.facts.get("first_nonfinite") for note in (*stops[:1], *refused))
    places = next((place for place in named if place), None)
    names = next((n.facts.get("nonfinite_gradients") or n.facts.get("parameters") for n in notes), None)
    number = len(refused) or len(foreign)
    signal = REFUSED if refused else NONFINITE_PARAMETERS
    words = {"first_nonfinite": str(places or ""), "parameters": ", ".join(names or ())}
    what = f"{number} update{'s' * (number != 1)} had a loss or a gradient that was not finite"
    acted = f", and {'were' if number != 1 else 'was'} refused" if refused else ""
    where = f". The first such value appeared in {places}" if places else ""
    finite = steps[(steps > last) & np.isfinite(losses)]
    return Detection(
        first,
        f"{what}{acted}, the first at step {first:,}{where}.",
        (
            Evidence(signal.name, float(number), healthy_range="0"),
            *(Evidence(name, said) for name, said in words.items() if said),
        ),
        ("fp16 searching for its loss scale: those updates are marked as overflow and not counted",),
        severity="error" if stops or (foreign and not len(finite)) else "warning",
        ended_at=int(finite[0]) if len(finite) else None,
    )


def weight_nonfinite(run: RunHistory) -> Detection | None:
    bad = run.steps(checks.NONFINITE["loss"])
    if not len(bad):
        return None
    before = {int(s) for name, check in checks.NONFINITE.items() if name != "loss" for s in run.steps(check)}
    compared = {int(s) for s, error in zip(*run.series(checks.LOSS_MSE), strict=True) if error < OVERFLOWING_ERROR}
    infinite = {int(s) for s in run.steps(checks.NONFINITE_LOSS_NUMBER)}  # NaN may come from what was not shown
    alone = [int(step) for step in bad if int(step) not in before and int(step) in compared | infinite]
    steps, losses = run.series(LOSS)
    passed = len(alone) == 1 and int(np.isfinite(losses[steps > alone[0]]).sum()) >= MIN_FINITE_AFTER
    if not alone or (passed and nonfinite(run) is not None):
        return None  # what comes once is reported as loss.nonfinite
    return Detection(
        alone[0],
        f"In {len(alone)} step{'s' * (len(alone) != 1)} the loss was not finite though prediction and target were: the "
        "loss itself, or its weights, divide by zero or overflow.",
        (Evidence(name_of(checks.NONFINITE["loss"]), 0.0, (alone[0], alone[-1]), "1"),),
        ("the network and the data: they were finite in the same step",),
    )
