"""Labels that do not reach the network, or mean nothing."""

from __future__ import annotations

import numpy as np

from safelight.diagnosis.budget import RATE, bound
from safelight.diagnosis.case import Case, spell_of
from safelight.diagnosis.rule import Rule, Seen

MOSTLY = 0.7  # of the labels: a tenth to a half is left out on purpose
ENOUGH = 400  # draws without the extra label: with 5 % of labels dropped, chance has 1e-9
LATE, LEARNT, SMALL = 60, 0.6, 0.05  # steps; share of the zero predictor's loss; share of the loss
MANY = 6  # looks
BELONG = 3.0  # deviations of chance, of all looks together
PLAIN, FADED = 5.0, 0.25  # the same of a single look, where labels plainly belong; share of it that may be chance


def look_ignored(case: Case) -> Seen | None:
    spell = case.silent("network/label_response", "response/labels")
    if spell is None:
        return None
    return Seen(
        spell.first,
        "The output does not change when every label is exchanged, also after a few updates.",
        (case.evidence("network/label_response", "above 0.01"), case.evidence("response/labels", "above 0.001")),
        ("a zero output layer: updates have moved it",),
        over=spell.over,
    )


def _kinds(case: Case) -> tuple[float, float, float, float, float]:
    """(kinds shown to the network, rows of its table, lowest and highest label shown, draws)."""
    names = ("stream/shown_kinds", "network/label_rows", "stream/shown_lowest", "stream/shown_highest",
             "stream/labels_drawn")  # fmt: skip
    kinds, rows, low, high, drawn = (case.newest(name, 0.0) for name in names)
    return kinds, rows, low, high, drawn


def look_never_dropped(case: Case) -> Seen | None:
    kinds, rows, low, high, drawn = _kinds(case)
    unused = (high == rows - 2 and low == 0) or (low == 1 and high == rows - 1)
    if rows < 3 or kinds != rows - 1 or not unused or drawn < ENOUGH:
        return None
    return Seen(
        0,
        f"The table of labels has {rows:.0f} rows, and {kinds:.0f} of them were used in {drawn:,.0f} draws: the row "
        f"for "
        "no label is never trained, and guidance would compare with noise.",
        (case.evidence("stream/shown_kinds", f"{rows:.0f}"), case.evidence("network/label_rows")),
        confidence=0.999,
    )


def look_always_dropped(case: Case) -> Seen | None:
    kinds, rows, _, high, drawn = _kinds(case)
    kinds, high = case.newest("stream/recent_kinds", kinds), case.newest("stream/recent_highest", high)
    hidden = case.spell("stream/labels_hidden", lambda shares: shares > MOSTLY)
    if drawn < 64 or not ((kinds == 1 and rows > 2 and high == rows - 1) or (hidden and hidden.over is None)):
        return None
    steps, numbers = case.check("stream/recent_kinds")
    one = spell_of(steps, numbers == 1)
    return Seen(
        hidden.first if hidden is not None else 0 if one is None or one.first < 2 else one.first,
        f"The network is shown the label {high:.0f} only, which stands for no label: it learns nothing about classes."
        if kinds == 1
        else f"{case.newest('stream/labels_hidden'):.0%} of the samples are shown to the network without their label.",
        (case.evidence("stream/recent_kinds", "as many as there are classes"), case.evidence("stream/labels_hidden")),
    )


def look_one_class(case: Case) -> Seen | None:
    kinds, rows, low, high, drawn = _kinds(case)
    null = kinds == 2 and high == rows - 1
    if drawn < 600 or rows < 3 or not (kinds == 1 or null) or (kinds == 1 and low == rows - 1):
        return None
    return Seen(
        0,
        f"All {drawn:,.0f} samples had one and the same class, of {rows:.0f} that the network knows.",
        (case.evidence("stream/shown_kinds", "as many as there are classes"),),
        ("classes in order: within so many samples another one would have come",),
        confidence=0.99,
    )


def _is_nothing(gains: np.ndarray, errors: np.ndarray, losses: np.ndarray, certain: float, small: float) -> bool:
    """An equivalence: not only is nothing seen, anything larger than a small share of the loss would have been."""
    weights = 1 / np.square(np.maximum(errors, 1e-12))
    mean, spread = float((gains * weights).sum() / weights.sum()), float(weights.sum() ** -0.5)
    return mean <= 2 * spread and mean + certain * spread <= small * float(np.median(losses))


def _look_moved(case: Case) -> Seen | None:
    spell = case.spell("rows/labels_moved", lambda shares: shares > 0)
    if spell is None:
        return None
    _, shares = case.check("rows/labels_moved")
    return Seen(
        spell.first,
        f"From step {spell.first:,} on {float(shares.max()):.0%} of the labels in a batch are those of other images.",
        (case.evidence("rows/labels_moved", "0", spell.last),),
        ("labels that are left out on purpose: they are not counted",),
        over=spell.over,
    )


