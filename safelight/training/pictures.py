"""Pictures and evaluations while training: when they are due, and what is done where one of them fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safelight.contact import contact_sheet
from safelight.data.summary import summary
from safelight.monitors.histograms import weight_histograms
from safelight.monitors.modules import trained
from safelight.observing.recorder import Recorder
from safelight.observing.speed import Speedometer
from safelight.pictures.grid import save_png
from safelight.run import RunFolder
from safelight.training.build import Setup
from safelight.training.evaluation import Evaluator, evaluation_steps
from safelight.training.saving import Saving
from safelight.training.stages import (
    BESIDE,
    Drawn,
    attempt,
    compare_weights,
    draw_stage,
    draw_timelapse,
    paint_stage,
    stage_steps,
)
from safelight.training.step_reader import StepReader

MOST_REJECTED = 1000  # files left out that the record names; data.json has all


class Pictures:
    """Samples are drawn by all processes; pictures and evaluations are made by the first."""

    def __init__(
        self,
        setup: Setup,
        record: Recorder,
        folder: RunFolder,
        speed: Speedometer,
        reader: StepReader,
        saving: Saving,
        say: Callable[[str], None],
    ) -> None:
        self._setup, self._config, self._state = setup, setup.config, setup.state
        self._record, self._folder, self._speed, self._say = record, folder, speed, say
        self._reader, self._saving = reader, saving
        self._group, self._is_main = setup.runtime.group, setup.runtime.group.is_main
        self._sharded = setup.state.weights.shard is not None
        self._stages, self._evaluations = stage_steps(self._config), evaluation_steps(self._config)
        self.restart()
        if self._step == 0 and self._is_main:
            found = summary(setup.images, self._config.data)
            record.event(0, "data", **found | {"rejected": found["rejected"][:MOST_REJECTED]})
            attempt("The contact sheet", lambda: self._draw_contact_sheet(found), say)

    def restart(self) -> None:
        """Forgets a best that is gone."""
        self._evaluator = Evaluator(self._setup, self._record, self._folder, self._seconds, self._say)

    @property
    def _step(self) -> int:
        return self._state.counters.step

    def _seconds(self) -> tuple[float, float]:
        """(trained so far, of the whole training at the present speed)."""
        left = self._config.train.steps - self._step
        return self._speed.trained, self._speed.trained + left * self._speed.seconds_per_step

    def _draw_contact_sheet(self, found: dict[str, Any]) -> None:
        path = self._folder.samples / "contact_sheet.png"
        save_png(contact_sheet(self._setup.images, found), path)
        self._record.picture(0, "contact_sheet", path)

    def begin(self) -> None:
        """Another process may have been lost while all drew: the step was saved without its picture."""
        if self._step in self._stages | self._evaluations and self._group.broadcast(
            lambda: not self._folder.picture(self._step).is_file()
        ):
            self._draw(self._may_evaluate())

    def draw_if_due(self) -> None:
        evaluating = self._may_evaluate()
        if self._step in self._stages or evaluating:
            self._draw(evaluating)

    def _may_evaluate(self) -> bool:
        return self._step in self._evaluations and self._evaluator.may_evaluate()

    def _draw(self, evaluating: bool) -> None:
        drawn: list[Drawn] = []
        samples = self._config.evaluate.samples if evaluating else 0

        def draw() -> None:
            drawn.append(draw_stage(self._state, self._config, self._group, samples=samples))

        if self._sharded:
            draw()  # where it fails on one process, the others wait inside a pass until that one ends
        else:
            attempt("The picture", draw, self._say)
        if drawn and self._is_main:
            attempt("The picture", lambda: self._paint(drawn[0]), self._say)
        if self._group.broadcast(lambda: bool(drawn)) and evaluating:
            self._reader.read()  # a run that must stop stops here, and not inside what may fail
            self._evaluator.recall()
            self._group.broadcast(
                lambda: attempt("The evaluation", lambda: self._evaluator.evaluate(drawn[0]), self._say)
            )
            self._saving.save_best()

    def _paint(self, drawn: Drawn) -> None:
        step = self._step
        paint_stage(drawn, self._config, self._folder, step)
        self._record.add(step, compare_weights(drawn))
        self._record.picture(step, "samples", self._folder.picture(step))
        for kind in BESIDE:
            self._record.picture(step, kind, self._folder.picture(step, kind))
        if self._record.has_loggers and not self._sharded:  # else this process has only a part of each weight
            attempt("A histogram", self._send_histograms, self._say)

    def _send_histograms(self) -> None:
        weights = [parameter for _, parameter in trained(self._state.model)]
        found = weight_histograms(self._state.monitors.parts, weights)
        self._record.histograms(self._step, {f"weight/{name}": each for name, each in found.items()})

    def finish(self) -> None:
        """The timelapse."""
        if self._is_main:
            attempt("The timelapse", self._draw_timelapse, self._say)

    def _draw_timelapse(self) -> None:
        path = draw_timelapse(self._folder)
        if path is not None:
            self._record.picture(self._step, "timelapse", path)

    def rescore(self) -> None:
        """The best checkpoint once more, on fresh noise."""
        rescore = self._evaluator.prepare_rescore()
        if self._is_main:
            attempt("The final evaluation", rescore, self._say)
