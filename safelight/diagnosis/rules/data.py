"""Images that are broken, empty, there twice, in order, or not those they were."""

from __future__ import annotations

import numpy as np

from safelight.diagnosis.budget import bound
from safelight.diagnosis.case import Case
from safelight.diagnosis.finding import Evidence
from safelight.diagnosis.rule import Rule, Seen
from safelight.vocabulary import CHECK

DUPLICATES, BLANK = 0.1, 0.1  # shares; digits, shapes and photographs have 0
CERTAIN = 8.0  # standard errors, at the least: labels that are drawn with weights hang together a little
BEFORE, AFTER = 24, 6  # batches on either side of a change
SAME = 3  # times that a batch equals the one before
ORDERED, MANY = 5.0, 48  # standard errors of the likeness of neighbouring batches; batches


def look_nonfinite(case: Case) -> Seen | None:
    share = case.newest("data/nonfinite", 0.0)
    steps, _ = case.check("finite/x0")
    if share > 0:
        return Seen(
            0,
            f"{share:.1%} of the images that were looked at hold numbers that are not finite.",
            (case.evidence("data/nonfinite", "0"),),
        )
    if len(steps):
        return Seen(
            int(steps[0]),
            f"In {len(steps)} batch{'es' * (len(steps) != 1)} an image held a number that is not finite, first at step "
            f"{int(steps[0]):,}.",
            (Evidence(f"{CHECK.name}/finite/x0", 0.0, (int(steps[0]), int(steps[-1])), "1"),),
            ("an overflow inside the network: the images themselves are not finite",),
        )
    return None


def look_duplicates(case: Case) -> Seen | None:
    share = case.newest("data/duplicates", 0.0)
    if share <= DUPLICATES:
        return None
    return Seen(
        0,
        f"{share:.0%} of {case.newest('data/images'):.0f} images that were looked at are copies of others.",
        (case.evidence("data/duplicates", "below 0.01"), case.evidence("data/largest_group")),
        ("a small set: its images are all different",),
    )


def look_blank(case: Case) -> Seen | None:
    share = case.newest("data/blank", 0.0)
    if share <= BLANK:
        return None
    return Seen(0, f"{share:.0%} of the images have one colour only.", (case.evidence("data/blank", "below 0.01"),))


def look_not_shuffled(case: Case) -> Seen | None:
    """Neighbours in the stream of labels are equal as often as chance would have it, or not."""
    seen, chance = case.newest("stream/labels_neighbours"), case.newest("stream/labels_neighbours_expected")
    pairs = case.newest("stream/labels_pairs", 0.0)
    again, _ = case.check("stream/images_again")
    if len(again) >= 8 and not len(case.check("stream/images_alike")[0]):
        return Seen(
            int(again[0]),
            f"{len(again)} batches came again image for image: every round goes through the images in the same order.",
            (Evidence(f"{CHECK.name}/stream/images_again", float(len(again)), (int(again[0]), int(again[-1])), "0"),),
            ("one batch over and over: these come back after a round",),
        )
    if not pairs > 0 or not chance < 1:
        return _look_at_neighbours(case)
    error = (chance * (1 - chance) / pairs) ** 0.5
    looks = len(case.check("stream/labels_neighbours")[0])
    if seen < 2 * chance or seen - chance < max(CERTAIN, bound("labels in order", looks)) * error:
        return _look_at_neighbours(case)
    return Seen(
        0,
        f"{seen:.0%} of neighbouring samples have the same label, where {chance:.0%} would by chance: the images come "
        "in the order of their classes.",
        (case.evidence("stream/labels_neighbours", f"{chance:.2f}"),),
        ("classes of unequal size: the expected share is that of these very labels",),
        confidence=0.999,
    )


def _look_at_neighbours(case: Case) -> Seen | None:
    """Batches that are drawn at random are no more like the one before than like any other."""
    for name in ("batch/mean", "batch/std"):
        steps, numbers = case.check(name)
        early = steps < (steps[0] if len(steps) else 0) + 64  # all of them, one after the other
        numbers = numbers[early]
        if len(np.unique(numbers)) < MANY or not np.isfinite(numbers).all():
            continue
        ranks = np.argsort(np.argsort(numbers)).astype(float)  # one broken image is one rank
        centred = ranks - ranks.mean()
        alike = float((centred[1:] * centred[:-1]).sum() / np.square(centred).sum())
        certain = max(ORDERED, bound("batches in order", len(numbers), 2))
        if alike * len(numbers) ** 0.5 > certain and change_of(case.check(name)[1]) is None:
            return Seen(
                int(steps[0]),
                f"Neighbouring batches are alike: the {name.partition('/')[2]} of their images has a correlation of "
                f"{alike:.2f} from one to the next over {len(numbers)} batches, where chance has "
                f"{len(numbers) ** -0.5:.2f}. They come in an order.",
                (Evidence(f"{CHECK.name}/{name}", alike, (int(steps[0]), int(steps[early][-1])), "0"),),
                ("images that have changed for good: these go to and fro, or drift",),
                confidence=0.9999,
            )
    return None


