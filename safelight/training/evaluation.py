"""Evaluations while training: when they are due, what they cost, what they find, and which checkpoint is the best."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Set
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image
from torch import Tensor

from safelight import vocabulary
from safelight.checkpoints.loading import load_ema
from safelight.config import Config
from safelight.config.epochs import every_in_steps
from safelight.data.cache import cache_root
from safelight.errors import CheckpointError
from safelight.evaluate.examination import Examination, examine, measure_distances, prepare_real
from safelight.evaluate.features import Extractor, extract, load_extractor
from safelight.evaluate.networks.pixels import quantise
from safelight.evaluate.significance import Verdict, compare, compare_kernel
from safelight.evaluate.thumbnails import draw_closest, find_copies
from safelight.generate import generate
from safelight.keys import derive_seed
from safelight.pictures.grid import save_png
from safelight.training.previews import Drawn, draw_together, planned_steps, preview_request
from safelight.training.step_reader import Session

USUAL = 4  # evaluations of a run that does not say how many
FIRST_GUESS = 2.0  # seconds that an evaluation takes beyond drawing its samples, before there was one
MOST_SEARCHED = 20_000  # training images that copies are looked for among
FORWARD = 1 / 3  # of the time of a training step
COMPARED = ("better", "p", "difference", "error", "paired_gain")  # with the best so far, in the record
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


def evaluation_steps(config: Config) -> Set[int]:
    """The steps after which samples are evaluated, if the budget allows; unset: closer together at the start, as
    pictures are."""
    every = every_in_steps(config.evaluate.every)
    return set() if every == 0 else planned_steps(config.train.steps, every, USUAL)


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

    def share_of(self, trained: float) -> float:
        """What evaluations took of all the time, with so many seconds of training."""
        return self.spent / (self.spent + trained)


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
        found = self.examination
        numbers = {vocabulary.DISTANCE: found.distance.corrected, vocabulary.DISTANCE_ERROR: found.distance.error}
        numbers |= {vocabulary.KERNEL: found.kernel.value, vocabulary.KERNEL_ERROR: found.kernel.error}
        numbers |= {SIGNALS[figure.name]: figure.value for figure in found.figures}
        if found.gaussian is not None:
            numbers |= {
                vocabulary.GAUSSIAN_DISTANCE: found.gaussian.distance.corrected,
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
        if copies is not None and copies.alarm:
            line += f". {copies.sentence.rstrip('.')}"
        return f"{line}. Evaluations took {share:.1%} of the time."


class Evaluator:
    """Evaluates samples at the planned steps; whatever it does, the weights stay the same bytes. Holds the real side of
    the comparison and the features of the best samples so far."""

    def __init__(self, session: Session) -> None:
        setup = session.setup
        self._session, self._config, self._state, self._group = session, setup.config, setup.state, setup.group
        self._images, self._device, self._sharded = setup.images, setup.runtime.device, setup.is_sharded
        self._denoisers = setup.fixed_set.denoisers
        self._record, self._folder, self._say = session.record, session.folder, session.screen.say
        self._budget = Budget(setup.config, setup.state.counters.evaluation_seconds)
        self._skip_reported = self._opened = False
        self._best: np.ndarray | None = None  # features
        self._recalled: Tensor | None = None  # samples

    def may_evaluate(self) -> bool:
        """Whether the budget allows it. That a run is too short for it is reported once."""
        return self._group.broadcast(self._is_allowed)

    def _is_allowed(self) -> bool:
        config, step, (trained, total) = self._config, self._state.counters.step, self._session.seconds()
        allowed = self._budget.allows(step, guess=self._guess(trained), total=total)
        if not allowed and not self._skip_reported:
            self._skip_reported = True
            self._record.event(step, "evaluation_skipped", budget=config.evaluate.budget, spent=self._budget.spent)
            self._say(
                f"Step {step:,}: samples are not evaluated, it would take more than {config.evaluate.budget:.0%} of "
                "the training time (evaluate.budget). To evaluate anyway: --evaluate-every N"
            )
        return allowed

    def _guess(self, trained: float) -> float:
        """Seconds of an evaluation, before there was one."""
        config, step = self._config, max(1, self._state.counters.step)
        image = trained / step / config.train.batch_size * FORWARD
        return config.evaluate.samples * config.sample.steps * image + FIRST_GUESS

    def evaluate(self, drawn: Drawn) -> None:
        begun, counters, trained = time.perf_counter(), self._state.counters, self._session.seconds()[0]
        opened = self._open() + self._recall_best()
        judged = self.judge(drawn.samples[: self._config.evaluate.samples])
        before = counters.best_step if counters.best_evaluated else None
        self._budget.book(drawn.seconds_beyond + time.perf_counter() - begun, once=opened)
        counters.evaluation_seconds = self._budget.spent
        share = self._budget.share_of(trained)
        self._record.add(counters.step - 1, judged.readings() | {vocabulary.EVALUATION.name: share})
        facts = judged.examination.to_json() | {"extractor": self.extractor.identity()}
        if judged.verdict is not None:
            facts["against"] = {"step": before} | {name: getattr(judged.verdict, name) for name in COMPARED}
        # Under the number of the update, as readings are: a resume from the checkpoint of this very step keeps it.
        self._record.event(counters.step - 1, "evaluated", after=counters.step, **facts)
        if judged.closest is not None:
            path = self._folder.samples / f"closest_{counters.step:08d}.png"
            save_png(judged.closest, path, self._folder.disk)
            self._record.picture(counters.step, "closest", path)
        self._say(judged.describe(counters.step, before, share))
        if judged.better:  # last, after all that could fail: what is called the best must be saved next
            counters.best_step, counters.best_evaluated = counters.step, True
            self.keep(judged.features)

    def _open(self) -> float:
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
            searched=MOST_SEARCHED,
            components=config.evaluate.components,
        )
        drawn = self._denoisers.linear.draw(config.evaluate.samples, config.train.seed)
        self.gaussian = measure_distances(extract(self.extractor, quantise(drawn)), self.real)
        importlib.import_module("sklearn.cluster")  # takes a second the first time, which is no cost of an evaluation
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
        return Judged(found, verdict, features, closest)

    def keep(self, features: np.ndarray) -> None:
        """These are the best so far."""
        self._best = features

    def _recall_best(self) -> float:
        """After a resume the best samples are drawn again: from the same noise, so they are the same. Seconds."""
        begun, step = time.perf_counter(), self._forgotten_best()
        if step is not None:
            samples = self._recalled if self._sharded else self._draw_best(step)
            if samples is None:
                return 0.0
            self.keep(self.features(samples))
        return time.perf_counter() - begun

    def _forgotten_best(self) -> int | None:
        counters = self._state.counters
        return counters.best_step if counters.best_evaluated and self._best is None else None

    def recall(self) -> None:
        """Before an evaluation, by all processes: where weights are divided, it takes all of them to draw the best."""
        if self._sharded:
            step = self._group.broadcast(self._forgotten_best)
            self._recalled = None if step is None else self._draw_best(step)

    def _draw_best(self, step: int) -> Tensor | None:
        try:
            return self._draw(step, self._config.train.seed)
        except CheckpointError as error:
            self._say(f"The best checkpoint, step {step:,}, cannot be read: the next one is the best. {error}")
            return None

    def _draw(self, step: int, seed: int) -> Tensor:
        """Samples of another checkpoint, or of the weights as they are now."""
        now = step == self._state.counters.step
        state, folder = self._state, self._folder.checkpoints
        weights = (
            state.ema.tensors()
            if now
            else load_ema(self._group, folder, step, state.weights.shard, self._session.folder.disk)
        )
        request = replace(preview_request(self._config, self._config.evaluate.samples), seed=seed)
        with state.weights.swapped_in({name: tensor.to(self._device) for name, tensor in weights.items()}) as lent:

            def draw(start: int, stop: int) -> Tensor:
                return generate(state.model, self._config, request, weights=lent, rows=(start, stop))

            if not self._sharded:
                return draw(0, request.count)
            return draw_together(self._group, request.count, draw, in_step=True)

    def prepare_final_score(self) -> Callable[[], None]:
        """By all processes: what the first one then has to do for the score of the best checkpoint. Where weights are
        divided, all of them draw the samples here."""
        if not self._sharded or (step := self._group.broadcast(self._step_to_score)) is None:
            return lambda: self._score_best(None)
        try:
            drawn = self._draw_fresh(step)
        except CheckpointError as error:  # which all processes know
            drawn = error
        return lambda: self._score_best(drawn)

    def _step_to_score(self) -> int | None:
        """The best checkpoint, if it is to be measured once more and there is time for it."""
        counters, total = self._state.counters, self._session.seconds()[1]
        if not counters.best_evaluated or counters.best_step is None or not self._config.checkpoint.keep_best:
            return None
        if self._folder.status().get("evaluation", {}).get("step") == counters.best_step:
            return None  # a finished run that was resumed: done before
        return counters.best_step if self._budget.allows(self._config.train.steps, guess=0.0, total=total) else None

    def _draw_fresh(self, step: int) -> Tensor:
        """From noise that the best checkpoint was not chosen by: the choice flatters the number it was made with."""
        return self._draw(step, derive_seed(self._config.train.seed, "rescore"))

    def _score_best(self, drawn: Tensor | CheckpointError | None) -> None:
        """The best checkpoint on fresh noise, into the record and run.json."""
        if isinstance(drawn, CheckpointError):
            raise drawn
        if (step := self._step_to_score()) is None:
            return
        begun = time.perf_counter()
        self._open()
        features = self.features(self._draw_fresh(step) if drawn is None else drawn)
        found = examine(features, self.real, gaussian=self.gaussian)
        self._budget.book(time.perf_counter() - begun)
        share = self._budget.share_of(self._session.seconds()[0])
        facts = {"best_step": step, "share_of_time": share} | found.to_json()
        self._record.event(self._state.counters.step - 1, "rescored", **facts)
        self._say(f"Best: step {step:,}, {found.summary} on fresh noise. Evaluations took {share:.1%} of the time.")
        distance = found.distance
        facts = {"label": found.label, "distance": distance.corrected, "error": distance.error}
        self._folder.update_status(evaluation={"step": step, **facts, "samples": distance.count})
