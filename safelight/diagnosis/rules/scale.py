"""Images in a range that the sampler does not return."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from safelight import checks
from safelight.diagnosis.rule import Detection, Detector, error_rule, on_latest, warning_rule
from safelight.diagnosis.run_history import HealthyRanges, RunHistory

# Of images in [-1, 1] the lowest and highest numbers of a batch are -1 and 1, or nearly.
RANGE_TOLERANCE = 0.03
PICTURE_DIMENSIONS = 3  # dimensions of a batch of images
INTEGER_PIXEL_REACH = 20.0  # numbers that only integer pixels reach
WIDE_DEVIATION, NARROW_DEVIATION = 2.5, 0.15  # standard deviations: digits have 0.75, photographs about 0.5, latents 1
SIGMA_PROCESSES = tuple(float(checks.PROCESSES.index(name)) for name in ("ve", "edm"))
SIGMA_RATIO = 2.5  # between sigma_data and the deviation of the data
# 1.3 is where `scale.outside` begins. Batches of photographs reach 2 to 3 deviations from their mean, digits 2, images
# that were normalised for classifiers 2.7; thousands of normal numbers 3.8 and more.
COLOURS, OUTSIDE_REACH, LONG_TAILS, FAR_OUT_REACH = 3, 1.3, 3.3, 4.0
# EDM2 trains on latents of 0.5, others have 0.8 to 1.2; raw ones of Stable Diffusion 5.5, scaled twice 0.18. Means of
# raw channels of usual autoencoders are at most 0.8 of their deviation away, and deviations within a factor of 3.
LATENT_STD, OFFSET, UNEQUAL = (0.4, 2.0), 2.0, 10.0
LATENTS: HealthyRanges = {
    checks.BATCH_STD: "0.5 to 1.2",
    checks.CHANNEL_OFFSET: "below 1",
    checks.CHANNEL_LOWEST: None,
    checks.CHANNEL_HIGHEST: None,
}
HEALTHY_BATCH: HealthyRanges = {checks.BATCH_LOWEST: "-1", checks.BATCH_HIGHEST: "1", checks.BATCH_STD: "0.3 to 1"}


def _range(run: RunHistory) -> tuple[float, float, float, bool] | None:
    """(lowest, highest, deviation, whether images) of the first batches, as the network gets them."""
    lows, highs, stds = (run.numbers(check)[:16] for check in HEALTHY_BATCH)
    if not len(stds) or not np.isfinite([lows.min(initial=np.inf), highs.max(initial=-np.inf)]).all():
        return None
    images = run.latest(checks.BATCH_DIMENSIONS, 4.0) > PICTURE_DIMENSIONS and not is_latent(run)
    # Of most batches: one broken image is another cause.
    return float(np.median(lows)), float(np.median(highs)), float(np.median(stds)), images


def is_latent(run: RunHistory) -> bool:
    """Whether these are latents, or other data of unit variance, and no pixels: as declared, or by evidence. Pixels end
    at both sides, and images have one or three channels. Of the latents of an autoencoder some values lie far out."""
    declared = run.latest(checks.BATCH_SPACE)
    if declared in (0.0, 1.0):
        return checks.SPACES[int(declared)] == "latent"
    tails, channels = run.numbers(checks.BATCH_TAILS)[:16], run.latest(checks.BATCH_CHANNELS, 1.0)
    if not len(tails) or run.latest(checks.BATCH_DIMENSIONS, 4.0) <= PICTURE_DIMENSIONS:
        return False
    reach = float(np.median(run.numbers(checks.BATCH_HIGHEST)[:16])) if len(run.steps(checks.BATCH_HIGHEST)) else 1.0
    far = float(np.median(tails))
    if channels > COLOURS:
        return reach > OUTSIDE_REACH or far > LONG_TAILS
    return reach > OUTSIDE_REACH and far > FAR_OUT_REACH


def has_sigma(run: RunHistory) -> bool:
    """Whether noise of any size is added to the images, as in EDM: their own scale is sigma_data, and samplers clamp
    nothing."""
    return run.latest(checks.MIXTURE_PROCESS, -1.0) in SIGMA_PROCESSES


def wrong_latents(run: RunHistory) -> Detection | None:
    """Against unit variance, by the first batches: what autoencoders' factors and shifts are made for."""
    if not is_latent(run) or not len(run.steps(checks.BATCH_STD)):
        return None
    readings = checks.BATCH_STD, checks.CHANNEL_OFFSET, checks.CHANNEL_LOWEST, checks.CHANNEL_HIGHEST
    std, offset, low, high = (
        float(np.median(found)) if len(found := run.numbers(reading)[:16]) else math.nan for reading in readings
    )
    if not np.isfinite(std) or std == 0:
        return None
    if not LATENT_STD[0] <= std <= LATENT_STD[1]:
        words = (
            f"The latents have a standard deviation of {std:.3g} where noise has 1: the factor of their autoencoder is "
            + (f"missing (about {1 / std:.2g})." if std > 1 else "applied twice, or is that of another one.")
        )
    elif offset > OFFSET:
        words = (
            f"The mean of one channel of the latents is {offset:.2g} times its standard deviation away from 0: the "
            "shift of their autoencoder is missing."
        )
    elif high > UNEQUAL * max(low, 1e-12):
        words = (
            f"The channels of the latents have standard deviations from {low:.2g} to {high:.2g}: at least one is empty "
            "or scaled otherwise."
        )
    else:
        return None
    step = int(run.steps(checks.BATCH_STD)[0])
    return Detection(step, words, run.evidence_of(LATENTS, step=0), ("pixels: their values end at both sides",))


