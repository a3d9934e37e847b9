"""Samples that are copies."""

from __future__ import annotations

import math

import numpy as np

from safelight.diagnosis.budget import RATE, allowed, bound
from safelight.diagnosis.case import Case, spell_of
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Rule, Seen
from safelight.vocabulary import COPIES, COPIES_CHANCE, HELD_GAP, HELD_RAW, PROBE_RAW

FEW = 24  # different images
GAP, WORSE = 0.1, 0.05  # of the loss: held-out images above trained ones; above their own best


def look_copies(case: Case) -> Seen | None:
    steps, chances = case.series(COPIES_CHANCE.name)
    shares = dict(zip(*case.series(COPIES.name), strict=True))
    looks = enumerate(zip(steps, chances, strict=True), 1)
    fired = [int(step) for look, (step, chance) in looks if chance <= allowed("copies of training images", look)]
    if not fired:
        return None
    last = int(steps[-1])
    share = float(shares.get(fired[-1], 0.0))
    return Seen(
        severity="warning",
        step=fired[0],
        confidence=1 - RATE,
        summary=f"{share:.1%} of the samples are copies of training images, more than real images could be by chance.",
        evidence=(
            Evidence(COPIES.name, share, (fired[-1], fired[-1]), "as among held-out images"),
            Evidence(COPIES_CHANCE.name, float(chances[list(steps).index(fired[0])]), (fired[0], fired[0])),
        ),
        fix=Fix(
            "Stop earlier, train on more images, or take duplicates out: `safelight data` lists images that look alike."
        ),
        ruled_out=("simple images that look alike anyway: held-out ones were compared in the same way",),
        over=None if fired[-1] == last else last,
    )


def look_held_out(case: Case) -> Seen | None:
    """The gap is paired: both sets see the same noise and timesteps, so that only the images differ."""
    steps, held = case.series(HELD_RAW.name)
    trained = dict(zip(*(each.tolist() for each in case.series(PROBE_RAW.name)), strict=True))
    errors = dict(zip(*(each.tolist() for each in case.series(HELD_GAP.name)), strict=True))
    sick, best = np.zeros(len(steps), bool), (math.inf, math.inf)  # held out, and trained on at that look
    for look, (step, loss) in enumerate(zip(steps.tolist(), held.tolist(), strict=True), 1):
        known = trained.get(step, loss)
        certain = errors.get(step, 0.0) > bound("held-out images", look)
        sick[look - 1] = certain and loss > (1 + GAP) * known and loss > (1 + WORSE) * best[0] and known <= best[1]
        best = min(best, (loss, known))
    spell = spell_of(steps, sick)
    if spell is None:
        return None
    place = int(np.searchsorted(steps, spell.last))
    lowest = int(np.argmin(held[: place + 1]))
    loss, known = float(held[place]), trained[spell.last]
    return Seen(
        spell.first,
        f"Held-out images have a loss of {loss:.4f}, those that are trained on {known:.4f}; at step "
        f"{int(steps[lowest]):,} the held-out ones had {float(held[lowest]):.4f}. Since then the model has learnt its "
        "images by heart.",
        (
            Evidence(HELD_RAW.name, loss, (int(steps[lowest]), spell.last), f"{float(held[lowest]):.4f}"),
            Evidence(HELD_GAP.name, errors[spell.last], (spell.last, spell.last), "below 4"),
        ),
        ("harder images: they have become worse, while the others became better",),
        confidence=1 - RATE,
        over=spell.over,
    )


def look_few_images(case: Case) -> Seen | None:
    different, drawn = case.newest("stream/different"), case.newest("stream/drawn", 0.0)
    if not different <= FEW or drawn < 20 * FEW:
        return None
    return Seen(
        0,
        f"Only {different:.0f} different images came in {drawn:,.0f} samples: the model will learn them by heart.",
        (case.evidence("stream/different", "hundreds"), case.evidence("stream/drawn")),
        ("the same batch over and over: these come in different batches",),
    )


def look_missing_labels(case: Case) -> Seen | None:
    kinds, rows = case.newest("stream/shown_kinds"), case.newest("network/label_rows", 0.0)
    drawn = case.newest("stream/labels_drawn", 0.0)
    if not 1 < kinds <= rows - 2 or rows > 64 or drawn < 40 * rows or drawn < 1000:
        return None
    null = case.newest("stream/shown_highest") == rows - 1
    if kinds - null < 2:
        return None
    rare = drawn / -math.log(allowed("labels that never come"))
    return Seen(
        0,
        f"{rows - kinds:.0f} of the {rows:.0f} labels that the network knows never came in {drawn:,.0f} samples: their "
        "kind of image will be missing.",
        (case.evidence("stream/shown_kinds", f"{rows:.0f}"),),
        (f"rare classes: one in {rare:,.0f} would have come",),
        confidence=1 - RATE,
    )


RULES = (
    Rule(
        code="GEN001",
        cause="generalisation.copies",
        title="Copies of training images",
        what="Samples much nearer to one training image than to any other, more often than held-out images are.",
        why="The model repeats its data instead of learning from it.",
        alike="Simple images lie near to each other by nature: held-out ones then do too. Too little variety brings "
        "samples nearer to all images, not to one.",
        misses="Fewer copies than about 2 % of 256 samples; copies of parts of an image; mirrored copies.",
        fix="Stop earlier, more data, fewer duplicates.",
        look=look_copies,
    ),
    Rule(
        code="GEN002",
        cause="generalisation.overfitting",
        title="Too few images",
        what="A handful of images is all that is ever trained on.",
        why="They are learnt by heart, and nothing else.",
        alike="One batch over and over is data.same-batch.",
        misses="Small sets of some dozens.",
        fix="More images, or flips and crops; for a trial on purpose, ignore this.",
        severity="warning",
        look=look_few_images,
        yields=("data.same-batch", "timesteps.repeated", "forward.noise-repeated", "data.duplicates", "data.blank"),
    ),
    Rule(
        code="GEN003",
        cause="generalisation.missing-modes",
        title="Classes that never come",
        what="The network has labels that no sample ever has.",
        why="Asked for them, it draws noise or something else.",
        alike="A class that is rare comes sooner or later. One class alone is conditioning.one-class.",
        misses="Sets without labels; tables of more than 64 labels.",
        fix="Look at the sampler's weights, at filters, and at the number of classes.",
        severity="warning",
        look=look_missing_labels,
        yields=("conditioning.", "data.not-shuffled"),
    ),
    Rule(
        code="GEN004",
        cause="generalisation.held-out",
        title="Held-out images become worse",
        what="The loss of images that are not trained on rises, while that of the others goes on falling.",
        why="From here on the model learns its images by heart: samples become copies of them.",
        alike="Held-out images that are harder have a higher loss from the start, and it falls. A loss that rises for "
        "both is no overfitting.",
        misses="Sets of fewer than 400 images, of which none are held out unless asked for, and fewer than 32 held-out "
        "ones; gaps below a tenth of the loss.",
        fix="Take the checkpoint from before; more images, flips and jitter, dropout, or a smaller network.",
        severity="warning",
        look=look_held_out,
        yields=("generalisation.overfitting", "data.", "lr.", "loss."),
    ),
)
