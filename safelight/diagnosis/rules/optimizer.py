"""Updates that do not happen."""

from __future__ import annotations

import numpy as np

from safelight.diagnosis.case import Case
from safelight.diagnosis.finding import Evidence, Finding, Fix
from safelight.diagnosis.rule import Rule
from safelight.vocabulary import GRADIENT_NORM, LEARNING_RATE, REFUSED, UPDATE_RATIO


def look_no_update(case: Case) -> Finding | None:
    """Exact: there was a gradient and a learning rate, the update was not refused, and no weight moved."""
    norms, rates, refused = (
        dict(zip(*case.series(s.name), strict=True)) for s in (GRADIENT_NORM, LEARNING_RATE, REFUSED)
    )
    ratios = [case.series(f"{UPDATE_RATIO.name}/{part}") for part in case.parts(UPDATE_RATIO.name)]
    if not ratios:
        return None
    steps = sorted({int(step) for series, _ in ratios for step in series})
    moved = dict.fromkeys(steps, 0.0)
    for series, numbers in ratios:
        for step, number in zip(series, numbers, strict=True):
            moved[int(step)] = max(moved[int(step)], abs(float(number)))
    asked = [s for s in steps if norms.get(s, 0.0) > 0 and rates.get(s, 1.0) > 0 and not refused.get(s, 0.0)]
    still = [step for step in asked if moved[step] == 0 and np.isfinite(norms[step])]
    if not still or len(still) < len(asked):
        return None
    rate = rates.get(still[-1])
    return Finding(
        code="OPT001",
        cause="optimizer.no-update",
        severity="error",
        step=still[0],
        confidence=1.0,
        summary=f"No weight moved in any of {len(still)} updates that were looked at, though there were gradients.",
        evidence=(
            Evidence(UPDATE_RATIO.name, 0.0, (still[0], still[-1]), "1e-5 to 1e-1"),
            Evidence(GRADIENT_NORM.name, float(norms[still[-1]]), (still[-1], still[-1])),
            *(() if rate is None else (Evidence(LEARNING_RATE.name, float(rate), (still[-1], still[-1])),)),
        ),
        fix=Fix(
            "Is optimizer.step() called, and does the optimizer hold the parameters of this very model? A model that "
            "was copied, moved or wrapped after the optimizer was made has other ones. In fp16 or bf16 weights, an "
            "update smaller than a rounding step is lost: keep the weights in fp32.",
        ),
        ruled_out=("refused updates: they are left out", "a learning rate of 0: those steps are left out"),
    )


RULES = (
    Rule(
        code="OPT001",
        cause="optimizer.no-update",
        title="Gradients, and weights that do not move",
        what="Updates with a gradient and a learning rate leave every weight as it was, to the last bit.",
        why="Nothing is learnt, and the loss looks like a plateau.",
        alike="A converged run moves its weights all the same. With model.detached (MOD002) there is no gradient "
        "either.",
        misses="Weights that move a little less than they should.",
        fix="Call optimizer.step(); make the optimizer from the parameters of the model that is trained.",
        look=look_no_update,
    ),
)
