"""Whether samples are copies of training images: their nearest ones, and two tests against real images not trained on.

No single published number shows copying (Stein et al. 2023), so there are two, and pairs to look at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from safelight.evaluate.figures import Figure, draw_rows
from safelight.evaluate.moments import check_dimension, check_features
from safelight.evaluate.nearest import Nearest, find_nearest, find_nearest_others
from safelight.evaluate.statistics.chances import fisher_greater, normal_cdf

COPY = 1 / 3  # of the distance to the second nearest training image
ERROR_RATE = 0.05  # of false alarms
CLOSER_RATE = 0.01  # of false words about `closer`, which is not an alarm
PAIRS = 16  # of samples and training images that are shown
PER_CELL, MOST_CELLS = 50, 20


@dataclass(frozen=True, slots=True)
class Memorisation:
    copied: Figure  # share of samples much nearer to one training image than to any other
    copied_chance: float  # p-value: that real images would have as large a share
    alarm: bool
    smallest: float  # share of copies from which on this alarm could have fired at all; above 1: never
    likeness: float  # C_T of Meehan et al. 2020, far below 0: samples lie nearer to training images than real ones do
    closer_chance: float  # its p-value
    closer: bool
    ratios: np.ndarray  # [n], of the nearest distance to the second
    closest: np.ndarray  # [pairs, 2], sample and training image, the most suspicious first
    held_out: bool  # whether there were real images that were not trained on
    sentence: str

    def to_json(self) -> dict[str, Any]:
        return {
            "share": self.copied.to_json(),
            "chance": self.copied_chance,
            "alarm": self.alarm,
            "smallest_share_seen": self.smallest if math.isfinite(self.smallest) else None,
            "likeness": self.likeness,
            "likeness_chance": self.closer_chance,
            "held_out": self.held_out,
            "sentence": self.sentence,
        }


def memorisation(features: np.ndarray, training: np.ndarray, held_out: np.ndarray | None = None) -> Memorisation:
    """Features [n, d], or pixels of any shape, of samples, of all training images, and of real ones left out of it.

    The alarm checks only whether there are more copies than among held-out images. `closer` is a second opinion that
    sees copying of all images at once; samples with too little variety lie closer too, so it never raises the alarm.
    Without held-out images each training image is compared with the others instead. That is weaker: twins within the
    training set look like copies and hide real ones, and it is blind to a training set unlike the world.
    """
    samples, trained = check_features(_flat(features)), _flat(training)
    check_features(trained[:1], "training images", least=1)
    check_dimension(samples.shape[1], trained.shape[1], "training images")
    baseline, baseline_nearest = _left_out(trained, held_out, len(samples))
    duplicate = find_nearest_others(trained, draw_rows(len(trained), 500)).usual_distance() * COPY
    own = find_nearest(samples, trained)
    ratios, other_ratios = own.ratios(trained, duplicate), baseline_nearest.ratios(trained, duplicate)
    hits, other_hits = int((ratios < COPY).sum()), int((other_ratios < COPY).sum())
    count, other = len(ratios), (other_hits, len(other_ratios))
    chance = fisher_greater(hits, count, *other)
    smallest = (some / count for some in range(1, count + 1) if fisher_greater(some, count, *other) <= ERROR_RATE)
    likeness, closer_chance = _likeness(samples, baseline, own, baseline_nearest, trained)
    order = np.argsort(ratios, kind="stable")[:PAIRS]
    figure = _figure(hits, count, *other)
    alarm, closer = chance <= ERROR_RATE, closer_chance <= CLOSER_RATE
    return Memorisation(
        figure, chance, alarm, next(smallest, math.inf), likeness, closer_chance, closer, ratios,
        np.stack([order, own.places[order, 0]], 1), held_out is not None,
        _sentence(figure, alarm, closer, held_out is not None),
    )  # fmt: skip


def _flat(images: np.ndarray) -> np.ndarray:
    array = np.asarray(images)
    return array.reshape(len(array), -1) if array.ndim > 2 and len(array) else array


def _left_out(trained: np.ndarray, held_out: np.ndarray | None, count: int) -> tuple[np.ndarray, Nearest]:
    """Real images and the nearest training images of each, itself left out."""
    if held_out is None:
        check_features(trained[:PER_CELL], "training images", least=10)
        rows = draw_rows(len(trained), max(count, 500))
        return check_features(trained[rows]), find_nearest_others(trained, rows)
    baseline = check_features(_flat(held_out), "held-out images")
    check_dimension(baseline.shape[1], trained.shape[1], "training images")
    return baseline, find_nearest(baseline, trained)


def _likeness(
    samples: np.ndarray, baseline: np.ndarray, own: Nearest, baseline_nearest: Nearest, trained: np.ndarray
) -> tuple[float, float]:
    """C_T, the mean over cells of how many deviations the distances of samples lie below those of real images, and the
    chance of a mean so low. Within cells, because rare kinds of images are far from everything."""
    from scipy.stats import ranksums  # z of Mann and Whitney: below 0 where the first are smaller
    from sklearn.cluster import KMeans

    cells = int(np.clip(min(len(samples), len(baseline), len(trained)) // PER_CELL, 1, MOST_CELLS))
    part = check_features(trained[draw_rows(len(trained), 5000)], least=1)
    means = KMeans(cells, random_state=0).fit(part)
    cell_of, baseline_cell_of = means.predict(samples), means.predict(baseline)
    scores, weights = [], []
    for cell in range(cells):
        first, second = own.distances[cell_of == cell, 0], baseline_nearest.distances[baseline_cell_of == cell, 0]
        if min(len(first), len(second)) >= 5:
            scores.append(ranksums(first, second).statistic)
            weights.append(len(second))
    if not scores:
        return 0.0, 1.0
    z, w = np.array(scores), np.array(weights, np.float64)
    return float(z @ w / w.sum()), normal_cdf(float(z @ w / math.sqrt(w @ w)))


def _figure(hits: int, count: int, other_hits: int, other_count: int) -> Figure:
    share, base = hits / count, other_hits / other_count
    low, high = _share_interval(hits, count)
    words = f"{hits} of {count} samples are much nearer to one training image than to any other"
    words += f" (of real images not trained on: {other_hits} of {other_count})."
    return Figure("copied", share, low, high, (base, _share_interval(other_hits, other_count)[1]), count, words)


def _share_interval(hits: int, count: int) -> tuple[float, float]:
    """Wilson: also right for 0 hits."""
    z2 = 1.96**2
    middle, half = hits + z2 / 2, 1.96 * math.sqrt(hits * (count - hits) / count + z2 / 4)
    return max(0.0, (middle - half) / (count + z2)), (middle + half) / (count + z2)


def _sentence(figure: Figure, alarm: bool, closer: bool, held_out: bool) -> str:
    if alarm:
        words = f"The model copies training images: {figure.sentence} Look at the closest pairs."
    elif closer:
        words = (
            f"No copies are seen, but samples lie nearer to training images than other real images do: it begins to "
            f"learn them by heart, or its samples vary too little. {figure.sentence}"
        )
    else:
        words = f"No copying is seen. {figure.sentence}"
    if not held_out:
        words += " No image was held out: the baseline is each training image against the others, which hides twins."
    return words