def on_range(is_wrong: Callable[[RunHistory, float, float, float, bool], bool], summary: str) -> Detector:
    """Detects by the range of the first batches; `summary` gets lowest, highest, deviation and decibels."""

    def detect(run: RunHistory) -> Detection | None:
        if (found := _range(run)) is None or not is_wrong(run, *found):
            return None
        step = int(run.steps(checks.BATCH_LOWEST)[0])
        ruled_out = ("the noise and the schedule: they do not depend on the images",)
        decibels = 20 * math.log10(max(found[1], 1))
        return Detection(step, summary.format(*found[:3], decibels), run.evidence_of(HEALTHY_BATCH, step=0), ruled_out)

    return detect


def _is_0_1(run: RunHistory, low: float, high: float, _: float, images: bool) -> bool:
    halved = run.latest(checks.DATA_LOWEST, 0.0) < -0.2  # the dataset itself reaches below 0: the loop moved it
    if has_sigma(run):
        return False
    return low >= -RANGE_TOLERANCE and 0.4 < high <= 1 + RANGE_TOLERANCE and (images or halved)


def _is_0_255(_: RunHistory, low: float, high: float, *__: float) -> bool:
    return high > INTEGER_PIXEL_REACH and low >= -RANGE_TOLERANCE * high


def _is_of_wrong_scale(run: RunHistory, low: float, high: float, std: float, images: bool) -> bool:
    flat = images and high - low < 0.3
    if is_latent(run) or (has_sigma(run) and len(run.steps(checks.MIXTURE_SIGMA_DATA))):
        return False
    return not _is_0_255(run, low, high) and (flat or not NARROW_DEVIATION <= std <= WIDE_DEVIATION)


def _is_outside(run: RunHistory, low: float, high: float, std: float, images: bool) -> bool:
    if has_sigma(run):
        return False
    inside = low > -0.5 and high < 1.5 and high - low < 0.9 and not _is_0_1(run, low, high, std, images)
    far = low < -INTEGER_PIXEL_REACH or (low < -RANGE_TOLERANCE and -high > INTEGER_PIXEL_REACH)
    return images and (1.3 < max(abs(low), abs(high)) <= INTEGER_PIXEL_REACH or far or inside)


NEEDED = "x / 127.5 - 1 for integer pixels, 2 * x - 1 for numbers in [0, 1]."
WHY = "The schedule mixes noise of size 1 with the images: in another range the noise levels are wrong."

