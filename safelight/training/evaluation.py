"""Evaluations while training: when they are due, what they cost, what they find, and which checkpoint is the best."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from safelight.config import Config
from safelight.data.images import Images, hold_out
from safelight.evaluate.closest import draw_closest
from safelight.evaluate.examination import Examination, Real, examine
from safelight.evaluate.features import Extractor, extract, load_extractor
from safelight.evaluate.networks.pixels import quantise
from safelight.evaluate.real import choose, real_features
from safelight.evaluate.significance import Verdict, compare, compare_kernel
from safelight.evaluate.thumbnails import shrink, thumbnails_of
from safelight.vocabulary import (
    APARTNESS,
    COPIES,
    COPIES_CHANCE,
    COVERAGE,
    DENSITY,
    DIFFERENT_MODES,
    DISTANCE,
    DISTANCE_ERROR,
    KERNEL,
    KERNEL_ERROR,
    LARGEST_MODE,
    MODES,
    PRECISION,
    RECALL,
    VARIETY,
    VENDI,
)

USUAL = 4  # evaluations of a run that does not say how many
FIRST_GUESS = 2.0  # seconds that an evaluation takes beyond drawing its samples, before there was one
MOST_SEARCHED = 20_000  # training images that copies are looked for among
SIGNALS = {
    "precision": PRECISION,
    "recall": RECALL,
    "density": DENSITY,
    "coverage": COVERAGE,
    "variance": VARIETY,
    "distance": APARTNESS,
    "vendi": VENDI,
    "modes": MODES,
    "largest mode": LARGEST_MODE,
    "different modes": DIFFERENT_MODES,
}


def evaluation_steps(config: Config) -> set[int]:
    """The steps after which samples are evaluated, if the budget allows; unset: closer together at the start, as
    pictures are."""
    steps, every = config.train.steps, config.evaluate.every
    if every == 0:
        return set()
    if every is not None:
        return {*range(every, steps + 1, every), steps}
    return {max(1, round(steps * ((i + 1) / USUAL) ** 2)) for i in range(USUAL)}


class Budget:
    """Seconds that evaluations took and may take. Nothing else of a run depends on it: weights are the same bytes."""

    def __init__(self, config: Config, spent: float) -> None:
        self._bounded, self._share = config.evaluate.every is None, config.evaluate.budget
        self._last = config.train.steps
        self.spent, self._cost = spent, None

    def allows(self, step: int, *, guess: float, total: float) -> bool:
        """`guess`: seconds of the first one; `total`: those of the whole training. One is kept back for the end."""
        if not self._bounded:
            return True
        cost = self._cost if self._cost is not None else guess
        ahead = 1 if step == self._last else 2
        return self.spent + ahead * cost <= self._share * total

    def book(self, seconds: float, *, once: float = 0.0) -> None:
        """`once`: of these seconds, what will not be needed again."""
        self.spent += seconds
        self._cost = seconds - once


@dataclass(frozen=True, slots=True)
class Judged:
    """What an evaluation found; `verdict` is against the best one so far, if there was one."""

    examination: Examination
    verdict: Verdict | None
    features: np.ndarray
    closest: Image.Image | None

    @property
    def better(self) -> bool:
        return self.verdict is None or self.verdict.better

    def readings(self) -> dict[str, float]:
        found, told = self.examination, dict[str, float]()
        told[DISTANCE.name], told[DISTANCE_ERROR.name] = found.distance.corrected, found.distance.error
        told[KERNEL.name], told[KERNEL_ERROR.name] = found.kernel.value, found.kernel.error
        told |= {SIGNALS[figure.name].name: figure.value for figure in found.figures}
        if found.copies is not None:
            told |= {COPIES.name: found.copies.copied.value, COPIES_CHANCE.name: found.copies.copied_chance}
        return told


class Evaluator:
    """Holds the real side of the comparison and the features of the best samples so far."""

    def __init__(self, config: Config, images: Images, *, cache: Path | None, device: object) -> None:
        self._config, self._images, self._cache, self._device = config, images, cache, device
        self._best: np.ndarray | None = None
        self._opened = False

    @property
    def knows_the_best(self) -> bool:
        return self._best is not None

    def open(self, say: Callable[[str], None]) -> float:
        """Loads the network and looks at the real images, once; afterwards their features are on disk. Seconds."""
        if self._opened:
            return 0.0
        begun, config = time.perf_counter(), self._config
        training, held = hold_out(self._images, config.data.held_out)
        training = np.arange(len(self._images)) if training is None else training
        side = config.data.image_size
        self.extractor: Extractor = load_extractor(
            config.evaluate.features, image_size=side, device=str(self._device), say=say
        )
        chosen = choose(training, config.evaluate.references)
        features = real_features(self._images, chosen, self.extractor, side=side, cache=self._cache)
        self.real = Real(features, self.extractor.label, components=config.evaluate.components)
        self.thumbnails = thumbnails_of(self._images, training, held, side, most=MOST_SEARCHED)
        importlib.import_module("sklearn.cluster")  # takes a second the first time, which is no cost of an evaluation
        self._opened = True
        return time.perf_counter() - begun

    def features(self, samples: Tensor) -> np.ndarray:
        return extract(self.extractor, quantise(samples))

    def judge(self, samples: Tensor) -> Judged:
        """`samples` in [-1, 1], of the same noise and labels every time."""
        features, pixels = self.features(samples), quantise(samples).numpy()
        found = examine(features, self.real, pixels=shrink(pixels), thumbnails=self.thumbnails)
        closest = None if found.copies is None else draw_closest(found.copies, pixels, self._images, self.thumbnails)
        verdict = None
        if self._best is not None:
            rate = self._config.evaluate.significance
            verdict = compare(features, self._best, self.real.reference, error_rate=rate)
            if not verdict.enough:  # the kernel distance has no bias: it can be judged with few samples
                verdict = compare_kernel(features, self._best, self.real.kernel, error_rate=rate)
        return Judged(found, verdict, features, closest)

    def keep(self, features: np.ndarray) -> None:
        """These are the best so far."""
        self._best = features


def in_words(step: int, judged: Judged, best_step: int | None, share: float) -> str:
    """One line for the screen."""
    words = f"Step {step:,}: {judged.examination.summary}"
    if judged.verdict is not None and best_step is not None:
        outcome = "better than" if judged.verdict.better else "no better than"
        words += f", {outcome} step {best_step:,} (p = {judged.verdict.p:.2g})"
    if judged.examination.copies is not None and judged.examination.copies.alarm:
        words += f". {judged.examination.copies.sentence.rstrip('.')}"
    return f"{words}. Evaluations took {share:.1%} of the time."
