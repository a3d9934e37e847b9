"""Whether a checkpoint is really better than another one, judged on samples from the same seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from safelight.errors import UsageError
from safelight.evaluate.frechet import MIN_SAMPLES_PER_DIMENSION
from safelight.evaluate.kernel import KernelReference, fit_kernel_reference, measure_kernel
from safelight.evaluate.reference import Reference, fit_reference
from safelight.evaluate.statistics.chances import student_cdf
from safelight.evaluate.statistics.jackknife import jackknife


@dataclass(frozen=True, slots=True)
class Verdict:
    difference: float  # of the distances, new minus old: below 0 the new one is closer to real images
    error: float  # its standard error, paired by seed
    z: float
    p: float  # chance of a z so low between two equal checkpoints
    better: bool
    paired_gain: float  # how many times smaller the error is than without pairing; 1 is no gain
    enough: bool  # whether there are enough samples to judge
    sentence: str


def compare(
    new: np.ndarray, old: np.ndarray, reference: np.ndarray | Reference, *, error_rate: float = 0.05
) -> Verdict:
    """By the Fréchet distance, of features [n, d]. Row i of new and old must come from the same seed and label, by a
    sampler without chance.

    `error_rate` is that of one comparison: among equal checkpoints, at most this share of comparisons calls the new one
    better. Ties keep the older, so a run that compares each candidate with its best so far is wrong more often over
    all its comparisons, but each time only by putting an equal in the place of an equal. To bound the chance of any
    such change in a run, divide the rate by the number of comparisons. The score of the best, chosen on these seeds,
    is flattered by the choice: report it from fresh ones.
    The error comes from the jackknife with the same seeds left out of both. The deviation of the influences, as the
    delta method has it, is up to 1.6 times too large at 8 samples per dimension: real gains would go unseen.
    """
    fitted = reference if isinstance(reference, Reference) else fit_reference(reference)
    new, old = fitted.project(new), fitted.project(old)
    _check_paired(new, old)
    plain = fitted if fitted.projection is None else replace(fitted, projection=None)  # projected already
    one, other = jackknife(new, plain), jackknife(old, plain)
    both = one.minus(other)
    enough = len(new) >= MIN_SAMPLES_PER_DIMENSION * fitted.dimension
    spreads = both.variance(1), one.variance(1), other.variance(1)
    return _judge(both.corrected, spreads, both.degrees, error_rate, len(new), enough)


def compare_kernel(
    new: np.ndarray, old: np.ndarray, reference: np.ndarray | KernelReference, *, error_rate: float = 0.05
) -> Verdict:
    """The same by the kernel distance (Bounliphone et al. 2015), whose error also counts the choice of real images.
    It has no bias at any number of samples, so there is no least one beyond a few dozen."""
    fitted = reference if isinstance(reference, KernelReference) else fit_kernel_reference(reference)
    _check_paired(new, old)
    value_new, slopes_new, real_new, *_ = measure_kernel(new, fitted)
    value_old, slopes_old, real_old, *_ = measure_kernel(old, fitted)
    count, real = len(slopes_new), 4 * float((real_new - real_old).var(ddof=1)) / len(real_new)
    parts = (slopes_new - slopes_old, slopes_new, slopes_old)
    paired, first, second = (float(slopes.var(ddof=1)) / count for slopes in parts)
    enough = count >= 30  # a sum of fewer is not yet normal
    spreads = paired + real, first + real, second
    return _judge(value_new - value_old, spreads, math.inf, error_rate, count, enough)


def _check_paired(new: np.ndarray, old: np.ndarray) -> None:
    if len(new) != len(old):
        raise UsageError(
            f"Expected as many new samples as old ones, from the same seeds, came {len(new):,} and {len(old):,}. "
            "Sample both checkpoints with one list of seeds."
        )


def _judge(
    difference: float, spreads: tuple[float, float, float], degrees: float, error_rate: float, count: int, enough: bool
) -> Verdict:
    """`spreads`: variance of the difference, and of the new and the old distance by themselves."""
    error, apart = math.sqrt(spreads[0]), math.sqrt(spreads[1] + spreads[2])
    if error <= 1e-9 * apart:  # equal up to rounding
        return Verdict(0.0, 0.0, 0.0, 1.0, False, math.inf, enough, "Both checkpoints make the same samples: a tie.")
    z = difference / error
    chance = student_cdf(z, degrees)
    better = enough and chance <= error_rate
    words = f"The distance changed by {difference:+.4g} ± {error:.2g} (z = {z:.1f}): "
    if not enough:
        words += f"{count:,} samples are too few to judge by; the older one stays."
    elif better:
        words += "the new checkpoint is better."
    elif 1 - chance <= error_rate:
        words += "the new checkpoint is worse."
    else:
        words += "a tie; the older one stays."
    return Verdict(difference, error, z, chance, better, apart / error, enough, words)
