"""Checkpoints that do not restore everything, held-out images that are trained on, and wrong guidance."""

from __future__ import annotations

from safelight import checks
from safelight.diagnosis.rule import Detection, Rule, on_episode, on_latest
from safelight.diagnosis.run_history import RunHistory

GUIDED = 1e-3  # where predictions lie a tenth apart, and the arithmetic is in single precision


def _lost(run: RunHistory) -> tuple[float, float, float, float]:
    model, average, optimizer = (run.latest(check, 0.0) for check in checks.CHECKPOINT.values())
    return model, average, optimizer, run.latest(checks.CHECKPOINT_STEP, 0.0)


def _seen(run: RunHistory, name: str, summary: str) -> Detection:
    return Detection(
        run.latest_step(checks.CHECKPOINT_STEP),
        summary,
        tuple(run.evidence(check, "0") for check in (checks.CHECKPOINT[name], checks.CHECKPOINT_STEP)),
        ("arithmetic: without saving, the steps are the same",),
    )


def look_optimizer(run: RunHistory) -> Detection | None:
    if not _lost(run)[2] < 0.99:
        return _seen(
            run,
            "optimizer",
            "A checkpoint that was loaded does not restore the optimizer's moments: the loss of a resumed run jumps.",
        )
    # Exact: the optimizer's state was empty once. Where it is empty every time, that is another cause.
    episode = run.episode(checks.OPTIMIZER_FORGOTTEN, lambda numbers: numbers == 1)
    if episode is None or episode.looks > 1:
        return None
    return Detection(
        episode.first,
        f"At step {episode.first:,} the optimizer's state was empty: it was not restored from a checkpoint.",
        (run.evidence(checks.OPTIMIZER_FORGOTTEN, "0", episode.first),),
        severity="warning",
    )


def look_average(run: RunHistory) -> Detection | None:
    share = _lost(run)[1]
    if share == 0:
        return None
    return _seen(
        run,
        "average",
        f"A checkpoint that was loaded has different EMA weights ({share:.0%} of them): samples of a resumed run "
        "differ.",
    )


def look_not_exact(run: RunHistory) -> Detection | None:
    model, average, optimizer, step = _lost(run)
    if (model == 0 and step == 0 and optimizer == 0) or average > 0 or optimizer >= 0.99:
        return None
    return _seen(
        run,
        "optimizer" if optimizer else "model",
        "A run that is saved, loaded and continued differs from one that is not: something is missing in the "
        "checkpoint, or rounded.",
    )


def look_overlap(run: RunHistory) -> Detection | None:
    share = run.latest(checks.DATA_HELD_OUT_OVERLAP, 0.0)
    why = "they cannot show whether the model generalises."
    if not share <= 0:
        evidence = (run.evidence(checks.DATA_HELD_OUT_OVERLAP, "0"),)
        return Detection(0, f"{share:.0%} of the held-out images are trained on: {why}", evidence)
    # Exact: rows of a batch are among those that are held out.
    return on_episode(
        run,
        run.episode(checks.ROWS_HELD_OUT, lambda shares: shares > 0),
        lambda episode: (
            f"From step {episode.first:,} on, batches hold images that are held out, "
            f"{run.latest(checks.ROWS_HELD_OUT):.0%} of the last one: {why}"
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
        similar="Without the EMA, the optimizer is right and samples differ.",
        limits="Loops that are not ours: their checkpoints are not checked.",
        fix="Save and load the state of the optimizer.",
        needs=((checks.CHECKPOINT["optimizer"], checks.OPTIMIZER_FORGOTTEN),),
        detect=look_optimizer,
    ),
    Rule(
        code="CHK002",
        cause="checkpoint.average-lost",
        title="Checkpoints without the EMA",
        what=f"{WHAT} The EMA weights are not those that were saved.",
        why="Samples of a resumed run come from different weights.",
        similar="Without the optimizer, the EMA is right.",
        limits="Loops that are not ours.",
        fix="Save and load raw and EMA weights separately.",
        needs=(checks.CHECKPOINT["average"],),
        detect=look_average,
    ),
    Rule(
        code="CHK003",
        cause="checkpoint.not-exact",
        title="Checkpoints that are not exact",
        what=f"{WHAT} The weights after that are not those of steps without it.",
        why="A resumed run is a different run.",
        similar="A part that is missing as a whole is reported by its name.",
        limits="Loops that are not ours.",
        fix="Look for what is rounded, reset or drawn anew.",
        needs=((checks.CHECKPOINT["model"], checks.CHECKPOINT["optimizer"], checks.CHECKPOINT_STEP),),
        detect=look_not_exact,
        # Gradients that are carried over are in no checkpoint, and what is drawn anew differs without one as well.
        explained_by="optimizer. accumulation. conditioning.permuted",
    ),
    Rule(
        code="DAT007",
        cause="data.held-out-overlap",
        title="Held-out images that are trained on",
        what="Images are in both parts of the split.",
        why="Memorisation looks like learning.",
        similar="Images that look alike in both parts are kept together by `safelight data`.",
        limits="Loops that are not ours.",
        fix="Split before anything is drawn.",
        needs=((checks.DATA_HELD_OUT_OVERLAP, checks.ROWS_HELD_OUT),),
        detect=look_overlap,
    ),
    Rule(
        code="CON006",
        cause="conditioning.guidance",
        title="A wrong formula of guidance",
        what="The guided prediction is not on the line through those with and without a label.",
        why="Labels steer samples the wrong way, or not at all.",
        similar="Labels that the network ignores leave guidance without effect.",
        limits="Loops that are not ours.",
        fix="unconditional + scale · (conditional − unconditional).",
        needs=(checks.SAMPLER_GUIDANCE,),
        detect=on_latest(
            checks.SAMPLER_GUIDANCE,
            lambda error: not error <= GUIDED,
            "Guidance of 0 is not the prediction without a label, or guidance of 1 not that with it.",
            "0",
        ),
    ),
)
