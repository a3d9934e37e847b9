"""The nearest training images of samples, of any number of them in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from safelight.evaluate.moments import check_features
from safelight.evaluate.neighbours import squared_distances

KEPT_NEIGHBOURS = 8  # nearest ones of each: more than there are twins of one image
_CHUNK = 4096  # training images widened to float64 at a time


@dataclass(frozen=True, slots=True)
class Nearest:
    """The neighbours of each sample, the nearest first."""

    distances: np.ndarray  # [n, kept]
    places: np.ndarray  # [n, kept], rows of the training set

    def usual_distance(self) -> float:
        """Median of the nearest distances above 0: what lies between neighbours that are no duplicates."""
        above = np.where(self.distances > 0, self.distances, np.inf).min(1)
        return float(np.median(above[np.isfinite(above)])) if np.isfinite(above).any() else 0.0

    def ratios(self, trained: np.ndarray, duplicate: float) -> np.ndarray:
        """[n], nearest distance over second nearest. Second is the first that is farther from the nearest than
        `duplicate`: an image that is twice in the training set would otherwise hide every copy of it."""
        found = np.empty(len(self.places))
        for rows in _blocks(len(found)):
            images = trained[self.places[rows]].astype(np.float64)  # [rows, kept, d]
            different = np.sqrt(((images - images[:, :1]) ** 2).sum(2)) > duplicate
            place = np.where(different.any(1), different.argmax(1), different.shape[1] - 1)
            near, second = self.distances[rows, 0], np.take_along_axis(self.distances[rows], place[:, None], 1)[:, 0]
            found[rows] = np.where(second > 0, near / np.where(second > 0, second, 1), 0.0)
        return found


def find_nearest(samples: np.ndarray, trained: np.ndarray) -> Nearest:
    return _search(samples, trained, np.full(len(samples), -1))


def find_nearest_others(trained: np.ndarray, rows: np.ndarray) -> Nearest:
    """The nearest to these rows of the training set, themselves left out."""
    return _search(check_features(trained[rows], "training images"), trained, rows)


def _search(samples: np.ndarray, trained: np.ndarray, without: np.ndarray) -> Nearest:
    kept = min(KEPT_NEIGHBOURS, len(trained) - 1 if without.max() >= 0 else len(trained))
    squares, places = np.full((len(samples), kept), np.inf), np.zeros((len(samples), kept), np.int64)
    for start in range(0, len(trained), _CHUNK):
        part = check_features(trained[start : start + _CHUNK], "training images", least=1)
        for rows, block in squared_distances(samples, part):
            own = without[rows] - start
            mine = np.flatnonzero((own >= 0) & (own < len(part)))
            block[mine, own[mine]] = np.inf
            near = np.argpartition(block, min(kept, block.shape[1]) - 1, axis=1)[:, :kept]
            both = np.concatenate([squares[rows], np.take_along_axis(block, near, 1)], 1)
            names = np.concatenate([places[rows], near + start], 1)
            best = np.argsort(both, axis=1, kind="stable")[:, :kept]
            squares[rows], places[rows] = np.take_along_axis(both, best, 1), np.take_along_axis(names, best, 1)
    return _exact(samples, trained, places)


def _exact(samples: np.ndarray, trained: np.ndarray, places: np.ndarray) -> Nearest:
    """From differences instead of products, which would make a copy of something far from 0 a little different."""
    distances = np.empty(places.shape)
    for rows in _blocks(len(places)):
        distances[rows] = np.sqrt(((trained[places[rows]] - samples[rows, None]) ** 2).sum(2))
    order = np.argsort(distances, axis=1, kind="stable")
    return Nearest(np.take_along_axis(distances, order, 1), np.take_along_axis(places, order, 1))


def _blocks(count: int) -> Iterator[slice]:
    for start in range(0, count, 64):
        yield slice(start, min(start + 64, count))
