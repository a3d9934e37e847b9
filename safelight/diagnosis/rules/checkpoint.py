"""Checkpoints that do not restore everything, held-out images that are trained on, and wrong guidance."""

from __future__ import annotations

from safelight import checks
from safelight.diagnosis.case import Case
from safelight.diagnosis.rule import Rule, Seen, on_latest, on_spell

GUIDED = 1e-3  # where predictions lie a tenth apart, and the arithmetic is in single precision


def _lost(case: Case) -> tuple[float, float, float, float]:
    model, average, optimizer = (case.latest(check, 0.0) for check in checks.CHECKPOINT.values())
    return model, average, optimizer, case.latest(checks.CHECKPOINT_STEP, 0.0)


def _seen(case: Case, name: str, summary: str) -> Seen:
    return Seen(
        case.latest_step(checks.CHECKPOINT_STEP),
        summary,
        tuple(case.evidence(check, "0") for check in (checks.CHECKPOINT[name], checks.CHECKPOINT_STEP)),
        ("arithmetic: without saving, the steps are the same",),
    )


def look_optimizer(case: Case) -> Seen | None:
    if not _lost(case)[2] < 0.99:
        return _seen(
            case,
            "optimizer",
            "A checkpoint that was loaded does not restore the optimizer's moments: the loss of a resumed run jumps.",
        )
    # Exact: the optimizer's state was empty once. Where it is empty every time, that is another cause.
    spell = case.spell(checks.OPTIMIZER_FORGOTTEN, lambda numbers: numbers == 1)
    if spell is None or spell.looks > 1:
        return None
    return Seen(
        spell.first,
        f"At step {spell.first:,} the optimizer's state was empty: it started anew, as if a checkpoint did not restore "
        "it.",
        (case.evidence(checks.OPTIMIZER_FORGOTTEN, "0", spell.first),),
        severity="warning",
    )


def look_average(case: Case) -> Seen | None:
    share = _lost(case)[1]
    if share == 0:
        return None
    return _seen(
        case,
        "average",
        f"A checkpoint that was loaded has different EMA weights ({share:.0%} of them): samples of a resumed run "
        "differ.",
    )


def look_not_exact(case: Case) -> Seen | None:
    model, average, optimizer, step = _lost(case)
    if (model == 0 and step == 0 and optimizer == 0) or average > 0 or optimizer >= 0.99:
        return None
    return _seen(
        case,
        "optimizer" if optimizer else "model",
        "A run that is saved, loaded and continued differs from one that is not: something is missing in the "
        "checkpoint, or rounded.",
    )


def look_overlap(case: Case) -> Seen | None:
    share = case.latest(checks.DATA_HELD_OUT_OVERLAP, 0.0)
    why = "they cannot show whether the model generalises."
    if not share <= 0:
        evidence = (case.evidence(checks.DATA_HELD_OUT_OVERLAP, "0"),)
        return Seen(0, f"{share:.0%} of the held-out images are trained on: {why}", evidence)
    # Exact: rows of a batch are among those that are held out.
    return on_spell(
        case,
        case.spell(checks.ROWS_HELD_OUT, lambda shares: shares > 0),
        lambda spell: (
            f"From step {spell.first:,} on, batches hold images that are held out, "
            f"{case.latest(checks.ROWS_HELD_OUT):.0%} of the last one: {why}"
        ),
        {checks.ROWS_HELD_OUT: "0"},
    )


WHAT = "Before the first step a checkpoint is made in memory, loaded, and trained on."

RULES = (
    Rule(
        code="CHK001",
        cause="checkpoint.optimizer-lost",
        title="Checkpoints without the optimizer",
        what=f"{WHAT} The optimizer's moments are not those that were saved.",
        why="Every resume starts like a new run, with a jump of the loss.",
        alike="Without the EMA, the optimizer is right and samples differ.",
        misses="Loops that are not ours: their checkpoints are not checked.",
        fix="Save and load the state of the optimizer.",
        needs=((checks.CHECKPOINT["optimizer"], checks.OPTIMIZER_FORGOTTEN),),
        look=look_optimizer,
    ),
    Rule(
        code="CHK002",
        cause="checkpoint.average-lost",
        title="Checkpoints without the EMA",
        what=f"{WHAT} The EMA weights are not those that were saved.",
        why="Samples of a resumed run come from different weights.",
        alike="Without the optimizer, the EMA is right.",
        misses="Loops that are not ours.",
        fix="Save and load raw and EMA weights separately.",
        needs=(checks.CHECKPOINT["average"],),
        look=look_average,
    ),
    Rule(
        code="CHK003",
        cause="checkpoint.not-exact",
        title="Checkpoints that are not exact",
        what=f"{WHAT} The weights after that are not those of steps without it.",
        why="A resumed run is a different run.",
        alike="A part that is missing as a whole is reported by its name.",
        misses="Loops that are not ours.",
        fix="Look for what is rounded, reset or drawn anew.",
        needs=((checks.CHECKPOINT["model"], checks.CHECKPOINT["optimizer"], checks.CHECKPOINT_STEP),),
        look=look_not_exact,
        # Gradients that are carried over are in no checkpoint, and what is drawn anew differs without one as well.
        yields=("optimizer.", "accumulation.", "conditioning.permuted"),
    ),
    Rule(
        code="DAT007",
        cause="data.held-out-overlap",
        title="Held-out images that are trained on",
        what="Images are in both parts of the split.",
        why="Memorisation looks like learning.",
        alike="Images that look alike in both parts are kept together by `safelight data`.",
        misses="Loops that are not ours.",
        fix="Split before anything is drawn.",
        needs=((checks.DATA_HELD_OUT_OVERLAP, checks.ROWS_HELD_OUT),),
        look=look_overlap,
    ),
    Rule(
        code="CON006",
        cause="conditioning.guidance",
        title="A wrong formula of guidance",
        what="The guided prediction is not on the line through those with and without a label.",
        why="Labels steer samples the wrong way, or not at all.",
        alike="Labels that the network ignores leave guidance without effect.",
        misses="Loops that are not ours.",
        fix="unconditional + scale · (conditional − unconditional).",
        needs=(checks.SAMPLER_GUIDANCE,),
        look=on_latest(
            checks.SAMPLER_GUIDANCE,
            lambda error: not error <= GUIDED,
            "Guidance of 0 is not the prediction without a label, or guidance of 1 not that with it.",
            "0",
        ),
    ),
)
