"""Evaluations while training: when they are due, what they cost, what they find, and which checkpoint is the best."""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from dataclasses import dataclass, replace

from torch import Tensor

from safelight.checkpoints.loading import load_ema
from safelight.config import Config
from safelight.config.epochs import every_in_steps
from safelight.diagnosis.goal import find_goal
from safelight.errors import CheckpointError, ProcessLost
from safelight.evaluate.examination import examine
from safelight.generate import generate
from safelight.keys import derive_seed
from safelight.observing.sample_check import ANNOUNCED_SECONDS
from safelight.observing.sample_judge import FIRST_GUESS, FORWARD, USUAL_EVALUATIONS, Budget, SampleJudge
from safelight.observing.stage_pictures import after, planned_steps
from safelight.processes.shared_rows import share_rows
from safelight.record.history import open_history
from safelight.training.previews import Drawn, preview_request
from safelight.training.step_reporter import TrainingSession


def evaluation_steps(config: Config) -> Set[int]:
    """The steps after which samples are evaluated, if the budget allows; unset: closer together at the start, as
    pictures are."""
    every = every_in_steps(config.evaluate.every)
    return set() if every == 0 else planned_steps(config.train.steps, every, USUAL_EVALUATIONS)


@dataclass(frozen=True, slots=True)
class Redrawn:
    """Samples of a checkpoint, and how long they took."""

    samples: Tensor
    seconds: float


class Evaluator:
    """Evaluates samples at the planned steps; whatever it does, the weights stay the same bytes."""

    def __init__(self, session: TrainingSession) -> None:
        setup = session.setup
        self._session, self._config, self._state, self._group = session, setup.config, setup.state, setup.group
        self._device, self._sharded = setup.runtime.device, setup.is_sharded
        self._record, self._folder, self._say = session.record, session.folder, session.screen.say
        self._budget = Budget(setup.config, setup.state.counters.evaluation_seconds)
        self._judge = SampleJudge(setup.config, setup.images, setup.fixed_set.denoisers, self._device, self._say)
        self._evaluations = evaluation_steps(setup.config)
        self._skip_reported = False
        self._recalled: Redrawn | None = None

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

    def price(self) -> float:
        """Seconds that the next evaluation takes, as far as that is known: drawing samples, and comparing them."""
        trained = self._session.seconds()[0]
        cost = self._budget.cost
        return self._guess(trained) + self._judge.opening_seconds() if cost is None else cost

    def announce(self) -> None:
        """Before it starts: what it will take."""
        if self._group.is_main and (seconds := self.price()) > ANNOUNCED_SECONDS:
            self._say(
                f"Step {self._state.counters.step:,}: evaluating {self._config.evaluate.samples} samples, which takes "
                f"about {seconds:.0f} s. For none: --evaluate-every 0"
            )

    def seconds_left(self, step: int) -> float:
        """Of the evaluations after this step."""
        count = after(self._evaluations, step)
        if count == 0:
            return 0.0
        return self._budget.at_most(count * self.price(), total=self._session.seconds()[1])

    def evaluate(self, drawn: Drawn) -> None:
        begun, counters, trained = time.perf_counter(), self._state.counters, self._session.seconds()[0]
        redrawn = 0.0 if self._recalled is None else self._recalled.seconds
        opened = self._judge.open() + self._keep_recalled() + redrawn
        judged = self._judge.judge(drawn.samples[: self._config.evaluate.samples])
        before = counters.best_step if counters.best_evaluated else None
        self._budget.book(drawn.seconds_beyond + redrawn + time.perf_counter() - begun, once=opened)
        counters.evaluation_seconds = self._budget.spent
        share = self._budget.share_of(trained)
        self._judge.record(judged, self._record, self._folder, step=counters.step, best_step=before, share=share)
        if judged.better:  # last, after all that could fail: what is called the best must be saved next
            counters.best_step, counters.best_evaluated = counters.step, True
            self._judge.keep(judged.features)

    def _keep_recalled(self) -> float:
        """After a resume: the best samples, drawn again, to be compared with. Seconds."""
        begun, recalled, self._recalled = time.perf_counter(), self._recalled, None
        if recalled is not None:
            self._judge.keep(self._judge.features(recalled.samples))
        return time.perf_counter() - begun

    def _forgotten_best(self) -> int | None:
        counters = self._state.counters
        return counters.best_step if counters.best_evaluated and not self._judge.has_best else None

    def recall(self) -> None:
        """Before an evaluation, by all processes: after a resume the best samples are drawn again, from the same noise,
        so they are the same."""
        if (step := self._group.broadcast(self._forgotten_best)) is None:
            return
        try:
            self._recalled = self._draw(step, self._config.train.seed)
        except CheckpointError as error:
            self._say(f"The best checkpoint, step {step:,}, cannot be read: the next one is the best. {error}")

    def _draw(self, step: int, seed: int) -> Redrawn:
        """Samples of another checkpoint, or of the weights as they are now: each process draws its share."""
        begun, now = time.perf_counter(), step == self._state.counters.step
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

            samples = share_rows(self._group, request.count, draw, in_step=self._sharded)
        return Redrawn(samples, time.perf_counter() - begun)

    def prepare_final_score(self) -> Callable[[], None]:
        """By all processes, which draw the samples: what the first one then has to do for the score of the best
        checkpoint."""
        if (step := self._group.broadcast(self._step_to_score)) is None:
            return lambda: None
        try:
            # From noise that it was not chosen by: the choice flatters the number it was made with.
            drawn = self._draw(step, derive_seed(self._config.train.seed, "rescore"))
        except ProcessLost:
            raise
        except Exception as error:  # whatever it is, all processes know it
            if self._sharded and not isinstance(error, CheckpointError):
                raise  # the others wait inside a pass, until this process ends
            drawn = error
        return lambda: self._score_best(step, drawn)

    def _step_to_score(self) -> int | None:
        """The best checkpoint, if it is to be measured once more and there is time for it."""
        counters, total = self._state.counters, self._session.seconds()[1]
        if not counters.best_evaluated or counters.best_step is None or not self._config.checkpoint.keep_best:
            return None
        if self._folder.status().get("evaluation", {}).get("step") == counters.best_step:
            return None  # a finished run that was resumed: done before
        return counters.best_step if self._budget.allows(self._config.train.steps, guess=0.0, total=total) else None

    def _score_best(self, step: int, drawn: Redrawn | Exception) -> None:
        """The best checkpoint on fresh noise, into the record and run.json."""
        if isinstance(drawn, Exception):
            raise drawn
        begun = time.perf_counter()
        self._judge.open()
        features = self._judge.features(drawn.samples)
        found = examine(features, self._judge.real, gaussian=self._judge.gaussian)
        self._budget.book(drawn.seconds + time.perf_counter() - begun)
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
