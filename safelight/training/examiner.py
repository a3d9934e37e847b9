"""The hand that evaluates a run as it trains: within its budget, into its record, with its best checkpoint in mind."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from safelight.checkpoints.folder import place
from safelight.checkpoints.reader import load
from safelight.checkpoints.row_reader import load_rows
from safelight.data.cache import cache_root
from safelight.errors import CheckpointError
from safelight.evaluate.examination import examine
from safelight.generate import generate
from safelight.keys import key
from safelight.observing.recorder import Recorder
from safelight.pictures.grid import save_png
from safelight.run import RunFolder
from safelight.training.build import Parts
from safelight.training.ema import MAIN
from safelight.training.evaluation import FIRST_GUESS, Budget, Evaluator, in_words
from safelight.training.stages import Drawn, draw_together, preview_request
from safelight.vocabulary import EVALUATION

FORWARD = 1 / 3  # of a training step


class Examiner:
    """Asked at the steps that are planned; whatever it does, the weights stay the same bytes."""

    def __init__(self, parts: Parts, record: Recorder, say: Callable[[str], None], folder: RunFolder) -> None:
        self._config, self._state, self._record, self._say = parts.config, parts.state, record, say
        self._folder = folder
        cache = cache_root(parts.config.data, lambda _: None)
        self._evaluator = Evaluator(parts.config, parts.images, cache=cache, device=parts.engine.device)
        self._budget = Budget(parts.config, parts.state.counters.evaluation_seconds)
        self._told_short = False
        self._group, self._sharded = parts.engine.group, parts.state.weights.shard is not None
        self._recalled: Tensor | None = None

    def may_evaluate(self, trained: float, total: float) -> bool:
        """Seconds trained so far, and of the whole training. A run too short for its budget is told once."""
        config, step = self._config, self._state.counters.step
        allowed = self._budget.allows(step, guess=self._guess(trained), total=total)
        if not allowed and not self._told_short:
            self._told_short = True
            self._record.event(step, "evaluation_skipped", budget=config.evaluate.budget, spent=self._budget.spent)
            self._say(
                f"Step {step:,}: samples are not evaluated, it would take more than {config.evaluate.budget:.0%} of "
                "the training time (evaluate.budget). To have it all the same: --evaluate-every N"
            )
        return allowed

    def _guess(self, trained: float) -> float:
        """Seconds of an evaluation, before there was one."""
        config, step = self._config, max(1, self._state.counters.step)
        image = trained / step / config.train.batch_size * FORWARD
        return config.evaluate.samples * config.sample.steps * image + FIRST_GUESS

    def evaluate(self, drawn: Drawn, *, trained: float) -> None:
        begun, counters, evaluator = time.perf_counter(), self._state.counters, self._evaluator
        opened = evaluator.open(self._say) + self._recall_best()
        judged = evaluator.judge(drawn.samples[: self._config.evaluate.samples])
        before = counters.best_step if counters.best_evaluated else None
        self._budget.book(drawn.seconds_beyond + time.perf_counter() - begun, once=opened)
        counters.evaluation_seconds = self._budget.spent
        share = self._budget.spent / (self._budget.spent + trained)
        self._record.add(counters.step - 1, judged.readings() | {EVALUATION.name: share})
        facts = judged.examination.to_json() | {"extractor": evaluator.extractor.identity()}
        if judged.verdict is not None:
            facts["against"] = {"step": before, "better": judged.verdict.better, "p": judged.verdict.p}
            facts["against"] |= {"difference": judged.verdict.difference, "error": judged.verdict.error}
            facts["against"] |= {"paired_gain": judged.verdict.paired_gain}
        # Under the number of the update, as readings are: a resume from the checkpoint of this very step keeps it.
        self._record.event(counters.step - 1, "evaluated", after=counters.step, **facts)
        if judged.closest is not None:
            path = self._folder.samples / f"closest_{counters.step:08d}.png"
            save_png(judged.closest, path)
            self._record.picture(counters.step, "closest", path)
        self._say(in_words(counters.step, judged, before, share))
        if judged.better:  # last, after all that could fail: what is called the best must be saved next
            counters.best_step, counters.best_evaluated = counters.step, True
            evaluator.keep(judged.features)

    def _recall_best(self) -> float:
        """After a resume the best samples are drawn again: from the same noise, so they are the same. Seconds."""
        begun, step = time.perf_counter(), self._forgotten_best()
        if step is not None:
            samples = self._recalled if self._sharded else self._draw_best(step)
            if samples is None:
                return 0.0
            self._evaluator.keep(self._evaluator.features(samples))
        return time.perf_counter() - begun

    def _forgotten_best(self) -> int | None:
        counters = self._state.counters
        return counters.best_step if counters.best_evaluated and not self._evaluator.knows_the_best else None

    def recall(self) -> None:
        """Before an evaluation, where weights are divided: what it compares with takes all processes to draw."""
        step = self._group.broadcast(self._forgotten_best)
        self._recalled = None if step is None else self._draw_best(step)

    def _draw_best(self, step: int) -> Tensor | None:
        try:
            return self._draw(step, self._config.train.seed)
        except CheckpointError as error:
            self._say(f"The best checkpoint, step {step:,}, cannot be read: the next one is. {error}")
            return None

    def _draw(self, step: int, seed: int) -> Tensor:
        """Samples of another checkpoint, or of the weights as they are now."""
        now = step == self._state.counters.step
        weights = self._state.averages.tensors() if now else self._averaged(step)
        request = replace(preview_request(self._config, self._config.evaluate.samples), seed=seed)
        with self._state.weights.lend(weights) as lent:

            def draw(start: int, stop: int) -> Tensor:
                return generate(self._state.model, self._config, request, weights=lent, rows=(start, stop))

            return (
                draw_together(self._group, request.count, draw, in_step=True)
                if self._sharded
                else draw(0, request.count)
            )

    def _averaged(self, step: int) -> dict[str, Tensor]:
        """The average of a checkpoint, or the rows of it that this process holds. What one process cannot read, none
        has: all have to draw."""
        path, shard = place(self._folder.checkpoints, step), self._state.weights.shard
        tensors, words = dict[str, Tensor](), None
        try:
            loaded = load(path) if shard is None else load_rows(path, shard, stems={"ema"})
            tensors = loaded.tensors["ema"]
        except CheckpointError as error:
            words = str(error)
        told = [words] if shard is None else self._group.all_gather_object(words)
        if (words := next((each for each in told if each is not None), None)) is not None:
            raise CheckpointError(words)
        device = self._state.averages.shadows[MAIN][0].device
        return {name: tensor.to(device) for name, tensor in tensors.items()}

    def rescored_step(self, total: float) -> int | None:
        """The best checkpoint, if it is to be measured once more and there is time for it."""
        counters = self._state.counters
        if not counters.best_evaluated or counters.best_step is None or not self._config.checkpoint.keep_best:
            return None
        if self._folder.status().get("evaluation", {}).get("step") == counters.best_step:
            return None  # a finished run that was resumed: done before
        return counters.best_step if self._budget.allows(self._config.train.steps, guess=0.0, total=total) else None

    def draw_fresh(self, step: int) -> Tensor:
        """From noise that the best checkpoint was not chosen by: the choice flatters the number it was made with."""
        return self._draw(step, key(self._config.train.seed, "rescore"))

    def rescore(self, trained: float, total: float, samples: Tensor | None = None) -> dict[str, Any] | None:
        """The best checkpoint on fresh noise; where weights are divided, on `samples` that all processes drew."""
        step = self.rescored_step(total)
        if step is None:
            return None
        begun, counters = time.perf_counter(), self._state.counters
        self._evaluator.open(self._say)
        samples = self.draw_fresh(step) if samples is None else samples
        found = examine(self._evaluator.features(samples), self._evaluator.real)
        self._budget.book(time.perf_counter() - begun)
        share = self._budget.spent / (self._budget.spent + trained)
        facts = {"best_step": step, "share_of_time": share} | found.to_json()
        self._record.event(counters.step - 1, "rescored", **facts)
        words = f"Best: step {step:,}, {found.summary} on fresh noise"
        self._say(f"{words}. Evaluations took {share:.1%} of the time.")
        return {"step": step, "label": found.label, "distance": found.distance.corrected,
                "error": found.distance.error, "samples": found.distance.count}  # fmt: skip
