"""How good the samples of a watched loop are: against its images, as our own trainer measures them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from safelight.config.tree import Config, Data, Evaluate, Features, Sample, Train
from safelight.data.images import Images
from safelight.errors import DataError
from safelight.observing.sample_check import SampleCheck
from safelight.observing.sample_judge import FIRST_GUESS, USUAL_EVALUATIONS, Budget, SampleJudge
from safelight.probes.dataset import SeenImages
from safelight.watching.arguments import PreviewIntervals
from safelight.watching.samples.preview_plan import PreviewSchedule
from safelight.watching.samples.real_images import images_of, square
from safelight.watching.watched_run import WatchedRun
from safelight.yardstick.denoisers import AT_ONCE, ClosedFormDenoisers

COUNT = 16  # samples of a picture
# Evaluation of a loop whose length is not known, and how many times later the next one is
FIRST_EVALUATION, EVALUATION_GROWTH = 64, 2.0
ENDLESS_STEPS = 1 << 60  # steps
ENOUGH_SEEN = 256  # images that a loop showed, where it passed no dataset


class SampleMeasures:
    """Reads the images of the loop when they are first needed."""

    def __init__(
        self,
        data: Any,
        often: PreviewIntervals,
        run: WatchedRun,
        step: int,
        device: torch.device,
        report: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        """`report`: in words, once, why samples are not measured; `say`: what was found."""
        self._data, self._every, self._run = data, often.evaluate_every, run
        self._features: Features = often.features
        self._target = often.target_distance
        self._device, self._report, self._say = device, report, say
        self._plan = PreviewSchedule(
            step, run.steps, self._every, USUAL_EVALUATIONS, FIRST_EVALUATION, EVALUATION_GROWTH
        )
        self._seen = SeenImages()
        self._images: Images | None = None
        self._has_no_images = False
        self.best_step: int | None = None

    def see(self, x0: Tensor) -> None:
        """Images that the loop trains on: instead of a dataset."""
        if self._data is None and x0.dim() == 4 and not self._seen.is_full and self._images is None:
            self._seen.add(x0, {})

    @property
    def samples(self) -> int:
        """The samples of an evaluation."""
        return self._config.evaluate.samples

    def is_due(self, updates: int) -> bool:
        """Whether an evaluation was asked for at this step."""
        return bool(self._every) and self._plan.is_due(updates)

    def may_evaluate(self, updates: int, *, ended: bool, trained: float, image_seconds: float) -> bool:
        """`image_seconds`: of drawing one sample."""
        if self._every == 0 or not (ended or self._plan.is_due(updates)) or not self._has_images(ended):
            return False
        steps = self._run.steps
        total = trained if ended or not steps else trained * max(1.0, steps / updates)
        guess = image_seconds * self.samples + FIRST_GUESS
        return self._budget.allows(self._config.train.steps if ended else updates, guess=guess, total=total)

    def look(self, samples: Tensor, updates: int, *, ended: bool, evaluating: bool, trained: float) -> None:
        """By their pixels; at the end of a loop that was never evaluated also by features, where there is time."""
        if not self._has_images(ended):
            return
        shown = square(samples)
        self._check.measure_pixels(shown, after=updates, ended=ended)
        if ended and not evaluating and self._every is None and self.best_step is None:
            self._check.evaluate_shortly(shown, after=updates, trained=trained, least=0.0)

    def evaluate(self, samples: Tensor, updates: int, *, begun: float, trained: float) -> None:
        """`begun`: when the samples were begun that no picture shows."""
        self._plan.passed(updates)
        opened = self._judge.open()
        judged = self._judge.judge(square(samples[: self.samples]))
        self._budget.book(time.perf_counter() - begun, once=opened)
        share, folder = self._budget.share_of(trained), self._run.folder
        self._judge.record(judged, self._run.record, folder, step=updates, best_step=self.best_step, share=share)
        if judged.better:
            self.best_step = updates
            self._judge.keep(judged.features)
            self._run.note(best_step=updates)

    def _has_images(self, ended: bool) -> bool:
        if self._images is not None or self._has_no_images:
            return self._images is not None
        if self._data is None and len(self._seen) < ENOUGH_SEEN and not ended:
            return False  # more have to be seen
        if self._data is None and not len(self._seen):
            return False
        try:
            self._images = images_of(self._data if self._data is not None else self._seen.images())
        except DataError as error:
            self._has_no_images = True
            self._report(f"Samples are not compared with the data: {error}")
        return self._images is not None

    @functools.cached_property
    def _config(self) -> Config:
        """The config of a run of ours that would be measured alike."""
        images = self._images
        side, channels = (32, 3) if images is None else (images.pixels.shape[1], images.pixels.shape[3])
        return Config(
            data=Data(image_size=side, channels=1 if channels == 1 else 3, held_out=0.0),
            train=Train(steps=self._run.steps or ENDLESS_STEPS),
            sample=Sample(count=COUNT),
            evaluate=Evaluate(every=self._every, features=self._features, target=self._target),
        )

    @functools.cached_property
    def _budget(self) -> Budget:
        return Budget(self._config, 0.0)

    @functools.cached_property
    def _denoisers(self) -> ClosedFormDenoisers:
        assert self._images is not None
        floats = torch.from_numpy(self._images.pixels).permute(0, 3, 1, 2).float() / 127.5 - 1
        return ClosedFormDenoisers(floats.split(AT_ONCE))

    @functools.cached_property
    def _check(self) -> SampleCheck:
        assert self._images is not None
        return SampleCheck(self._config, self._images, self._denoisers, self._run.record, self._say)

    @functools.cached_property
    def _judge(self) -> SampleJudge:
        assert self._images is not None
        return SampleJudge(self._config, self._images, self._denoisers, self._device, self._say)
