"""One number of an evaluation as it is shown: with its interval, what real images would score, and its meaning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    low: float  # 95 % interval of the value
    high: float
    baseline: tuple[float, float]  # range of real images against other real ones, at the same count
    count: int  # images of each kind it was taken from
    sentence: str

    def to_json(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "interval": [self.low, self.high],
            "real": [*self.baseline],
            "count": self.count,
            "sentence": self.sentence,
        }


def against_real(
    name: str, value: float, half: float, baseline: tuple[float, float], count: int, text: str, *,
    lack: str = "", excess: str = "", usual: str = "as real images do", most: float = math.inf
) -> Figure:  # fmt: skip
    """`half`: of the interval, which stays between 0 and `most`. The sentence is `text` and the verdict: whether the
    interval lies below the range of real images, above it, or neither."""
    low, high = max(0.0, value - half), min(most, value + half)
    verdict = lack if lack and high < baseline[0] else excess if excess and low > baseline[1] else usual
    return Figure(name, value, low, high, baseline, count, f"{text}: {verdict}.")


def span(values: np.ndarray) -> tuple[float, float]:
    """The middle 95 % of repeated draws; of few draws, all of them."""
    low, high = np.quantile(np.asarray(values, np.float64), (0.025, 0.975))
    return float(low), float(high)


def range_text(low: float, high: float, form: str = ".2f") -> str:
    return f"{low:{form}} to {high:{form}}"


def split(count: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two draws of `size` out of `count` that share none."""
    order = np.random.default_rng(seed).permutation(count)
    return order[:size], order[size : 2 * size]


def draw_rows(count: int, most: int) -> np.ndarray:
    """At most `most` of `count` rows, in their order, drawn without repeats: always the same ones."""
    return np.sort(np.random.default_rng(0).permutation(count)[:most])