def _look_faded(case: Case) -> Seen | None:
    """Images of one label were alike, and from some look on they are no more alike than others."""
    steps, alike = case.check("labels/explain")
    usual = np.flatnonzero(alike > PLAIN)
    if len(usual) < 3:
        return None
    first, level = int(usual[-1]) + 1, float(np.median(alike[usual]))
    late = alike[first:]
    if len(late) < 2 or not (late < FADED * level).all() or float(late.sum()) > BELONG * len(late) ** 0.5:
        return None
    return Seen(
        (since := int(steps[first])),
        f"Images of one label were alike, {level:.1f} deviations beyond chance; from step {since:,} on they are no "
        f"more alike than images of any labels ({float(late.mean()):.1f}).",
        (case.evidence("labels/explain", f"{level:.1f}"),),
        ("images that are all alike: labels are compared with the same ones dealt out anew",),
        confidence=1 - RATE,
    )


def _belong(case: Case, since: int) -> bool:
    """Whether images of one label are alike, whatever the network has learnt of it."""
    steps, alike = case.check("labels/explain")
    recent = alike[steps >= since]
    return len(recent) > 0 and float(recent.sum()) > BELONG * len(recent) ** 0.5


def _are_strangers(case: Case) -> bool:
    """Whether at many looks images of one label were no more alike than others."""
    alike = case.check("labels/explain")[1]
    return len(alike) >= MANY and abs(float(alike.sum())) < 2 * len(alike) ** 0.5


def look_permuted(case: Case) -> Seen | None:
    """Exact where the set says whose labels they are; plain where images of one label stop being alike; else paired
    over the samples of a batch: the error with true labels and with those of others, unless images say that labels
    belong to them, and a slow network has not noticed yet."""
    if (plain := _look_moved(case) or _look_faded(case)) is not None:
        return plain
    steps, gains = case.check("labels/gain")
    _, errors = case.check("labels/gain_error")
    _, losses = case.check("labels/error")
    late = np.flatnonzero(steps >= LATE)
    learnt = case.newest("loss/error", 1.0) < LEARNT * case.newest("loss/zero", 0.0)
    if len(late) < 2 or not learnt or look_ignored(case) is not None:
        return None
    windows = late, late[-3:], late[-2:]
    certain = bound("labels that help nothing", len(late) - 1, len(windows))
    small = 2 * SMALL if _are_strangers(case) else SMALL
    nothing = [last for last in windows if _is_nothing(gains[last], errors[last], losses[last], certain, small)]
    if not nothing or all(_belong(case, int(steps[last[0]])) for last in nothing):
        return None
    return Seen(
        int(steps[-1]),
        "The network looks at the labels, and the right ones help it no more than those of other samples: they do not "
        "belong to their images.",
        (case.evidence("labels/gain", "above 0"), case.evidence("labels/gain_error")),
        ("labels that are ignored: the output does change with them",),
        confidence=1 - RATE,
    )


RULES = (
    Rule(
        code="CON001",
        cause="conditioning.ignored",
        title="Labels do not reach the output",
        what="The output stays the same, to the last bit, whatever the labels.",
        why="All classes look alike.",
        alike="Labels that belong to other images do change the output.",
        misses="Conditions that are not whole numbers.",
        fix="Add the label's embedding to that of the timestep, and look for a multiplication by zero or a detach().",
        look=look_ignored,
        yields=("model.zero-init", "model.bounded", "model.dead"),
    ),
    Rule(
        code="CON002",
        cause="conditioning.never-dropped",
        title="Labels are never left out",
        what="The network has a row for no label, which no sample ever used.",
        why="Guidance subtracts the answer without a label: here that of random weights.",
        alike="A table without such a row is not meant for guidance.",
        misses="Models that drop the embedding and not the label.",
        fix="Replace a tenth of the labels by the extra one while training.",
        severity="warning",
        look=look_never_dropped,
        yields=("conditioning.one-class", "data.not-shuffled"),
    ),
    Rule(
        code="CON003",
        cause="conditioning.always-dropped",
        title="Labels are always left out",
        what="Every sample is shown to the network without its label.",
        why="The model is unconditional, and guidance does nothing.",
        alike="With one class only, the class itself is shown.",
        misses="",
        fix="Drop a tenth of the labels, not all of them: look at the comparison with the drop rate.",
        look=look_always_dropped,
    ),
    Rule(
        code="CON004",
        cause="conditioning.one-class",
        title="One class only",
        what="All samples have the same label.",
        why="The other classes are never learnt.",
        alike="Images in the order of their classes show another one sooner or later.",
        misses="Very large classes in order.",
        fix="Look at the sampler's weights and at the shuffling.",
        look=look_one_class,
    ),
    Rule(
        code="CON005",
        cause="conditioning.permuted",
        title="Labels of other images",
        what="True labels help the network no more than exchanged ones, though it looks at them; or images of one "
        "label were alike, and are no longer.",
        why="Asked for a class, the model draws any.",
        alike="Labels that are ignored do not change the output at all.",
        misses="A part of the labels; labels exchanged as a whole, which is only another naming.",
        fix="Look at where images and labels are joined: both must be shuffled by the same order.",
        severity="warning",
        look=look_permuted,
        yields=("conditioning.", "data.not-shuffled", "optimizer.", "loss.", "target.", "lr.", "model.", "forward.",
                "timesteps.", "data.", "scale."),
    ),
)  # fmt: skip
