"""Pictures and evaluations while training: when they are due, and what is done where one of them fails."""

from __future__ import annotations

import time
from typing import Any

from safelight.contact_sheet import contact_sheet
from safelight.data.summary import summary
from safelight.monitors.parameters import trainable_parameters, weight_histograms
from safelight.observing.sample_check import SampleCheck
from safelight.observing.stage_pictures import after, compare_weights, draw_timelapse
from safelight.pictures.grid import save_png
from safelight.training.evaluation import Evaluator, evaluation_steps
from safelight.training.previews import (
    Drawn,
    cost_in_steps,
    draw_preview,
    preview_steps,
    save_preview,
)
from safelight.training.saving import Saving
from safelight.training.step_reporter import StepReporter, TrainingSession

MAX_REJECTED = 1000  # files left out that the record names; data.json has all


class PicturesAndEvaluations:
    """Samples are drawn by all processes; pictures and evaluations are made by the first."""

    def __init__(self, session: TrainingSession, reader: StepReporter, saving: Saving) -> None:
        self._session, self._reader, self._saving, self._setup = session, reader, saving, session.setup
        self._config, self._state, self._group = self._setup.config, self._setup.state, self._setup.group
        self._record, self._folder = session.record, session.folder
        self._stages, self._evaluations = preview_steps(self._config), evaluation_steps(self._config)
        self._check = SampleCheck(
            self._config, self._setup.images, self._setup.fixed_set.denoisers, self._record, session.screen.say
        )
        self._seconds: float | None = None  # that the newest picture took
        self.restart()
        session.speed.beside += [self._seconds_left, lambda step: self._evaluator.seconds_left(step)]
        if self._step == 0 and self._group.is_main:
            found = summary(self._setup.images, self._config.data)
            self._record.event(0, "data", **found | {"rejected": found["rejected"][:MAX_REJECTED]})
            session.attempt("The contact sheet", self._draw_contact_sheet, found)

    def restart(self) -> None:
        """Forgets a best that is gone."""
        self._evaluator = Evaluator(self._session)

    @property
    def _step(self) -> int:
        return self._session.step

    def _draw_contact_sheet(self, found: dict[str, Any]) -> None:
        path = self._folder.samples / "contact_sheet.png"
        save_png(contact_sheet(self._setup.images, found), path, self._folder.disk)
        self._record.picture(0, "contact_sheet", path)

    def _seconds_left(self, step: int) -> float:
        """Of the pictures after this step."""
        if (count := after(self._stages, step)) == 0:
            return 0.0
        guess = cost_in_steps(self._config) * self._session.speed.seconds_per_step
        return count * (guess if self._seconds is None else self._seconds)

    def begin(self) -> None:
        """Another process may have been lost while all drew: the step was saved without its picture."""
        picture = self._folder.picture(self._step)
        planned = self._step in self._stages or self._step in self._evaluations
        if planned and self._group.broadcast(lambda: not picture.is_file()):
            self._draw(self._may_evaluate())

    def draw_if_due(self) -> None:
        evaluating = self._may_evaluate()
        if self._step in self._stages or evaluating:
            self._draw(evaluating)

    def draw_last(self) -> None:
        """The picture of a run that its patience ends before the last step, which always has one."""
        picture, early = self._folder.picture(self._step), self._step < self._config.train.steps
        if early and self._config.sample.every != 0 and self._group.broadcast(lambda: not picture.is_file()):
            self._draw(evaluating=False, ended=True)

    def _may_evaluate(self) -> bool:
        return self._step in self._evaluations and self._evaluator.may_evaluate()

    def _draw(self, evaluating: bool, *, ended: bool = False) -> None:
        """`ended`: nothing is trained after it."""
        drawn, begun = list[Drawn](), time.perf_counter()
        ended = ended or self._step >= self._config.train.steps
        samples = self._config.evaluate.samples if evaluating else 0

        def draw() -> None:
            drawn.append(draw_preview(self._state, self._config, self._group, samples=samples))

        if evaluating:
            self._evaluator.announce()
        with self._session.doing("drawing samples"):
            if self._setup.is_sharded:
                draw()  # where it fails on one process, the others wait inside a pass until that one ends
            else:
                self._session.attempt("The picture", draw)
            if drawn and self._group.is_main:
                self._session.attempt("The picture", self._paint, drawn[0], begun)
                self._session.attempt("The measurement of the samples", self._look, drawn[0], ended, evaluating)
        if self._group.broadcast(lambda: bool(drawn)) and evaluating:
            self._reader.read()  # a run that must stop stops here, and not inside what may fail
            if self._setup.is_sharded:
                self._evaluator.recall()
            else:
                self._session.attempt("The comparison with the best samples", self._evaluator.recall)
            evaluate = self._evaluator.evaluate
            with self._session.doing("evaluating samples"):
                self._group.broadcast(lambda: self._session.attempt("The evaluation", evaluate, drawn[0]))
            self._saving.save_best()

    def _look(self, drawn: Drawn, ended: bool, evaluating: bool) -> None:
        samples, step = drawn.samples[: self._config.sample.count], self._step
        self._check.measure_pixels(samples, after=step, ended=ended)
        if ended and not evaluating:
            self._check.evaluate_shortly(samples, after=step, trained=self._session.seconds()[0], always=True)

    def _paint(self, drawn: Drawn, begun: float) -> None:
        """`begun`: when it began to be drawn."""
        step = self._step
        self._saving.refuse_without_room()
        found = save_preview(drawn, self._config, self._folder, step)
        self._record.add(step, compare_weights(drawn.samples, drawn.raw, drawn.distance))
        for kind, path in found.items():
            self._record.picture(step, kind, path)
        if self._record.has_loggers and not self._setup.is_sharded:  # else this process has only a part of each weight
            self._session.attempt("A histogram", self._send_histograms)
        self._seconds = time.perf_counter() - begun - drawn.seconds_beyond

    def _send_histograms(self) -> None:
        weights = [parameter for _, parameter in trainable_parameters(self._state.model)]
        found = weight_histograms(self._state.monitors.parts, weights)
        self._record.histograms(self._step, {f"weight/{name}": each for name, each in found.items()})

    def finish(self) -> None:
        """The timelapse."""
        if self._group.is_main:
            self._session.attempt("The timelapse", self._draw_timelapse)

    def _draw_timelapse(self) -> None:
        if (path := draw_timelapse(self._folder.samples, self._folder.disk)) is not None:
            self._record.picture(self._step, "timelapse", path)

    def final_evaluation(self) -> None:
        """The best checkpoint once more, on fresh noise."""
        score = self._evaluator.prepare_final_score()
        if self._group.is_main:
            self._session.attempt("The final evaluation", score)
