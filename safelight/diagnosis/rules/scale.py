"""Images in a range that the sampler does not return."""

from __future__ import annotations

import math

import numpy as np

from safelight import checks
from safelight.diagnosis.rule import Detection, Rule, on_latest
from safelight.diagnosis.run_history import RunHistory

# Of images in [-1, 1] the lowest and highest numbers of a batch are -1 and 1, or nearly.
NEAR = 0.03
PICTURE, FAR = 3, 20.0  # dimensions of a batch of images; numbers that only integer pixels reach
WIDE, NARROW = 2.5, 0.15  # standard deviations: digits have 0.75, photographs about 0.5, latents 1
USUAL = {checks.BATCH_LOWEST: "-1", checks.BATCH_HIGHEST: "1", checks.BATCH_STD: "0.3 to 1"}


def _range(run: RunHistory) -> tuple[float, float, float, bool] | None:
    """(lowest, highest, deviation, whether images) of the first batches, as the network gets them."""
    lows, highs, stds = (run.numbers(check)[:16] for check in USUAL)
    if not len(lows) or not math.isfinite(float(lows.min())) or not math.isfinite(float(highs.max())):
        return None
    images = run.latest(checks.BATCH_DIMENSIONS, 4.0) > PICTURE
    # Of most batches: one broken image is another cause.
    return float(np.median(lows)), float(np.median(highs)), float(np.median(stds)), images


def _seen(run: RunHistory, summary: str) -> Detection:
    evidence = tuple(run.evidence(check, usual, step=0) for check, usual in USUAL.items())
    step = int(run.steps(checks.BATCH_LOWEST)[0])
    return Detection(step, summary, evidence, ("the noise and the schedule: they do not depend on the images",))


def look_0_1(run: RunHistory) -> Detection | None:
    found = _range(run)
    if found is None:
        return None
    low, high, _, images = found
    halved = run.latest(checks.DATA_LOWEST, 0.0) < -0.2  # the dataset itself reaches below 0: the loop moved it
    if not low >= -NEAR or not 0.4 < high <= 1 + NEAR or not (images or halved):
        return None
    return _seen(
        run,
        f"The images are in [{low:.2g}, {high:.2g}] instead of [-1, 1]: half of the range is never used, and samples "
        "are pale.",
    )


def look_0_255(run: RunHistory) -> Detection | None:
    found = _range(run)
    if found is None or found[1] <= FAR or found[0] < -NEAR * found[1]:
        return None
    return _seen(
        run,
        f"The images are in [{found[0]:.3g}, {found[1]:.3g}] instead of [-1, 1]: the noise is negligible, as if the "
        f"signal were {20 * math.log10(max(found[1], 1)):.0f} dB stronger.",
    )


def look_wrong_std(run: RunHistory) -> Detection | None:
    found = _range(run)
    if found is None or look_0_255(run) is not None:
        return None
    low, high, std, images = found
    flat = images and high - low < 0.3
    if NARROW <= std <= WIDE and not flat:
        return None
    return _seen(
        run,
        f"The data have a standard deviation of {std:.3g}; schedules are made for about 0.5 to 1. Latents need the "
        "scaling factor of their autoencoder, and images their full range.",
    )


def look_outside(run: RunHistory) -> Detection | None:
    found = _range(run)
    if found is None or not found[3]:
        return None
    low, high = found[0], found[1]
    reach = max(abs(low), abs(high))
    inside = low > -0.5 and high < 1.5 and look_0_1(run) is None and high - low < 0.9
    if not 1.3 < reach <= FAR and not (low < -NEAR and -high > FAR) and not inside and not low < -FAR:
        return None
    return _seen(
        run,
        f"The images are in [{low:.3g}, {high:.3g}] instead of [-1, 1], which samplers clamp to and images are made "
        "from.",
    )


NEEDED = "x / 127.5 - 1 for integer pixels, 2 * x - 1 for numbers in [0, 1]."
WHY = "The schedule mixes noise of size 1 with the images: in another range the noise levels are wrong."

RULES = (
    Rule(
        code="SCA001",
        cause="scale.range-0-1",
        title="Images in [0, 1]",
        what="The training images are in [0, 1] instead of [-1, 1].",
        why=WHY,
        similar="Dark images in [-1, 1] reach down to -1.",
        limits="A model made for [0, 1] with a sampler of its own: ignore this warning.",
        fix=f"Scale once, before the loop: {NEEDED}",
        severity="warning",
        needs=(checks.BATCH_LOWEST, checks.BATCH_HIGHEST),
        detect=look_0_1,
    ),
    Rule(
        code="SCA002",
        cause="scale.range-0-255",
        title="Images in [0, 255]",
        what="The training images are pixels from 0 to 255.",
        why=WHY,
        similar="A learning rate that is too high makes the loss large as well; here it is the data.",
        limits="Numbers below 20.",
        fix=f"Scale once, before the loop: {NEEDED}",
        needs=(checks.BATCH_LOWEST, checks.BATCH_HIGHEST),
        detect=look_0_255,
        explained_by="data.shifted",
    ),
    Rule(
        code="SCA003",
        cause="scale.integer",
        title="Images of an integer type",
        what="The training images are of an integer type.",
        why="Noise is rounded away or wraps around.",
        similar="Scaled images that are stored as integers are converted before they get here.",
        limits="Integers that are stored as floats.",
        fix=f"Convert and scale: x.float(){NEEDED[1:]}",
        needs=(checks.BATCH_INTEGER,),
        detect=on_latest(
            checks.BATCH_INTEGER,
            lambda flag: flag == 1,
            "The images are integers: noise is rounded when it is added to them, or wraps around.",
            "0",
        ),
    ),
    Rule(
        code="SCA004",
        cause="scale.wrong-std",
        title="Data of a different scale than the noise",
        what="The standard deviation of the data is far from that of the noise.",
        why=WHY,
        similar="Images in [0, 255] are reported as such.",
        limits="Factors of less than two.",
        fix="Divide by the standard deviation of the data; for latents use the scaling factor of their autoencoder.",
        severity="warning",
        needs=(checks.BATCH_LOWEST, checks.BATCH_HIGHEST),
        detect=look_wrong_std,
        explained_by="scale.range scale.integer data.blank data.nonfinite scale.outside",
    ),
    Rule(
        code="SCA005",
        cause="scale.outside",
        title="Images outside [-1, 1]",
        what="Images that reach beyond [-1, 1], or fill only a part of it.",
        why="Samplers clamp to [-1, 1]: what lies outside can be learnt and never drawn.",
        similar="Noised images reach beyond; these are the clean ones.",
        limits="A little more than 1.",
        fix=f"Use the plain range: {NEEDED} Means and deviations of ImageNet are for classifiers.",
        severity="warning",
        needs=(checks.BATCH_LOWEST, checks.BATCH_HIGHEST),
        detect=look_outside,
        explained_by="scale.range scale.integer data.nonfinite",
    ),
)
