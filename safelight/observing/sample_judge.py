"""How good the samples of a run are, whoever trains: the real side of the comparison, the budget of time, the best so
far, and what goes into the record."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from safelight import vocabulary
from safelight.config import Config
from safelight.data.cache import cache_root
from safelight.data.images import Images
from safelight.evaluate.examination import Examination, axes_of, examine, measure_distances, prepare_real
from safelight.evaluate.features import Extractor, extract, load_extractor
from safelight.evaluate.networks.lite0 import side_for
from safelight.evaluate.networks.pixels import quantise
from safelight.evaluate.significance import Verdict, compare, compare_kernel
from safelight.evaluate.thumbnails import draw_closest, find_copies
from safelight.observing.recorder import Recorder
from safelight.pictures.grid import save_png
from safelight.run import RunFolder
from safelight.yardstick.denoisers import ClosedFormDenoisers

USUAL_EVALUATIONS = 4  # evaluations of a run that does not say how many
FIRST_GUESS = 2.0  # seconds that an evaluation takes beyond drawing its samples, before there was one
MAX_SEARCHED_IMAGES = 20_000  # training images that copies are looked for among
# Seconds to load the network, and of an image of 32 px in it, on one busy core
LOADING_SECONDS, IMAGE_SECONDS = 2.0, 0.003
FORWARD = 1 / 3  # of the time of a training step
COMPARED_FACTS = ("better", "p", "difference", "error", "paired_gain")  # with the best so far, in the record
SIGNALS = {
    "precision": vocabulary.PRECISION,
    "recall": vocabulary.RECALL,
    "density": vocabulary.DENSITY,
    "coverage": vocabulary.COVERAGE,
    "variance": vocabulary.VARIETY,
    "distance": vocabulary.APARTNESS,
    "vendi": vocabulary.VENDI,
    "modes": vocabulary.MODES,
    "largest mode": vocabulary.LARGEST_MODE,
    "different modes": vocabulary.DIFFERENT_MODES,
}


class Budget:
    """Seconds that evaluations took and may take. Nothing else of a run depends on it: weights are the same bytes."""

    def __init__(self, config: Config, spent: float) -> None:
        self._bounded, self._share = config.evaluate.every is None, config.evaluate.budget
        self._last = config.train.steps
        self.spent = spent
        self.cost: float | None = None
        """Seconds of one, as the last one took."""

    def allows(self, step: int, *, guess: float, total: float) -> bool:
        """`guess`: seconds of the first one; `total`: those of the whole training. One is kept back for the end."""
        if not self._bounded:
            return True
        cost = self.cost if self.cost is not None else guess
        ahead = 1 if step == self._last else 2
        return self.spent + ahead * cost <= self._share * total

    def book(self, seconds: float, *, once: float = 0.0) -> None:
        """`once`: of these seconds, what will not be needed again."""
        self.spent += seconds
        self.cost = seconds - once

    def at_most(self, seconds: float, *, total: float) -> float:
        """What is spent of so many seconds."""
        return min(seconds, max(0.0, self._share * total - self.spent)) if self._bounded else seconds

    def share_of(self, trained: float) -> float:
        """What evaluations took of all the time, with so many seconds of training."""
        return self.spent / (self.spent + trained)


def guess_seconds(images: int, side: int) -> float:
    """To load the network of the features and show it so many images of this size."""
    return LOADING_SECONDS + IMAGE_SECONDS * images * side_for(side) ** 2 / 32**2


@dataclass(frozen=True, slots=True)
class Judged:
    """What an evaluation found; `verdict` is against the best one so far, if there was one."""

    examination: Examination
    verdict: Verdict | None
    features: np.ndarray
    closest: Image.Image | None
    target: float | None

    @property
    def better(self) -> bool:
        return self.verdict is None or self.verdict.better

    def readings(self) -> dict[str, float]:
        found = self.examination
        numbers = {vocabulary.DISTANCE: found.distance.value, vocabulary.DISTANCE_ERROR: found.distance.error}
        numbers |= {vocabulary.UNBIASED: found.unbiased.corrected, vocabulary.UNBIASED_ERROR: found.unbiased.error}
        if found.distance.real is not None:
            numbers |= {vocabulary.REAL_DISTANCE: found.distance.real}
        if self.target is not None:
            numbers |= {vocabulary.TARGET_DISTANCE: self.target}
        numbers |= {vocabulary.KERNEL: found.kernel.value, vocabulary.KERNEL_ERROR: found.kernel.error}
        numbers |= {SIGNALS[figure.name]: figure.value for figure in found.figures}
        if found.gaussian is not None:
            numbers |= {
                vocabulary.GAUSSIAN_DISTANCE: found.gaussian.unbiased.corrected,
                vocabulary.GAUSSIAN_KERNEL: found.gaussian.kernel.value,
            }
        if found.copies is not None:
            numbers |= {
                vocabulary.COPIES: found.copies.copied.value,
                vocabulary.COPIES_CHANCE: found.copies.copied_chance,
            }
        return {signal.name: number for signal, number in numbers.items()}

    def describe(self, step: int, best_step: int | None, share: float) -> str:
        """One line for the screen."""
        line, copies = f"Step {step:,}: {self.examination.summary}", self.examination.copies
        if self.verdict is not None and best_step is not None:
            outcome = "better than" if self.verdict.better else "no better than"
            line += f", {outcome} step {best_step:,} (p = {self.verdict.p:.2g})"
        if self.target is not None:
            reached = "is reached" if self.examination.distance.value <= self.target else "is not reached"
            line += f"; the target of {self.target:g} {reached}"
        if copies is not None and copies.alarm:
            line += f". {copies.sentence.rstrip('.')}"
        return f"{line}. Evaluations took {share:.1%} of the time."


class SampleJudge:
    """Compares samples with real images and with the best samples so far, whose features it holds."""

    def __init__(
        self,
        config: Config,
        images: Images,
        denoisers: ClosedFormDenoisers,
        device: torch.device,
        say: Callable[[str], None],
    ) -> None:
        self._config, self._images, self._denoisers = config, images, denoisers
        self._device, self._say = device, say
        self._opened = False
        self._best: np.ndarray | None = None  # features

    @property
    def has_best(self) -> bool:
        return self._best is not None

    def opening_seconds(self) -> float:
        """A guess of what `open` and the features of the samples take."""
        config = self._config
        count = min(config.evaluate.references, len(self._images))
        return guess_seconds(count + 2 * config.evaluate.samples, config.data.image_size) * (not self._opened)

    def open(self) -> float:
        """Loads the network and looks at the real images, once; afterwards their features are on disk. Seconds."""
        if self._opened:
            return 0.0
        begun, config = time.perf_counter(), self._config
        self.extractor: Extractor = load_extractor(
            config.evaluate.features, image_size=config.data.image_size, device=str(self._device), say=self._say
        )
        self.real, self.thumbnails = prepare_real(
            self._images,
            config.data,
            self.extractor,
            cache=cache_root(config.data, lambda _: None),
            references=config.evaluate.references,
            searched=MAX_SEARCHED_IMAGES,
            components=axes_of(config.evaluate.features, config.evaluate.components),
        )
        drawn = self._denoisers.linear.draw(config.evaluate.samples, config.train.seed)
        self.gaussian = measure_distances(extract(self.extractor, quantise(drawn)), self.real)
        importlib.import_module(
            "sklearn.cluster"
        )  # takes a second the first time, which is not a cost of an evaluation
        self._opened = True
        return time.perf_counter() - begun

    def features(self, samples: Tensor) -> np.ndarray:
        return extract(self.extractor, quantise(samples))

    def judge(self, samples: Tensor) -> Judged:
        """`samples` in [-1, 1], of the same noise and labels every time."""
        features, pixels = self.features(samples), quantise(samples).numpy()
        copies = find_copies(pixels, self.thumbnails)
        found = examine(features, self.real, copies, gaussian=self.gaussian)
        closest = None if copies is None else draw_closest(copies, pixels, self._images, self.thumbnails)
        verdict = None
        if self._best is not None:
            rate = self._config.evaluate.significance
            verdict = compare(features, self._best, self.real.reference, error_rate=rate)
            if not verdict.enough:  # the kernel distance has no bias: it can be judged with few samples
                verdict = compare_kernel(features, self._best, self.real.kernel, error_rate=rate)
        return Judged(found, verdict, features, closest, self._config.evaluate.target)

    def keep(self, features: np.ndarray) -> None:
        """These are the best so far."""
        self._best = features

    def record(
        self, judged: Judged, record: Recorder, folder: RunFolder, *, step: int, best_step: int | None, share: float
    ) -> None:
        """After `step` steps; `best_step`: that of the best evaluation before, `share`: of the time that evaluations
        took."""
        record.add(step - 1, judged.readings() | {vocabulary.EVALUATION.name: share})
        facts: dict[str, Any] = judged.examination.to_json() | {"extractor": self.extractor.identity()}
        if judged.verdict is not None:
            facts["against"] = {"step": best_step} | {name: getattr(judged.verdict, name) for name in COMPARED_FACTS}
        # Under the number of the update, as readings are: a resume from the checkpoint of this very step keeps it.
        record.event(step - 1, "evaluated", after=step, **facts)
        if judged.closest is not None:
            path = folder.picture(step, "closest")
            save_png(judged.closest, path, folder.disk)
            record.picture(step, "closest", path)
        self._say(judged.describe(step, best_step, share))
