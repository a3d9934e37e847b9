"""Memorisation: samples that are copies, held-out images that get worse, too few images or classes."""

from __future__ import annotations

import math

import numpy as np

from safelight import checks
from safelight.diagnosis.budget import RATE, allowed, bound
from safelight.diagnosis.finding import Evidence
from safelight.diagnosis.rule import AtLeast, Detection, on_latest, warning_rule
from safelight.diagnosis.run_history import RunHistory, episode_of, running_median
from safelight.vocabulary import (
    COPIES,
    COPIES_CHANCE,
    FIXED_SET_LOSS_RAW,
    HELD_OUT_GAP,
    HELD_OUT_LOSS_RAW,
    SKILL_EMA,
    SKILL_FLOOR,
    SKILL_HELD_OUT,
    SKILL_RAW,
)

FEW_IMAGES = 24  # different images
FLOOR, LOOKS, BEHIND = 0.8, 3, 0.15  # way to the exact denoiser; checkpoints; skill that held-out images lack
BELOW_FLOOR = 1.1  # of that way: a model that knows more than the images, such as labels, for which it is no floor
MIN_GAP, MIN_RISE = 0.1, 0.05  # of the loss: held-out images above trained ones; above their own best


def copies(run: RunHistory) -> Detection | None:
    steps, chances = run.series(COPIES_CHANCE)
    fired = [i for i, chance in enumerate(chances) if chance <= allowed("copies of training images", i + 1)]
    if not fired:
        return None
    first, last = (int(steps[place]) for place in (fired[0], fired[-1]))
    share = float(run.at(COPIES, steps[fired], 0.0)[-1])
    return Detection(
        first,
        f"{share:.1%} of the samples are copies of training images, more than real images could be by chance.",
        (
            Evidence(COPIES.name, share, (last, last), "as among held-out images"),
            Evidence(COPIES_CHANCE.name, float(chances[fired[0]]), (first, first)),
        ),
        ("simple images that look alike anyway: held-out ones were compared in the same way",),
        confidence=1 - RATE,
        ended_at=None if last == steps[-1] else int(steps[-1]),
    )


def held_out_worse(run: RunHistory) -> Detection | None:
    """The gap is paired: both sets see the same noise and timesteps, so that only the images differ."""
    steps, held = run.series(HELD_OUT_LOSS_RAW)
    trained, errors = run.at(FIXED_SET_LOSS_RAW, steps), run.at(HELD_OUT_GAP, steps, 0.0)
    trained = np.where(np.isnan(trained), held, trained)
    sick, best = np.zeros(len(steps), bool), (math.inf, math.inf)  # held out, and trained on at that look
    for place, (loss, trained_loss, gap) in enumerate(
        zip(*map(np.ndarray.tolist, (held, trained, errors)), strict=True)
    ):
        certain = gap > bound("held-out images", place + 1)
        sick[place] = (
            certain
            and loss > (1 + MIN_GAP) * trained_loss
            and loss > (1 + MIN_RISE) * best[0]
            and trained_loss <= best[1]
        )
        best = min(best, (loss, trained_loss))
    episode = episode_of(steps, sick)
    if episode is None:
        return None
    place = int(np.searchsorted(steps, episode.last))
    lowest = int(np.argmin(held[: place + 1]))
    loss, trained_loss, gap = float(held[place]), float(trained[place]), float(errors[place])
    return Detection(
        episode.first,
        f"Held-out images have a loss of {loss:.4f}, those that are trained on {trained_loss:.4f}; at step "
        f"{int(steps[lowest]):,} the held-out ones had {float(held[lowest]):.4f}. Since then the model memorises "
        "its images.",
        (
            Evidence(HELD_OUT_LOSS_RAW.name, loss, (int(steps[lowest]), episode.last), f"{float(held[lowest]):.4f}"),
            Evidence(HELD_OUT_GAP.name, gap, (episode.last, episode.last), "below 4"),
        ),
        ("harder images: they have become worse, while the others became better",),
        confidence=1 - RATE,
        ended_at=episode.ended_at,
    )


def memorised(run: RunHistory) -> Detection | None:
    """On training images only memorising reaches the floor; held-out images are not denoised as well."""
    steps, floors = run.series(SKILL_FLOOR)
    if len(steps) < LOOKS or not any(len(run.steps(each)) for each in (SKILL_EMA, SKILL_RAW)):
        return None  # of data whose linear filter gains nothing, such as points on a ring, all denoisers are alike
    if run.config is not None and run.config.model.conditional and not len(run.steps(SKILL_HELD_OUT)):
        return None  # the floor knows no labels
    smooth = running_median(floors, LOOKS)
    behind = run.at(SKILL_EMA, steps, 0.0) - run.at(SKILL_HELD_OUT, steps, -math.inf)
    episode = episode_of(
        steps[LOOKS - 1 :], (smooth >= FLOOR) & (smooth <= BELOW_FLOOR) & (behind[LOOKS - 1 :] > BEHIND)
    )
    if episode is None:
        return None
    held = run.latest(SKILL_HELD_OUT)
    rest = (
        ""
        if math.isnan(held)
        else f" On held-out images its skill is {held:.2f}, on these {run.latest(SKILL_EMA):.2f}."
    )
    return Detection(
        episode.first,
        f"The model denoises its training images nearly as well as the images themselves would: it has come "
        f"{float(smooth[-1]):.0%} of the way to the denoiser that knows them by heart.{rest}",
        run.evidence_of(
            {SKILL_FLOOR: f"below {FLOOR}", SKILL_EMA: None, SKILL_HELD_OUT: "as on trained images"}, episode.last
        ),
        ("a good model: on images that it was not trained on it would be as good",),
        confidence=0.99,
        ended_at=episode.ended_at,
    )


