"""How the samples of a picture look beside real images: by their pixels every time, by their features at the end of a
run that is too short for an evaluation."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from safelight import checks, vocabulary
from safelight.config import Config
from safelight.data.cache import cache_root
from safelight.data.images import Images, hold_out
from safelight.evaluate.appearance import MAX_REAL_IMAGES, RealAppearance
from safelight.evaluate.features import extract, load_extractor
from safelight.evaluate.kernel import KernelDistance, fit_kernel_reference, kernel_distance
from safelight.evaluate.networks.pixels import quantise
from safelight.evaluate.real import choose, real_features, real_pixels
from safelight.observing.recorder import Recorder
from safelight.observing.sample_judge import guess_seconds
from safelight.probes.probe_runner import with_check_prefix
from safelight.yardstick.denoisers import ClosedFormDenoisers

MAX_TIME_SHARE, MAX_SECONDS = 0.1, 4.0  # what a short evaluation may take: of the training time, and in any case
REFERENCES = 256  # real images of a short evaluation
MIN_SAMPLES = 16  # samples of one: fewer say nothing
SHORTER = (32, 64)  # samples and real images, where all of them would take too long
ANNOUNCED_SECONDS = 5.0
LOOKS = {
    "contrast": checks.SAMPLES_CONTRAST,
    "apart": checks.SAMPLES_APART,
    "saturated": checks.SAMPLES_SATURATED,
    "colour": checks.SAMPLES_COLOUR,
    "grain": checks.SAMPLES_GRAIN,
}


@dataclass(frozen=True)
class SampleCheck:
    """By the first process; nothing of a run depends on it."""

    config: Config
    images: Images
    denoisers: ClosedFormDenoisers
    record: Recorder
    say: Callable[[str], None]

    def measure_pixels(self, samples: Tensor, *, after: int, ended: bool) -> None:
        """`samples` of a picture, in [-1, 1], after so many steps: milliseconds. `ended`: no step comes after it."""
        if len(samples) < 2:
            return
        broken = float((~torch.isfinite(samples)).float().mean())
        looks = self._real.measure(quantise(samples.nan_to_num()).numpy())
        numbers: dict[str, float] = {LOOKS[name]: look.value for name, look in looks.items()}
        numbers[checks.SAMPLES_NONFINITE] = broken
        # Under the number of the update, as evaluations are: a resume from the checkpoint of this very step keeps it.
        self.record.add(after - 1, with_check_prefix(numbers))
        facts = {"after": after, "ended": ended, "count": len(samples), "nonfinite": broken}
        self.record.event(after - 1, "appearance", **facts, **{name: look.to_json() for name, look in looks.items()})

    @functools.cached_property
    def _real(self) -> RealAppearance:
        return RealAppearance(real_pixels(self.images, self._rows(MAX_REAL_IMAGES), self.config.data.image_size))

    def _rows(self, most: int) -> np.ndarray:
        ids, _ = hold_out(self.images, self.config.data.held_out)
        return choose(np.arange(len(self.images)) if ids is None else ids, most)

    def evaluate_shortly(
        self, samples: Tensor, *, after: int, trained: float, least: float = MAX_SECONDS, always: bool = False
    ) -> float:
        """The samples of the last picture against a few real images and as many Gaussian ones, by the kernel distance,
        which few samples do not bias. `trained`: seconds of training, `least`: those that it may take in any case.
        `always`: also where it takes longer, with few images; what it will take is said before. Returns its own
        seconds, 0 where it would take too long.
        """
        config = self.config
        if config.evaluate.every == 0 or len(samples) < MIN_SAMPLES:
            return 0.0
        references, most = REFERENCES, max(least, MAX_TIME_SHARE * trained)
        if (guess := self._guess(len(samples), references)) > most:
            samples, references = samples[: SHORTER[0]], SHORTER[1]
            guess = self._guess(len(samples), references)
        if guess > most and not always:
            return 0.0
        if guess > ANNOUNCED_SECONDS:
            self.say(
                f"Step {after:,}: comparing {len(samples)} samples with real images, which takes about {guess:.0f} s. "
                "For none: --evaluate-every 0"
            )
        begun, side = time.perf_counter(), config.data.image_size
        extractor = load_extractor(config.evaluate.features, image_size=side, say=self.say)
        rows, cache = self._rows(references), cache_root(config.data, lambda _: None)
        real = fit_kernel_reference(real_features(self.images, rows, extractor, side=side, cache=cache))
        gaussian = self.denoisers.linear.draw(len(samples), config.train.seed)
        own, blind = (kernel_distance(extract(extractor, quantise(each)), real) for each in (samples, gaussian))
        seconds = time.perf_counter() - begun
        numbers = {vocabulary.KERNEL: own.value, vocabulary.KERNEL_ERROR: own.error}
        numbers |= {vocabulary.GAUSSIAN_KERNEL: blind.value}
        self.record.add(after - 1, {signal.name: number for signal, number in numbers.items()})
        facts = {"after": after, "count": len(samples), "reference_count": len(rows), "seconds": seconds}
        distances = _to_json(own) | {"gaussian": _to_json(blind)}
        self.record.event(after - 1, "evaluated_shortly", **facts, **distances)
        self.say(
            f"Step {after:,}: too short a run for a whole evaluation; {len(samples)} samples against {len(rows)} real "
            f"images took {seconds:.1f} s ({seconds / (seconds + trained):.1%} of the time)."
        )
        return seconds

    def _guess(self, samples: int, references: int) -> float:
        """Seconds."""
        return guess_seconds(2 * samples + min(references, len(self.images)), self.config.data.image_size)


def _to_json(distance: KernelDistance) -> dict[str, dict[str, float]]:
    return {"kernel": {"value": distance.value, "error": distance.error}}
