"""Samples that are copies."""

from __future__ import annotations

from safelight.diagnosis.case import Case
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Rule, Seen
from safelight.vocabulary import COPIES, COPIES_CHANCE

FEW = 24  # different images
ERROR_RATE = 0.01  # of the whole run: each evaluation may spend its share of it


def look_copies(case: Case) -> Seen | None:
    """The k-th evaluation may spend 6 / (π² k²) of the error rate: however many there are, the sum is bounded."""
    steps, chances = case.series(COPIES_CHANCE.name)
    shares = dict(zip(*case.series(COPIES.name), strict=True))
    fired = [int(s) for k, (s, p) in enumerate(zip(steps, chances, strict=True), 1) if p <= ERROR_RATE * 0.6079 / k**2]
    if not fired:
        return None
    last = int(steps[-1])
    share = float(shares.get(fired[-1], 0.0))
    return Seen(
        severity="warning",
        step=fired[0],
        confidence=1 - ERROR_RATE,
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
    return Seen(
        0,
        f"{rows - kinds:.0f} of the {rows:.0f} labels that the network knows never came in {drawn:,.0f} samples: their "
        "kind of image will be missing.",
        (case.evidence("stream/shown_kinds", f"{rows:.0f}"),),
        ("rare classes: so many samples would have shown one in a thousand",),
        confidence=0.99,
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
)