RULES = (
    warning_rule(
        "SCA001",
        "scale.range-0-1",
        "Images in [0, 1]",
        what="The training images are in [0, 1] instead of [-1, 1].",
        why=WHY,
        similar="Dark images in [-1, 1] reach down to -1.",
        limits="A model made for [0, 1] with a sampler of its own: ignore this warning. x0 + σ·noise takes images of "
        "any scale: there it is compared with sigma_data (scale.sigma-data).",
        fix=f"Scale once, before the loop: {NEEDED}",
        needs=tuple(HEALTHY_BATCH),
        detect=on_range(
            _is_0_1,
            "The images are in [{:.2g}, {:.2g}] instead of [-1, 1]: half of the range is never used, and samples are "
            "pale.",
        ),
    ),
    error_rule(
        "SCA002",
        "scale.range-0-255",
        "Images in [0, 255]",
        what="The training images are pixels from 0 to 255.",
        why=WHY,
        similar="A learning rate that is too high makes the loss large as well; here it is the data.",
        limits="Numbers below 20.",
        fix=f"Scale once, before the loop: {NEEDED}",
        needs=tuple(HEALTHY_BATCH),
        detect=on_range(
            _is_0_255,
            "The images are in [{0:.3g}, {1:.3g}] instead of [-1, 1]: the noise is negligible, as if the signal were "
            "{3:.0f} dB stronger.",
        ),
        explained_by="data.shifted",
    ),
    error_rule(
        "SCA003",
        "scale.integer",
        "Images of an integer type",
        what="The training images are of an integer type.",
        why="Noise is rounded away or wraps around.",
        similar="Scaled images that are stored as integers are converted before they get here.",
        limits="Integers that are stored as floats.",
        fix=f"Convert and scale: x.float(){NEEDED[1:]}",
        needs=(checks.BATCH_INTEGER,),
        detect=on_latest(
            {checks.BATCH_INTEGER: "0"},
            lambda flag: flag == 1,
            "The images are integers: noise is rounded when it is added to them, or wraps around.",
        ),
    ),
    warning_rule(
        "SCA004",
        "scale.wrong-std",
        "Data of a different scale than the noise",
        what="The standard deviation of the data is far from that of the noise.",
        why=WHY,
        similar="Images in [0, 255] are reported as such.",
        limits="Factors of less than two.",
        fix="Divide by the standard deviation of the data; for latents use the scaling factor of their autoencoder.",
        needs=tuple(HEALTHY_BATCH),
        detect=on_range(
            _is_of_wrong_scale,
            "The data have a standard deviation of {2:.3g}; schedules are made for about 0.5 to 1. Latents need the "
            "scaling factor of their autoencoder, and images their full range.",
        ),
        explained_by="scale.range scale.integer data.blank data.nonfinite scale.outside",
    ),
    warning_rule(
        "SCA006",
        "scale.sigma-data",
        "A sigma_data that is not that of the data",
        what="EDM: sigma_data is far from the standard deviation of the images.",
        why="c_in, c_skip and c_out then do not give inputs and targets of size 1, and samples have a wrong contrast.",
        similar="Two values of sigma_data in one loop are target.other-sigma-data.",
        limits="Factors of less than 2.5: 0.5 is in use for images of 0.3 to 0.8.",
        fix="sigma_data = images.std().",
        needs=(checks.MIXTURE_SIGMA_DATA, checks.BATCH_STD),
        detect=on_latest(
            {checks.MIXTURE_SIGMA_DATA: "the deviation of the data", checks.BATCH_STD: None},
            lambda said, deviation: not 1 / SIGMA_RATIO < said / max(deviation, 1e-12) < SIGMA_RATIO,
            "sigma_data is {:.3g}, the images have a standard deviation of {:.3g}.",
        ),
        explained_by="scale.range scale.integer scale.wrong-std scale.outside data. target.other-sigma-data",
    ),
    warning_rule(
        "SCA007",
        "scale.latents",
        "Latents of another scale than the noise",
        what="Latents whose deviation is far from 1, or whose channels are shifted or of unequal size.",
        why=WHY,
        similar="Pixels are judged by their range, which samplers clamp to.",
        limits="Factors of less than two. Latents of three-dimensional data are judged as one channel.",
        fix="(z - shift_factor) * scaling_factor, once, with the config of the autoencoder that made them; or subtract "
        "the mean of every channel and divide by its deviation.",
        needs=(checks.BATCH_STD, checks.BATCH_TAILS),
        detect=wrong_latents,
        explained_by="data.nonfinite data.blank scale.integer scale.range",
    ),
    warning_rule(
        "SCA005",
        "scale.outside",
        "Images outside [-1, 1]",
        what="Images that reach beyond [-1, 1], or fill only a part of it.",
        why="Samplers clamp to [-1, 1]: what lies outside can be learnt and never drawn.",
        similar="Noised images reach beyond; these are the clean ones.",
        limits="A little more than 1. Latents are checked by scale.latents: they are told by their channels and "
        'distribution, or by watch(…, space="latent").',
        fix=f"Use the plain range: {NEEDED} Means and deviations of ImageNet are for classifiers.",
        needs=tuple(HEALTHY_BATCH),
        detect=on_range(
            _is_outside,
            "The images are in [{:.3g}, {:.3g}] instead of [-1, 1], which samplers clamp to and images are made from.",
        ),
        explained_by="scale.range scale.integer data.nonfinite",
    ),
)