def missing_labels(run: RunHistory) -> Detection | None:
    kinds, rows, drawn = map(
        run.latest, (checks.STREAM_SHOWN_KINDS, checks.NETWORK_LABEL_ROWS, checks.STREAM_LABELS_DRAWN)
    )
    null = run.latest(checks.STREAM_SHOWN_HIGHEST) == rows - 1
    if not (kinds - null >= 2 and 1 < kinds <= rows - 2 and rows <= 64 and drawn >= max(40 * rows, 1000)):
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
    warning_rule(
        "GEN001",
        "generalisation.copies",
        "Copies of training images",
        what="Samples much nearer to one training image than to any other, more often than held-out images are.",
        why="The model repeats its data instead of learning from it.",
        similar="Simple images are near to each other: held-out ones then are too. Too little variety brings samples "
        "nearer to all images, not to one.",
        limits="Fewer copies than about 2 % of 256 samples; copies of parts of an image; mirrored copies.",
        fix="Stop earlier, use more images, or remove duplicates: `safelight data` lists images that look alike.",
        needs=(COPIES_CHANCE,),
        detect=copies,
    ),
    warning_rule(
        "GEN002",
        "generalisation.overfitting",
        "Too few images",
        what="Only a handful of images is trained on.",
        why="They are memorised, and nothing else is learnt.",
        similar="The same batch at every step is data.same-batch.",
        limits="Datasets of a few dozen images.",
        fix="More images, or flips and crops; ignore this in an intended overfitting test.",
        needs=(checks.STREAM_DIFFERENT, checks.STREAM_DRAWN),
        detect=on_latest(
            {checks.STREAM_DIFFERENT: "hundreds", checks.STREAM_DRAWN: None},
            lambda different, drawn: different <= FEW_IMAGES and drawn >= 20 * FEW_IMAGES,
            "Only {:.0f} different images came in {:,.0f} samples: the model will memorise them.",
            "the same batch at every step: these come in different batches",
            step=0,
        ),
        explained_by="data.same-batch timesteps.repeated forward.noise-repeated data.duplicates data.blank",
    ),
    warning_rule(
        "GEN003",
        "generalisation.missing-modes",
        "Classes that never come",
        what="The network has labels that no sample ever has.",
        why="For these labels the model draws noise or something else.",
        similar="A class that is rare comes sooner or later. One class alone is conditioning.one-class.",
        limits="Datasets without labels; embeddings of more than 64 labels.",
        fix="Check the sampler's weights, filters, and the number of classes.",
        needs=(checks.NETWORK_LABEL_ROWS, checks.STREAM_LABELS_DRAWN, checks.STREAM_SHOWN_KINDS),
        detect=missing_labels,
        explained_by="conditioning. data.not-shuffled",
    ),
    warning_rule(
        "GEN004",
        "generalisation.held-out",
        "Held-out images become worse",
        what="The loss of images that are not trained on rises, while that of the others continues to fall.",
        why="From here on the model memorises its images: samples become copies of them.",
        similar="Held-out images that are harder have a higher loss from the start, and it falls. A loss that rises "
        "for both is not overfitting.",
        limits="Datasets of fewer than 400 images, of which none are held out by default, and fewer than 32 held-out "
        "images; gaps below a tenth of the loss.",
        fix="Use the checkpoint from before; more images, flips and jitter, dropout, or a smaller network.",
        needs=(HELD_OUT_LOSS_RAW, HELD_OUT_GAP, FIXED_SET_LOSS_RAW),
        detect=held_out_worse,
        explained_by="generalisation.overfitting data. lr. loss.",
    ),
    warning_rule(
        "GEN005",
        "generalisation.memorised",
        "Training images known by heart",
        what="On its training images the model is nearly as good as the denoiser that knows them by heart.",
        why="Samples will be copies of training images.",
        similar="A good model is as good on held-out images. Copies among samples are GEN001.",
        limits="Large sets: the denoiser knows 20,000 of their images. Models that are given labels, where no images "
        "are held out: the denoiser knows none.",
        fix="Stop earlier, use more images, flips and jitter, dropout, or a smaller network.",
        needs=(AtLeast(SKILL_FLOOR, LOOKS), (SKILL_EMA, SKILL_RAW)),
        detect=memorised,
        explained_by="generalisation.overfitting generalisation.held-out data.duplicates data.same-batch",
    ),
)