def look_shifted(case: Case) -> Seen | None:
    """One cut in the series of batch moments, with more between than within its two sides."""
    for name in ("batch/mean", "batch/std"):
        steps, numbers = case.check(name)
        place = change_of(numbers)
        if place is not None:
            before, after = float(np.median(numbers[:place])), float(np.median(numbers[place:]))
            return Seen(
                int(steps[place]),
                f"Since step {int(steps[place]):,} the images are others: their {name.partition('/')[2]} went from "
                f"{before:.3g} to {after:.3g} from one batch to the next.",
                (Evidence(f"{CHECK.name}/{name}", after, (int(steps[place]), int(steps[-1])), f"{before:.3g}"),),
                ("a batch that differs by chance: the change is many times what batches differ by, and lasts",),
                confidence=0.999,
            )
    return None


def change_of(numbers: np.ndarray) -> int | None:
    """Where a series changes once and for good; None where it does not."""
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


def look_same_batch(case: Case) -> Seen | None:
    steps, _ = case.check("stream/images_alike")
    if len(steps) < SAME:
        return None
    return Seen(
        int(steps[0]),
        f"The batch of the step before came again {len(steps)} times: the network is shown the same images at every "
        f"step.",
        (Evidence(f"{CHECK.name}/stream/images_alike", float(len(steps)), (int(steps[0]), int(steps[-1])), "0"),),
        ("a new round through the images: its batches are put together anew",),
    )


RULES = (
    Rule(
        code="DAT001",
        cause="data.nonfinite",
        title="NaN or infinity in the images",
        what="An image holds a number that is not finite.",
        why="Loss and gradient of every batch with that image are NaN.",
        alike="An overflow in the network begins behind finite images.",
        misses="Images that were not among those looked at, until they are drawn.",
        fix="Take the image out, or mend what computes it. Safelight's own reader never lets one in.",
        look=look_nonfinite,
    ),
    Rule(
        code="DAT002",
        cause="data.duplicates",
        title="The same image many times",
        what="More than a tenth of the images are exact copies of others.",
        why="What is there many times is memorised first.",
        alike="A small set has few images, but different ones.",
        misses="Images that are nearly the same: `safelight data` finds those.",
        fix="Take the copies out; `safelight data` lists them.",
        severity="warning",
        look=look_duplicates,
        yields=("data.blank",),
    ),
    Rule(
        code="DAT003",
        cause="data.blank",
        title="Empty pictures",
        what="More than a tenth of the images have one colour only.",
        why="The model learns to draw empty pictures, and the loss looks better than it is.",
        alike="Dark pictures have some variation left.",
        misses="Pictures with a frame and nothing in it.",
        fix="Filter them out, or look at what decodes them.",
        severity="warning",
        look=look_blank,
    ),
    Rule(
        code="DAT004",
        cause="data.not-shuffled",
        title="Images in the order of their classes",
        what="Labels of neighbouring samples are equal far more often than chance would have it.",
        why="Every batch teaches one class and forgets the others; the loss goes up and down with the round.",
        alike="A learning rate that goes up and down has another period. Unequal classes are taken into account.",
        misses="Sets without labels.",
        fix="Shuffle: DataLoader(shuffle=True).",
        severity="warning",
        look=look_not_shuffled,
        yields=("conditioning.one-class", "conditioning.always-dropped", "data.same-batch"),
    ),
    Rule(
        code="DAT005",
        cause="data.shifted",
        title="Other images than before",
        what="Mean or deviation of the batches changes from one step to the next, and stays changed.",
        why="What was learnt before is unlearnt; the loss jumps without any fault of the training.",
        alike="A loss that jumps while the images stay as they were has another cause.",
        misses="Other images with the same brightness and contrast.",
        fix="Look at what changed in the loading of the data at that step.",
        severity="warning",
        look=look_shifted,
        yields=("data.same-batch", "data.not-shuffled", "data.nonfinite", "conditioning.one-class"),
    ),
    Rule(
        code="DAT006",
        cause="data.same-batch",
        title="The same batch at every step",
        what="Batches come back number for number, step after step.",
        why="The network learns these few images by heart; the loss looks wonderful.",
        alike="A small set comes back too, but in other batches.",
        misses="The same images in another order.",
        fix="Take the next batch inside the loop; do not seed the shuffling at every step.",
        look=look_same_batch,
        yields=("timesteps.repeated", "forward.noise-repeated"),
    ),
)
