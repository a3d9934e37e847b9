"""Samples that are copies."""

from __future__ import annotations

from safelight.diagnosis.case import Case
from safelight.diagnosis.finding import Evidence, Finding, Fix
from safelight.diagnosis.rule import Rule
from safelight.vocabulary import COPIES, COPIES_CHANCE

ERROR_RATE = 0.01  # of the whole run: each evaluation may spend its share of it


def look_copies(case: Case) -> Finding | None:
    """The k-th evaluation may spend 6 / (π² k²) of the error rate: however many there are, the sum is bounded."""
    steps, chances = case.series(COPIES_CHANCE.name)
    shares = dict(zip(*case.series(COPIES.name), strict=True))
    fired = [int(s) for k, (s, p) in enumerate(zip(steps, chances, strict=True), 1) if p <= ERROR_RATE * 0.6079 / k**2]
    if not fired:
        return None
    last = int(steps[-1])
    share = float(shares.get(fired[-1], 0.0))
    return Finding(
        code="GEN001",
        cause="generalisation.copies",
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
)
