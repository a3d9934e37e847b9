"""Evaluations while training: when they are due, what they cost, what they find, and which checkpoint is the best."""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from dataclasses import replace

from torch import Tensor

from safelight.checkpoints.loading import load_ema
from safelight.config import Config
from safelight.config.epochs import every_in_steps
from safelight.diagnosis.goal import find_goal
from safelight.errors import CheckpointError
from safelight.evaluate.examination import examine
from safelight.generate import generate
from safelight.keys import derive_seed
from safelight.observing.sample_judge import FIRST_GUESS, FORWARD, USUAL_EVALUATIONS, Budget, SampleJudge
from safelight.observing.stage_pictures import planned_steps
from safelight.record.history import open_history
from safelight.training.previews import Drawn, draw_together, preview_request
from safelight.training.step_reader import TrainingSession


def evaluation_steps(config: Config) -> Set[int]:
    """The steps after which samples are evaluated, if the budget allows; unset: closer together at the start, as
    pictures are."""
    every = every_in_steps(config.evaluate.every)
    return set() if every == 0 else planned_steps(config.train.steps, every, USUAL_EVALUATIONS)


class Evaluator:
    """Evaluates samples at the planned steps; whatever it does, the weights stay the same bytes."""

    def __init__(self, session: TrainingSession) -> None:
        setup = session.setup
        self._session, self._config, self._state, self._group = session, setup.config, setup.state, setup.group
        self._device, self._sharded = setup.runtime.device, setup.is_sharded
        self._record, self._folder, self._say = session.record, session.folder, session.screen.say
        self._budget = Budget(setup.config, setup.state.counters.evaluation_seconds)
        self._judge = SampleJudge(setup.config, setup.images, setup.fixed_set.denoisers, self._device, self._say)
        self._skip_reported = False
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
        opened = self._judge.open() + self._recall_best()
        judged = self._judge.judge(drawn.samples[: self._config.evaluate.samples])
        before = counters.best_step if counters.best_evaluated else None
        self._budget.book(drawn.seconds_beyond + time.perf_counter() - begun, once=opened)
        counters.evaluation_seconds = self._budget.spent
        share = self._budget.share_of(trained)
        self._judge.record(judged, self._record, self._folder, step=counters.step, best_step=before, share=share)
        if judged.better:  # last, after all that could fail: what is called the best must be saved next
            counters.best_step, counters.best_evaluated = counters.step, True
            self._judge.keep(judged.features)

    def _recall_best(self) -> float:
        """After a resume the best samples are drawn again: from the same noise, so they are the same. Seconds."""
        begun, step = time.perf_counter(), self._forgotten_best()
        if step is not None:
            samples = self._recalled if self._sharded else self._draw_best(step)
            if samples is None:
                return 0.0
            self._judge.keep(self._judge.features(samples))
        return time.perf_counter() - begun

    def _forgotten_best(self) -> int | None:
        counters = self._state.counters
        return counters.best_step if counters.best_evaluated and not self._judge.has_best else None

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
        self._judge.open()
        features = self._judge.features(self._draw_fresh(step) if drawn is None else drawn)
        found = examine(features, self._judge.real, gaussian=self._judge.gaussian)
        self._budget.book(time.perf_counter() - begun)
        share = self._budget.share_of(self._session.seconds()[0])
        facts = {"best_step": step, "share_of_time": share} | found.to_json()
        self._record.event(self._state.counters.step - 1, "rescored", **facts)
        self._say(f"Best: step {step:,}, {found.summary} on fresh noise. Evaluations took {share:.1%} of the time.")
        distance = found.distance
        facts = {"label": found.label, "distance": distance.value, "error": distance.error, "real": distance.real}
        self._folder.update_status(
            evaluation={"step": step, **facts, "samples": distance.count} | self._goal_in_numbers()
        )

    def _goal_in_numbers(self) -> dict[str, float | int | None]:
        if self._config.evaluate.target is None:
            return {}
        self._record.flush(wait=True)
        with open_history(self._folder.record) as history:
            goal = find_goal(history)
        return {} if goal is None else {"target": self._config.evaluate.target, "reached": goal.reached}
