"""Checkpoints that do not restore everything."""

from __future__ import annotations

from safelight import checks
from safelight.diagnosis.rule import Detection, error_rule, first_of, on_latest
from safelight.diagnosis.run_history import RunHistory

SAME_WITHOUT = "arithmetic: without saving, the steps are the same"


def forgotten_once(run: RunHistory) -> Detection | None:
    """Exact: the optimizer's state was empty once. Where it is empty every time, that is another cause."""
    episode = run.episode(checks.OPTIMIZER_FORGOTTEN, lambda numbers: numbers == 1)
    if episode is None or episode.looks > 1:
        return None
    return Detection(
        episode.first,
        f"At step {episode.first:,} the optimizer's state was empty: it was not restored from a checkpoint.",
        (run.evidence(checks.OPTIMIZER_FORGOTTEN, "0", episode.first),),
        severity="warning",
    )


def resumed_without_moments(run: RunHistory) -> Detection | None:
    step = run.latest(checks.RESUME_STEP, 0.0)
    if not (step > 0 and run.latest(checks.RESUME_OPTIMIZER, 1.0) == 0):
        return None
    return Detection(
        int(step),
        f"The loop continues from step {step:,.0f}, and the optimizer's state is empty: it was not loaded.",
        run.evidence_of({checks.RESUME_STEP: None, checks.RESUME_OPTIMIZER: "above 0"}),
        severity="warning",
    )


def resumed_with_copy(run: RunHistory) -> Detection | None:
    """An average of many updates equals the last weights to the last bit only where it was made from them."""
    step = run.latest(checks.RESUME_STEP, 0.0)
    if not (step > 0 and run.latest(checks.RESUME_COPIED, 0.0) == 1):
        return None
    return Detection(
        int(step),
        f"The loop continues from step {step:,.0f}, and its EMA equals the weights to the last bit: it was made anew, "
        "not loaded.",
        run.evidence_of({checks.RESUME_STEP: None, checks.RESUME_COPIED: "0"}),
        ("an EMA of another network: that would differ from the weights",),
        severity="warning",
    )


def not_exact(run: RunHistory) -> Detection | None:
    readings = (*checks.CHECKPOINT.values(), checks.CHECKPOINT_STEP)
    model, average, optimizer, step = (run.latest(reading, 0.0) for reading in readings)
    if (model == 0 and step == 0 and optimizer == 0) or average > 0 or optimizer >= 0.99:
        return None
    return Detection(
        run.latest_step(checks.CHECKPOINT_STEP),
        "A run that is saved, loaded and continued differs from one that is not: something is missing in the "
        "checkpoint, or rounded.",
        run.evidence_of({checks.CHECKPOINT["optimizer" if optimizer else "model"]: "0", checks.CHECKPOINT_STEP: "0"}),
        (SAME_WITHOUT,),
    )


WHAT = "Before the first step a checkpoint is made in memory, loaded, and trained on."

RULES = (
    error_rule(
        "CHK001",
        "checkpoint.optimizer-lost",
        "Checkpoints without the optimizer",
        what=f"{WHAT} The optimizer's moments are not those that were saved.",
        why="Every resume starts like a new run, with a jump of the loss.",
        similar="Without the EMA, the optimizer is right and samples differ.",
        limits="Of loops that are not ours only what they have after watch(…, step=N).",
        fix="Save and load the state of the optimizer.",
        needs=((checks.CHECKPOINT["optimizer"], checks.OPTIMIZER_FORGOTTEN, checks.RESUME_OPTIMIZER),),
        detect=first_of(
            on_latest(
                {checks.CHECKPOINT["optimizer"]: "0", checks.CHECKPOINT_STEP: "0"},
                lambda lost, _: not lost < 0.99,
                "A checkpoint that was loaded does not restore the optimizer's moments: the loss of a resumed run "
                "jumps.",
                SAME_WITHOUT,
            ),
            forgotten_once,
            resumed_without_moments,
        ),
    ),
    error_rule(
        "CHK002",
        "checkpoint.average-lost",
        "Checkpoints without the EMA",
        what=f"{WHAT} The EMA weights are not those that were saved.",
        why="Samples of a resumed run come from different weights.",
        similar="Without the optimizer, the EMA is right.",
        limits="Of loops that are not ours only what they have after watch(…, step=N).",
        fix="Save and load raw and EMA weights separately.",
        needs=((checks.CHECKPOINT["average"], checks.RESUME_COPIED),),
        detect=first_of(
            on_latest(
                {checks.CHECKPOINT["average"]: "0", checks.CHECKPOINT_STEP: "0"},
                lambda share, _: share != 0,
                "A checkpoint that was loaded has different EMA weights ({:.0%} of them): samples of a resumed run "
                "differ.",
                SAME_WITHOUT,
            ),
            resumed_with_copy,
        ),
    ),
    error_rule(
        "CHK003",
        "checkpoint.not-exact",
        "Checkpoints that are not exact",
        what=f"{WHAT} The weights after that are not those of steps without it.",
        why="A resumed run is a different run.",
        similar="A part that is missing as a whole is reported by its name.",
        limits="Loops that are not ours.",
        fix="Look for what is rounded, reset or drawn anew.",
        needs=((checks.CHECKPOINT["model"], checks.CHECKPOINT["optimizer"], checks.CHECKPOINT_STEP),),
        detect=not_exact,
        # Gradients that are carried over are in no checkpoint, and what is drawn anew differs without one as well.
        explained_by="optimizer. accumulation. conditioning.permuted",
    ),
)
