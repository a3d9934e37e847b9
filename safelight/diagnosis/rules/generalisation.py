"""Memorisation: samples that are copies, held-out images that get worse, too few images or classes."""

from __future__ import annotations

import math

import numpy as np

from safelight import checks
from safelight.diagnosis.budget import RATE, allowed, bound
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Detection, Rule
from safelight.diagnosis.run_history import RunHistory, episode_of
from safelight.vocabulary import COPIES, COPIES_CHANCE, HELD_GAP, HELD_RAW, PROBE_RAW

FEW = 24  # different images
GAP, WORSE = 0.1, 0.05  # of the loss: held-out images above trained ones; above their own best


def look_copies(run: RunHistory) -> Detection | None:
    steps, chances = run.series(COPIES_CHANCE)
    shares = run.by_step(COPIES)
    looks = enumerate(zip(steps, chances, strict=True), 1)
    fired = [int(step) for detect, (step, chance) in looks if chance <= allowed("copies of training images", detect)]
    if not fired:
        return None
    last = int(steps[-1])
    share = float(shares.get(fired[-1], 0.0))
    return Detection(
        fired[0],
        f"{share:.1%} of the samples are copies of training images, more than real images could be by chance.",
        (
            Evidence(COPIES.name, share, (fired[-1], fired[-1]), "as among held-out images"),
            Evidence(COPIES_CHANCE.name, float(chances[list(steps).index(fired[0])]), (fired[0], fired[0])),
        ),
        ("simple images that look alike anyway: held-out ones were compared in the same way",),
        confidence=1 - RATE,
        severity="warning",
        fix=Fix("Stop earlier, use more images, or remove duplicates: `safelight data` lists images that look alike."),
        over=None if fired[-1] == last else last,
    )


def look_held_out(run: RunHistory) -> Detection | None:
    """The gap is paired: both sets see the same noise and timesteps, so that only the images differ."""
    steps, held = run.series(HELD_RAW)
    trained = dict(zip(*(each.tolist() for each in run.series(PROBE_RAW)), strict=True))
    errors = dict(zip(*(each.tolist() for each in run.series(HELD_GAP)), strict=True))
    sick, best = np.zeros(len(steps), bool), (math.inf, math.inf)  # held out, and trained on at that look
    for detect, (step, loss) in enumerate(zip(steps.tolist(), held.tolist(), strict=True), 1):
        known = trained.get(step, loss)
        certain = errors.get(step, 0.0) > bound("held-out images", detect)
        sick[detect - 1] = certain and loss > (1 + GAP) * known and loss > (1 + WORSE) * best[0] and known <= best[1]
        best = min(best, (loss, known))
    episode = episode_of(steps, sick)
    if episode is None:
        return None
    place = int(np.searchsorted(steps, episode.last))
    lowest = int(np.argmin(held[: place + 1]))
    loss, known = float(held[place]), trained[episode.last]
    return Detection(
        episode.first,
        f"Held-out images have a loss of {loss:.4f}, those that are trained on {known:.4f}; at step "
        f"{int(steps[lowest]):,} the held-out ones had {float(held[lowest]):.4f}. Since then the model memorises "
        "its images.",
        (
            Evidence(HELD_RAW.name, loss, (int(steps[lowest]), episode.last), f"{float(held[lowest]):.4f}"),
            Evidence(HELD_GAP.name, errors[episode.last], (episode.last, episode.last), "below 4"),
        ),
        ("harder images: they have become worse, while the others became better",),
        confidence=1 - RATE,
        over=episode.over,
    )


def look_few_images(run: RunHistory) -> Detection | None:
    different, drawn = run.latest(checks.STREAM_DIFFERENT), run.latest(checks.STREAM_DRAWN, 0.0)
    if not different <= FEW or drawn < 20 * FEW:
        return None
    return Detection(
        0,
        f"Only {different:.0f} different images came in {drawn:,.0f} samples: the model will memorise them.",
        (run.evidence(checks.STREAM_DIFFERENT, "hundreds"), run.evidence(checks.STREAM_DRAWN)),
        ("the same batch at every step: these come in different batches",),
    )


def look_missing_labels(run: RunHistory) -> Detection | None:
    kinds, rows = run.latest(checks.STREAM_SHOWN_KINDS), run.latest(checks.NETWORK_LABEL_ROWS, 0.0)
    drawn = run.latest(checks.STREAM_LABELS_DRAWN, 0.0)
    if not 1 < kinds <= rows - 2 or rows > 64 or drawn < 40 * rows or drawn < 1000:
        return None
    null = run.latest(checks.STREAM_SHOWN_HIGHEST) == rows - 1
    if kinds - null < 2:
        return None
    rare = drawn / -math.log(allowed("labels that never come"))
    return Detection(
        0,
        f"{rows - kinds:.0f} of the {rows:.0f} labels that the network knows never came in {drawn:,.0f} samples: these "
        "classes will be missing.",
        (run.evidence(checks.STREAM_SHOWN_KINDS, f"{rows:.0f}"),),
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
        similar="Simple images are near to each other: held-out ones then are too. Too little variety brings samples "
        "nearer to all images, not to one.",
        limits="Fewer copies than about 2 % of 256 samples; copies of parts of an image; mirrored copies.",
        fix="Stop earlier, more data, fewer duplicates.",
        needs=(COPIES_CHANCE,),
        detect=look_copies,
    ),
    Rule(
        code="GEN002",
        cause="generalisation.overfitting",
        title="Too few images",
        what="Only a handful of images is trained on.",
        why="They are memorised, and nothing else is learnt.",
        similar="The same batch at every step is data.same-batch.",
        limits="Datasets of a few dozen images.",
        fix="More images, or flips and crops; ignore this in an intended overfitting test.",
        severity="warning",
        needs=(checks.STREAM_DIFFERENT, checks.STREAM_DRAWN),
        detect=look_few_images,
        explained_by="data.same-batch timesteps.repeated forward.noise-repeated data.duplicates data.blank",
    ),
    Rule(
        code="GEN003",
        cause="generalisation.missing-modes",
        title="Classes that never come",
        what="The network has labels that no sample ever has.",
        why="For these labels the model draws noise or something else.",
        similar="A class that is rare comes sooner or later. One class alone is conditioning.one-class.",
        limits="Datasets without labels; embeddings of more than 64 labels.",
        fix="Check the sampler's weights, filters, and the number of classes.",
        severity="warning",
        needs=(checks.NETWORK_LABEL_ROWS, checks.STREAM_LABELS_DRAWN, checks.STREAM_SHOWN_KINDS),
        detect=look_missing_labels,
        explained_by="conditioning. data.not-shuffled",
    ),
    Rule(
        code="GEN004",
        cause="generalisation.held-out",
        title="Held-out images become worse",
        what="The loss of images that are not trained on rises, while that of the others continues to fall.",
        why="From here on the model memorises its images: samples become copies of them.",
        similar="Held-out images that are harder have a higher loss from the start, and it falls. A loss that rises "
        "for both is not overfitting.",
        limits="Datasets of fewer than 400 images, of which none are held out by default, and fewer than 32 held-out "
        "images; gaps below a tenth of the loss.",
        fix="Use the checkpoint from before; more images, flips and jitter, dropout, or a smaller network.",
        severity="warning",
        needs=(HELD_RAW, HELD_GAP, PROBE_RAW),
        detect=look_held_out,
        explained_by="generalisation.overfitting data. lr. loss.",
    ),
)
