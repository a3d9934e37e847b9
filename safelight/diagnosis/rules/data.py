"""Images that are broken, blank, duplicated, not shuffled, or not the same as before."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.budget import bound
from safelight.diagnosis.finding import Evidence
from safelight.diagnosis.rule import (
    AtLeast,
    Detection,
    error_rule,
    first_of,
    on_count,
    on_episode,
    on_latest,
    warning_rule,
)
from safelight.diagnosis.run_history import RunHistory, name_of

DUPLICATES, BLANK = 0.1, 0.1  # shares; digits, shapes and photographs have 0
NOTHING_BUT_COPIES = 0.9  # share: batches of such images come again whatever draws them
# Images of a batch, share of them that differ, their deviation
MIN_BATCH, MIN_DIFFERENT_SHARE, MAX_BLANK_DEVIATION = 8, 0.1, 1e-3
CERTAIN = 8.0  # standard errors, at the least: labels that are drawn with weights are slightly correlated
BEFORE, AFTER = 24, 6  # batches on either side of a change
MIN_REPEATED_BATCHES = 3  # times that a batch equals the one before
ORDER_Z, MIN_BATCHES = 5.0, 48  # standard errors of the correlation of neighbouring batches; batches
USELESS = "they cannot show whether the model generalises."
MOMENTS = (checks.BATCH_MEAN, checks.BATCH_STD)


def nonfinite(run: RunHistory) -> Detection | None:
    share, steps = run.latest(checks.DATA_NONFINITE, 0.0), run.steps(checks.NONFINITE["x0"])
    if share > 0:
        evidence = (run.evidence(checks.DATA_NONFINITE, "0"),)
        return Detection(0, f"{share:.1%} of the images that were checked hold NaN or infinity.", evidence)
    if not len(steps):
        return None
    where = int(steps[0]), int(steps[-1])
    return Detection(
        where[0],
        f"In {len(steps)} batch{'es' * (len(steps) != 1)} an image held NaN or infinity, first at step {where[0]:,}.",
        (Evidence(name_of(checks.NONFINITE["x0"]), 0.0, where, "1"),),
        ("an overflow inside the network: the images themselves are not finite",),
    )


listed_copies = on_latest(
    {checks.DATA_DUPLICATES: "below 0.01", checks.DATA_LARGEST_GROUP: None},
    lambda share, *_: not share <= DUPLICATES,
    "{0:.0%} of {2:.0f} images that were checked are copies of others.",
    "a small dataset: its images are all different",
    also=(checks.DATA_IMAGES,),
    step=0,
)


def drawn_copies(run: RunHistory) -> Detection | None:
    """Where the images themselves were not looked at: nearly all of the first batch are one and the same."""
    drawn, different = run.numbers(checks.STREAM_DRAWN)[:1], run.numbers(checks.STREAM_DIFFERENT)[:1]
    if len(run.steps(checks.DATA_DUPLICATES)) or not len(drawn) or not len(different):
        return None
    deviations = run.numbers(checks.BATCH_STD)[:1]
    if (
        drawn[0] < MIN_BATCH
        or different[0] > max(1.0, MIN_DIFFERENT_SHARE * drawn[0])
        or not (deviations > MAX_BLANK_DEVIATION).all()
    ):
        return None  # blank batches are not images that come many times
    step = int(run.steps(checks.STREAM_DRAWN)[0])
    return Detection(
        step,
        f"Of the {drawn[0]:.0f} images of the first batch only {different[0]:.0f} "
        f"{'is' if different[0] == 1 else 'are'} different: the others are copies.",
        run.evidence_of({checks.STREAM_DIFFERENT: f"{drawn[0]:.0f}", checks.STREAM_DRAWN: None}, step),
        ("the same batch at every step: its images would differ from each other",),
    )


copies = first_of(listed_copies, drawn_copies)


def is_all_copies(run: RunHistory) -> bool:
    """Then batches are alike without anything being wrong with how they are drawn."""
    return run.latest(checks.DATA_DUPLICATES, 0.0) > NOTHING_BUT_COPIES or drawn_copies(run) is not None


def in_order_of_labels(run: RunHistory) -> Detection | None:
    """Whether neighbours in the stream of labels are equal more often than by chance."""
    equal = run.latest(checks.STREAM_LABELS_NEIGHBOURS)
    chance = run.latest(checks.STREAM_LABELS_NEIGHBOURS_EXPECTED)
    pairs = run.latest(checks.STREAM_LABELS_PAIRS, 0.0)
    if not pairs > 0 or not chance < 1:
        return None
    deviation = (chance * (1 - chance) / pairs) ** 0.5
    looks = len(run.steps(checks.STREAM_LABELS_NEIGHBOURS))
    if not (equal >= 2 * chance and equal - chance >= max(CERTAIN, bound("labels in order", looks)) * deviation):
        return None
    return Detection(
        0,
        f"{equal:.0%} of neighbouring samples have the same label, where {chance:.0%} would by chance: the images come "
        "in the order of their classes.",
        (run.evidence(checks.STREAM_LABELS_NEIGHBOURS, f"{chance:.2f}"),),
        ("classes of unequal size: the expected share is that of these labels",),
        confidence=0.999,
    )


def neighbours_alike(run: RunHistory) -> Detection | None:
    """Batches drawn at random are no more like the one before than like any other."""
    for check in MOMENTS:
        steps, every = run.series(check)
        early = steps < (steps[0] if len(steps) else 0) + 64  # all of them, one after the other
        numbers = every[early]
        if len(np.unique(numbers)) < MIN_BATCHES or not np.isfinite(numbers).all():
            continue
        ranks = np.argsort(np.argsort(numbers)).astype(float)  # one broken image is one rank
        centred = ranks - ranks.mean()
        similar = float((centred[1:] * centred[:-1]).sum() / np.square(centred).sum())
        certain = max(ORDER_Z, bound("batches in order", len(numbers), 2))
        if similar * len(numbers) ** 0.5 > certain and change_of(every) is None:
            return Detection(
                int(steps[0]),
                f"Neighbouring batches are alike: the {check.partition('/')[2]} of their images has a correlation of "
                f"{similar:.2f} from one to the next over {len(numbers)} batches, where chance has "
                f"{len(numbers) ** -0.5:.2f}. They are not shuffled.",
                (Evidence(name_of(check), similar, (int(steps[0]), int(steps[early][-1])), "0"),),
                ("images that changed once and for all: these go back and forth, or drift",),
                confidence=0.9999,
            )
    return None


def shifted(run: RunHistory) -> Detection | None:
    """One change point in the series of batch moments, with more between than within its two sides."""
    for check in MOMENTS:
        steps, numbers = run.series(check)
        place = change_of(numbers)
        if place is not None:
            before, after = float(np.median(numbers[:place])), float(np.median(numbers[place:]))
            return Detection(
                int(steps[place]),
                f"Since step {int(steps[place]):,} the images are different: their {check.partition('/')[2]} went from "
                f"{before:.3g} to {after:.3g} from one batch to the next.",
                (Evidence(name_of(check), after, (int(steps[place]), int(steps[-1])), f"{before:.3g}"),),
                ("a batch that differs by chance: the change is many times what batches differ by, and lasts",),
                confidence=0.999,
            )
    return None


def change_of(numbers: np.ndarray) -> int | None:
    """Where a series changes once and for all; None if it does not."""
    count = len(numbers)
    if count < BEFORE + AFTER or not np.isfinite(numbers).all():
        return None
    numbers = numbers.astype(np.float64) - float(numbers[0])
    places = np.arange(BEFORE, count - AFTER + 1)
    sums, squares = np.cumsum(numbers), np.cumsum(np.square(numbers))
    left, right = sums[places - 1] / places, (sums[-1] - sums[places - 1]) / (count - places)
    spread = np.sqrt(np.maximum(squares[places - 1] / places - np.square(left), 0.0))
    within = np.maximum(spread, 1e-6 * (1 + np.abs(left)))
    apart = np.abs(right - left) / within
    # Every batch after the change must lie beyond every batch before it: a drift does not do that.
    low, high = np.minimum.accumulate(numbers), np.maximum.accumulate(numbers)
    later_low, later_high = np.minimum.accumulate(numbers[::-1])[::-1], np.maximum.accumulate(numbers[::-1])[::-1]
    beyond = (later_low[places] > high[places - 1]) | (later_high[places] < low[places - 1])
    apart = np.where(beyond, apart, 0.0)
    # Of six batches and more: their mean has less than half of the spread.
    certain = max(CERTAIN, bound("batches that changed", count, 2 * len(places))) / 2
    return int(places[np.argmax(apart)]) if apart.max() > certain else None


same_order = on_count(
    checks.STREAM_AGAIN["images"],
    8,
    "{} batches came again image for image: every epoch has the same order.",
    "the same batch at every step: these come back after an epoch",
)


def not_shuffled(run: RunHistory) -> Detection | None:
    if is_all_copies(run):
        return None
    again = None if len(run.steps(checks.STREAM_ALIKE["images"])) else same_order(run)
    return again or in_order_of_labels(run) or neighbours_alike(run)


repeated_batch = on_count(
    checks.STREAM_ALIKE["images"],
    MIN_REPEATED_BATCHES,
    "The batch of the step before came again {} times: the network is shown the same images at every step.",
    "a new epoch: its batches are composed anew",
    "images that are all copies of one: those of a batch differ",
)


def same_batch(run: RunHistory) -> Detection | None:
    return None if is_all_copies(run) else repeated_batch(run)


RULES = (
    error_rule(
        "DAT001",
        "data.nonfinite",
        "NaN or infinity in the images",
        what="An image holds a number that is not finite.",
        why="Loss and gradient of every batch with that image are NaN.",
        similar="An overflow in the network begins behind finite images.",
        limits="Images that were not among those checked, until they are drawn.",
        fix="Remove the image, or fix what computes it. Safelight's own reader rejects such images.",
        needs=((checks.DATA_NONFINITE, checks.NONFINITE["x0"]),),
        detect=nonfinite,
    ),
    warning_rule(
        "DAT002",
        "data.duplicates",
        "The same image many times",
        what="More than a tenth of the images are exact copies of others; or nearly all of a batch are.",
        why="Images that come many times are memorised first.",
        similar="A small dataset has few images, but different ones.",
        limits="Images that are nearly the same: `safelight data` finds those.",
        fix="Remove the copies; `safelight data` lists them.",
        needs=((checks.DATA_DUPLICATES, checks.STREAM_DIFFERENT),),
        detect=copies,
        explained_by="data.blank",
    ),
    warning_rule(
        "DAT003",
        "data.blank",
        "Blank images",
        what="More than a tenth of the images have one colour only.",
        why="The model learns to draw blank images, and the loss looks better than it is.",
        similar="Dark images have some variation left.",
        limits="Images with a frame and nothing in it.",
        fix="Filter them out, or check the decoder.",
        needs=(checks.DATA_BLANK,),
        detect=on_latest(
            {checks.DATA_BLANK: "below 0.01"},
            lambda share: not share <= BLANK,
            "{:.0%} of the images have one colour only.",
            step=0,
        ),
    ),
    warning_rule(
        "DAT004",
        "data.not-shuffled",
        "Images in the order of their classes",
        what="Labels of neighbouring samples are equal far more often than by chance.",
        why="Every batch teaches one class and forgets the others; the loss rises and falls with the epoch.",
        similar="A learning rate that rises and falls has another period. Unequal classes are taken into account.",
        limits="Datasets without labels.",
        fix="Shuffle: DataLoader(shuffle=True).",
        needs=(
            (
                checks.STREAM_LABELS_PAIRS,
                checks.STREAM_AGAIN["images"],
                *(AtLeast(each, MIN_BATCHES) for each in MOMENTS),
            ),
        ),
        detect=not_shuffled,
        explained_by="conditioning.one-class conditioning.always-dropped data.same-batch",
    ),
    warning_rule(
        "DAT005",
        "data.shifted",
        "Different images than before",
        what="Mean or deviation of the batches changes from one step to the next, and stays changed.",
        why="What was learnt before is unlearnt; the loss jumps although the training is healthy.",
        similar="A loss that jumps while the images stay the same has another cause.",
        limits="Different images with the same brightness and contrast.",
        fix="Check what changed in the loading of the data at that step.",
        needs=(tuple(AtLeast(each, BEFORE + AFTER) for each in MOMENTS),),
        detect=shifted,
        explained_by="data.same-batch data.not-shuffled data.nonfinite conditioning.one-class",
    ),
    error_rule(
        "DAT006",
        "data.same-batch",
        "The same batch at every step",
        what="Batches come back number for number, step after step.",
        why="The network memorises these few images; the loss looks very good.",
        similar="A small dataset comes back too, but in different batches. Where all images are copies of a few, "
        "that is the cause (DAT002).",
        limits="The same images in another order.",
        fix="Take the next batch inside the loop; do not seed the shuffling at every step.",
        needs=(checks.STREAM_ALIKE["images"],),
        detect=same_batch,
        explained_by="timesteps.repeated forward.noise-repeated",
    ),
    error_rule(
        "DAT007",
        "data.held-out-overlap",
        "Held-out images that are trained on",
        what="Images are in both parts of the split.",
        why="Memorisation looks like learning.",
        similar="Images that look alike in both parts are kept together by `safelight data`.",
        limits="A user's own loop.",
        fix="Split before anything is drawn.",
        needs=((checks.DATA_HELD_OUT_OVERLAP, checks.ROWS_HELD_OUT),),
        detect=first_of(
            on_latest(
                {checks.DATA_HELD_OUT_OVERLAP: "0"},
                lambda share: not share <= 0,
                f"{{:.0%}} of the held-out images are trained on: {USELESS}",
                step=0,
            ),
            on_episode(  # exact: rows of a batch are among those that are held out
                lambda run: run.episode(checks.ROWS_HELD_OUT, lambda shares: shares > 0),
                "From step {episode.first:,} on, batches hold images that are held out, {:.0%} of the last one: "
                f"{USELESS}",
                evidence={checks.ROWS_HELD_OUT: "0"},
            ),
        ),
    ),
)
