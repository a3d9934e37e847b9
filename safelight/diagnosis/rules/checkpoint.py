"""Checkpoints that do not bring everything back, held-out images that are trained on, guidance that is not."""

from __future__ import annotations

from safelight.diagnosis.case import Case
from safelight.diagnosis.rule import Rule, Seen

GUIDED = 1e-3  # where answers lie a tenth apart, and the arithmetic is in single precision


def _lost(case: Case) -> tuple[float, float, float, float]:
    model, average, optimizer, step = (
        case.newest(f"checkpoint/{name}", 0.0) for name in ("model", "average", "optimizer", "step")
    )
    return model, average, optimizer, step


def _seen(case: Case, name: str, summary: str) -> Seen:
    evidence = tuple(case.evidence(f"checkpoint/{each}", "0") for each in (name, "step"))
    return Seen(
        case.asked("checkpoint/step"), summary, evidence, ("arithmetic: without saving, the steps are the same",)
    )


def look_optimizer(case: Case) -> Seen | None:
    _, _, optimizer, _ = _lost(case)
    if optimizer < 0.99:
        return _look_forgotten(case)
    return _seen(case, "optimizer", "A checkpoint that was loaded does not bring back the optimizer's moments: a "
    "resumed "
                 "run begins with a bump.")  # fmt: skip


def _look_forgotten(case: Case) -> Seen | None:
    """Exact: what the optimizer had gathered was gone once. Where it is gone every time, that is another disease."""
    spell = case.spell("optimizer/forgotten", lambda numbers: numbers == 1)
    if spell is None or spell.looks > 1:
        return None
    return Seen(
        spell.first,
        f"At step {spell.first:,} what the optimizer had gathered over the steps was gone: it began anew, as where a "
        "checkpoint does not bring it back.",
        (case.evidence("optimizer/forgotten", "0", spell.first),),
        severity="warning",
    )


def look_average(case: Case) -> Seen | None:
    _, average, _, _ = _lost(case)
    if average == 0:
        return None
    return _seen(case, "average", f"A checkpoint that was loaded has other averaged weights ({average:.0%} of them): "
                 "samples of a resumed run are others.")  # fmt: skip


def look_not_exact(case: Case) -> Seen | None:
    model, average, optimizer, step = _lost(case)
    if (model == 0 and step == 0 and optimizer == 0) or average > 0 or optimizer >= 0.99:
        return None
    return _seen(case, "optimizer" if optimizer else "model", "A run that is saved, loaded and carried on does not "
    "go the "
                 "way of one that is not: something is missing in the checkpoint, or rounded.")  # fmt: skip


def look_overlap(case: Case) -> Seen | None:
    share = case.newest("data/held_out_overlap", 0.0)
    if share <= 0:
        return _look_drawn(case)
    return Seen(0, f"{share:.0%} of the held-out images are trained on: they cannot tell whether the model "
    f"generalises.",
                (case.evidence("data/held_out_overlap", "0"),))  # fmt: skip


def _look_drawn(case: Case) -> Seen | None:
    """Exact: the numbers of the images of a batch are among those that are held out."""
    spell = case.spell("rows/held_out", lambda shares: shares > 0)
    if spell is None:
        return None
    return Seen(
        spell.first,
        f"From step {spell.first:,} on batches hold images that are held out, {case.newest('rows/held_out'):.0%} of "
        "the last one: they cannot tell whether the model generalises.",
        (case.evidence("rows/held_out", "0", spell.last),),
        over=spell.over,
    )


def look_guidance(case: Case) -> Seen | None:
    if case.newest("sampler/guidance", 0.0) <= GUIDED:
        return None
    return Seen(case.asked("sampler/guidance"), "Guidance of 0 is not the answer without a label, or guidance of 1 "
    "not that "
                "with it.", (case.evidence("sampler/guidance", "0"),))  # fmt: skip


WHAT = "Before the first step a checkpoint is made in memory, loaded, and trained on."

RULES = (
    Rule(
        code="CHK001",
        cause="checkpoint.optimizer-lost",
        title="Checkpoints without the optimizer",
        what=f"{WHAT} The optimizer's moments are not those that were saved.",
        why="Every resume begins like a new run, with a bump in the loss.",
        alike="Without the average, the optimizer is right and samples differ.",
        misses="Loops that are not ours: their checkpoints are not looked at.",
        fix="Save and load the state of the optimizer.",
        look=look_optimizer,
    ),
    Rule(
        code="CHK002",
        cause="checkpoint.average-lost",
        title="Checkpoints without the average",
        what=f"{WHAT} The averaged weights are not those that were saved.",
        why="Samples of a resumed run come from another average.",
        alike="Without the optimizer, the average is right.",
        misses="Loops that are not ours.",
        fix="Save and load raw and averaged weights, each for itself.",
        look=look_average,
    ),
    Rule(
        code="CHK003",
        cause="checkpoint.not-exact",
        title="Checkpoints that are not exact",
        what=f"{WHAT} The weights after that are not those of steps without it.",
        why="A resumed run is another run.",
        alike="A part that is missing as a whole has a name of its own.",
        misses="Loops that are not ours.",
        fix="Look for what is rounded, reset or drawn anew.",
        look=look_not_exact,
        # Gradients that are carried over are in no checkpoint, and what is drawn anew is drawn otherwise without one.
        yields=("optimizer.", "accumulation.", "conditioning.permuted"),
    ),
    Rule(
        code="DAT007",
        cause="data.held-out-overlap",
        title="Held-out images that are trained on",
        what="Images are in both parts of the split.",
        why="Memorising looks like learning.",
        alike="Images that look alike in both parts are kept together by `safelight data`.",
        misses="Loops that are not ours.",
        fix="Split before anything is drawn.",
        look=look_overlap,
    ),
    Rule(
        code="CON006",
        cause="conditioning.guidance",
        title="A wrong formula of guidance",
        what="The guided answer is not on the line through the answers with and without a label.",
        why="Labels steer samples the wrong way, or not at all.",
        alike="Labels that the network ignores leave guidance without effect.",
        misses="Loops that are not ours.",
        fix="plain + scale · (labelled − plain).",
        look=look_guidance,
    ),
)
