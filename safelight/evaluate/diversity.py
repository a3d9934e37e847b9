"""How much the samples vary, measured three ways against real images."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from safelight.errors import UsageError
from safelight.evaluate.figures import Figure, against_real, draw_rows, range_text, span, split
from safelight.evaluate.moments import MIN_FEATURES, check_pair
from safelight.evaluate.neighbours import squared_distances

DRAWS = 10  # of real against real; at 1,280 dimensions and 2,000 images each costs about a second
MAX_IMAGES = 2000  # images of each kind: pairs cost their square


@dataclass(frozen=True, slots=True)
class DiversityFigures:
    variance: Figure  # ratio of total variances
    distance: Figure  # ratio of mean distances between two images
    vendi: Figure  # ratio of effective numbers of different images


def diversity(features: np.ndarray, reference: np.ndarray) -> DiversityFigures:
    """Ratios of the samples to real images at the same number, which is at most half of the real ones; their range for
    real images comes from halves of these drawn again and again. The Vendi score needs that: it grows with the number.
    """
    samples, real = check_pair(features, reference)
    count = min(len(samples), len(real) // 2, MAX_IMAGES)
    if count < MIN_FEATURES:
        raise UsageError(
            f"Expected at least {2 * MIN_FEATURES} real images to draw two sets from, came {len(real)}. Add some."
        )
    centre = real.mean(0)
    chosen = samples[draw_rows(len(samples), count)]
    draws = [split(len(real), count, draw) for draw in range(DRAWS)]

    def figure(name: str, measure: Callable[[np.ndarray], float], what: str) -> Figure:
        own = measure(chosen)
        pairs = np.array([[measure(real[rows]) for rows in pair] for pair in draws])
        if not (pairs > 0).all():
            raise UsageError(
                f"The real images do not vary at all: their {name} is 0. Look at them: are they all the same?"
            )
        value = own / float(pairs.mean())
        null = np.log(pairs[:, 0] / pairs[:, 1])
        null = np.concatenate([null, -null])  # either may stand above: twice as many draws for nothing
        # The noise of one set of samples is not known: that of real images is used. A ratio of two halves has
        # twice the variance of one, and the mean over all draws that of the whole reference.
        half = 1.96 * float(null.std()) * math.sqrt((1 + count / len(real)) / 2) * value
        baseline = span(np.exp(null))
        text = f"Samples {what.format(value)} (real against real: {range_text(*baseline)})"
        return against_real(
            name, value, half, baseline, count, text, lack="part of the variety is missing",
            excess="they vary more than real images, as noise and broken images do",
        )  # fmt: skip

    return DiversityFigures(
        figure("variance", lambda x: float(x.var(0, ddof=1).sum()), "vary {:.2f} times as much as real images"),
        figure("distance", mean_distance, "lie {:.2f} times as far apart as real images"),
        figure("vendi", lambda x: vendi(x - centre), "hold {:.2f} times as many different images as real ones do"),
    )


def mean_distance(features: np.ndarray) -> float:
    """Between two different rows."""
    count = len(features)
    centred = features - features.mean(0)  # far from 0 the distances would lose digits
    total = 0.0
    for rows, block in squared_distances(centred, centred):
        block[np.arange(len(block)), np.arange(rows.start, rows.stop)] = 0
        total += float(np.sqrt(block).sum())
    return total / (count * (count - 1))


def vendi(features: np.ndarray) -> float:
    """Effective number of different rows (Friedman and Dieng 2023), by the cosine between them: 1 if all are alike.

    Centre the features first: all images share most of theirs, and the score would see little else.
    """
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    units = features / np.where(norms > 0, norms, 1)
    smaller = units @ units.T if len(units) <= units.shape[1] else units.T @ units  # the same eigenvalues
    shares = np.clip(np.linalg.eigvalsh(smaller) / len(units), 0, None)
    shares = shares[shares > 0]
    return float(math.exp(-(shares * np.log(shares)).sum()))
