"""Distances between features in bounded memory; precision, recall, density and coverage from the nearest ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from safelight.errors import UsageError
from safelight.evaluate.figures import Figure, against_real, draw_rows, range_text, span, split
from safelight.evaluate.moments import check_pair

NEIGHBOURS = 5
DRAWS = 4  # of real against real
_CELLS = 1 << 22  # of the distance matrix at a time: 32 MB


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    precision: Figure  # share of samples that lie where real images are
    recall: Figure  # share of real images that lie where samples are
    density: Figure  # how many real neighbourhoods a sample lies in, over what is expected; may exceed 1
    coverage: Figure  # share of real images with a sample among their nearest


def squared_distances(left: np.ndarray, right: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """(rows of `left`, block [rows, len(right)]), never negative."""
    norms = (right**2).sum(1)
    step = max(1, _CELLS // max(1, len(right)))
    for start in range(0, len(left), step):
        rows = slice(start, min(start + step, len(left)))
        part = left[rows]
        block = part @ right.T
        block *= -2
        block += (part**2).sum(1)[:, None]
        block += norms
        yield rows, np.maximum(block, 0, out=block)


def precision_recall(features: np.ndarray, reference: np.ndarray) -> Neighbourhood:
    """All four depend on the number of images, so both sets are thinned to the same one, always in the same way.

    The baseline is what other real images score at that number, drawn from the same reference: half of it at most is
    used for each side.
    """
    samples, real = check_pair(features, reference)
    count = min(len(samples), len(real) // 2)
    if count <= NEIGHBOURS:
        raise UsageError(
            f"Expected more than {NEIGHBOURS} images of each kind for {NEIGHBOURS} neighbours, came {count} "
            f"({len(samples)} samples, {len(real)} real, of which half is the baseline). Evaluate more images."
        )
    scores, bases = [], []
    chosen = samples[draw_rows(len(samples), count)]
    for draw in range(DRAWS):
        first, second = split(len(real), count, draw)
        scores.append(score(chosen, real[first], NEIGHBOURS))
        bases.append(score(real[second], real[first], NEIGHBOURS))
    value, base = np.mean(scores, 0), np.array(bases)
    return Neighbourhood(*(_figure(name, float(value[i]), base[:, i], count) for i, name in enumerate(_WORDS)))


def score(samples: np.ndarray, real: np.ndarray, neighbours: int) -> tuple[float, float, float, float]:
    """(precision, recall, density, coverage) of two sets; a point on the rim of a neighbourhood is in it."""
    centre = real.mean(0)
    samples, real = samples - centre, real - centre
    slack = 1e-12 * max((samples**2).sum(1).max(), (real**2).sum(1).max())  # products round: twins are not quite at 0
    reach, own_reach = _reach(real, neighbours) + slack, _reach(samples, neighbours) + slack
    inside = np.zeros(len(samples))  # real neighbourhoods that hold each sample
    covered, found = np.zeros(len(real), bool), np.zeros(len(real), bool)
    for rows, block in squared_distances(samples, real):
        within = block <= reach
        inside[rows] = within.sum(1)
        covered |= within.any(0)
        found |= (block <= own_reach[rows][:, None]).any(0)
    return float((inside > 0).mean()), float(found.mean()), float(inside.mean()) / neighbours, float(covered.mean())


def _reach(features: np.ndarray, neighbours: int) -> np.ndarray:
    """[n], squared distance of each to its kth nearest other; itself is left out by its place, so twins count."""
    found = np.empty(len(features))
    for rows, block in squared_distances(features, features):
        block[np.arange(len(block)), np.arange(rows.start, rows.stop)] = np.inf
        found[rows] = np.partition(block, neighbours - 1, axis=1)[:, neighbours - 1]
    return found


_WORDS = {
    "precision": (
        "{:.0%} of the samples look like real images",
        "some samples look like no real image",
        "more than real images do, because samples keep to the middle of them",
    ),
    "recall": (
        "{:.0%} of the real images have samples around them",
        "part of the real variety is not generated",
        "more than by real images, because some samples stray far and reach around many",
    ),
    "density": (
        "Samples lie {:.2f} times as densely among real images as expected",
        "samples stray from real images",
        "denser than real images, because samples keep to the middle of them",
    ),
    "coverage": ("{:.0%} of the real images have a sample nearby", "some kinds of real images are missing", ""),
}


def _figure(name: str, value: float, base: np.ndarray, count: int) -> Figure:
    words, lack, excess = _WORDS[name]
    # A density is not a share: its noise is that of real images.
    density = name == "density"
    noise = float(base.std(ddof=1)) if density else math.sqrt(value * (1 - value) / count)
    most = math.inf if density else 1.0
    text = f"{words.format(value)} (other real images: {range_text(*span(base))})"
    return against_real(name, value, 1.96 * noise, span(base), count, text, lack=lack, excess=excess, most=most)
