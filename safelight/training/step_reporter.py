"""Steps that have reached the host: refused updates are counted, the healer sees them, the screen shows them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from safelight import vocabulary
from safelight.errors import ProcessLost
from safelight.healing.healer import Healer
from safelight.observing.batch_check import BatchCheck
from safelight.observing.batch_evidence import MOST_PICTURES
from safelight.observing.epochs import EpochLog
from safelight.observing.observer import Observer, StepResult
from safelight.observing.process_check import ProcessCheck
from safelight.observing.recorder import Recorder
from safelight.observing.speed import Speedometer
from safelight.run import HEARTBEAT_SECONDS, RunFolder
from safelight.training.build import Setup
from safelight.training.ema import MAIN_EMA
from safelight.training.nonfinite import record_refusal, stopped
from safelight.vocabulary import RECENT

SYSTEM_EVERY = 16  # steps between readings of speed and memory


@dataclass(frozen=True, slots=True)
class StepSummary:
    """What a screen shows of a step."""

    step: int
    steps: int
    loss: float  # mean of the last steps
    lr: float
    norm: float
    images_per_second: float
    seconds_left: float
    refused: int
    skill: float | None = None
    """Of the EMA at the newest checkpoint: how much better it denoises than simple filters (0: a filter that knows the
    mean image and one variance, 1: the best linear filter)."""


class Screen(Protocol):
    """Where a run is shown."""

    def say(self, text: str) -> None: ...
    def show(self, progress: StepSummary) -> None: ...
    def doing(self, what: str) -> None:
        """What the run does instead of steps, such as drawing; empty: steps."""
        ...


@dataclass(frozen=True, slots=True)
class TrainingSession:
    """A training that is under way: what the loop and its companions share."""

    setup: Setup
    folder: RunFolder
    record: Recorder
    speed: Speedometer
    screen: Screen

    @property
    def step(self) -> int:
        """Updates that are done."""
        return self.setup.state.counters.step

    @property
    def _seconds_of_steps_left(self) -> float:
        return (self.setup.config.train.steps - self.step) * self.speed.seconds_per_step

    @property
    def seconds_left(self) -> float:
        """At the present speed, with the pictures and evaluations that are still to come."""
        return self._seconds_of_steps_left + sum(left(self.step) for left in self.speed.beside)

    def seconds(self) -> tuple[float, float]:
        """(trained so far, of the whole training), without pictures and evaluations."""
        return self.speed.trained, self.speed.trained + self._seconds_of_steps_left

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """While something else than steps is done; the screen says what."""
        self.screen.doing(what)
        try:
            yield
        finally:
            self.screen.doing("")

    def attempt(self, what: str, make: Callable[..., object], *given: Any) -> None:
        """If a picture or an evaluation fails, the training continues without it."""
        try:
            make(*given)
        except ProcessLost:
            raise
        except Exception as error:  # whatever it is, and of whichever library
            self.screen.say(f"{what} could not be made ({type(error).__name__}: {error}); training continues.")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def _mean_of_finite(numbers: Iterable[float]) -> float:
    finite = [number for number in numbers if math.isfinite(number)]
    return sum(finite) / len(finite) if finite else math.nan


class StepReporter:
    """Reads the device once per window: a copy waits for all the work that is queued before it."""

    def __init__(self, session: TrainingSession, observer: Observer, healer: Healer) -> None:
        setup = session.setup
        self._session, self._setup, self._state, self._record = session, setup, setup.state, session.record
        self._observer, self._healer = observer, healer
        self._process_check = ProcessCheck(
            setup.config, setup.group, setup.state.model, setup.state.weights, setup.batches, session.speed
        )
        self._batch_check = BatchCheck(setup.config, setup.images, setup.held_out_ids, setup.runtime.to_device)
        self._epochs = EpochLog(setup.batches, setup.config.train.steps, session.record, session.screen.say)
        self.os_signal = 0  # number of a signal that one of the processes received
        self.skill: float | None = None  # of the newest checkpoint
        self._reported, self._drawn = 0.0, 0  # refused batches that were drawn
        self._window: list[StepResult] = []
        self._losses: deque[float] = deque(maxlen=RECENT)

    def restart(self) -> None:
        """The steps that were not read yet are given up."""
        self._window = []
        self._losses.clear()
        self._observer.restart()

    def add(self, view: StepResult) -> None:
        """After every step."""
        decay = self._state.ema.decay(MAIN_EMA, view.step + 1)
        host_readings = {vocabulary.LEARNING_RATE.name: view.lr, vocabulary.EMA_DECAY.name: decay}
        readings = [*view.readings, *self._batch_check.check(view)]
        try:
            host_readings |= self._process_check.check(view, replaced=bool(self._healer.step_settings.quarantined))
        finally:  # also where a process is lost meanwhile: the step is done, and is saved with what it was measured by
            self._window.append(view)
            self._observer.add(view.step, readings, host_readings)
        ended = self._session.step == self._setup.config.train.steps
        on_host = view.refused.device.type == "cpu"  # can be read at no cost: a refusal is judged at once
        if on_host:
            self.os_signal = self.os_signal or int(view.os_signal)
        if self._observer.is_due or ended or (on_host and bool(view.refused)):
            self.read()

    def read(self) -> None:
        """Reads all steps of the window; also before a checkpoint, which holds what the monitors remember."""
        views, self._window = self._window, []
        if not views:
            return
        readings = self._observer.read()
        self.os_signal = self.os_signal or max(int(view.os_signal) for view in views)
        for view, reading in zip(views, readings, strict=True):
            self._read(view, reading)
            self._losses.append(reading[vocabulary.LOSS.name])
            self._epochs.add(view.step, reading[vocabulary.LOSS.name], self._state.counters)
            if view.step % SYSTEM_EVERY == 0 or view.step + 1 == self._setup.config.train.steps:
                self._record_system(view.step)
        self._show(views[-1], readings[-1])
        self.diagnose()

    def _read(self, view: StepResult, reading: Mapping[str, float]) -> None:
        stepper, counters, refused = self._setup.stepper, self._state.counters, bool(reading[vocabulary.REFUSED.name])
        overflow, reason = False, None
        if refused:
            overflow = self._state.loss_scale.is_overflow(view.loss, view.scale)
            self._drawn += not overflow
            folder = self._session.folder if self._drawn <= MOST_PICTURES else None
            reason = record_refusal(stepper, self._record, view, overflow=overflow, folder=folder)
        else:
            counters.refused_in_row = 0
        if counters.refused_in_row == 1:
            self._session.screen.say(f"Step {view.step}: the loss or gradient is not finite; the update was refused.")
        if reason is not None:
            self._healer.roll_back_diverged(view.step, reason)
            raise stopped(stepper, view.step, reason)
        self._healer.read(view.step, view.inputs, reading[vocabulary.LOSS.name], refused=refused, overflow=overflow)

    def discard(self) -> bool:
        """Reads the steps that were not read yet, for what a checkpoint remembers of them; whether one of their updates
        was refused, which is not judged any more."""
        views, self._window = self._window, []
        for view, reading in zip(views, self._observer.read(), strict=True):
            if bool(reading[vocabulary.REFUSED.name]):
                return True
            self._state.counters.refused_in_row = 0
            self._epochs.add(view.step, reading[vocabulary.LOSS.name], self._state.counters)
        return False

    @property
    def _images_per_second(self) -> float:
        return self._setup.config.train.batch_size / self._session.speed.seconds_per_step

    def _record_system(self, step: int) -> None:
        numbers = {
            vocabulary.SPEED: self._images_per_second,
            vocabulary.DATA_WAIT: self._session.speed.share_waiting,
            vocabulary.TIME_LEFT: self._session.seconds_left,
            vocabulary.MEMORY: self._setup.runtime.memory(),
        }
        self._record.add(step, {signal.name: number for signal, number in numbers.items()})

    def _show(self, view: StepResult, readings: Mapping[str, float]) -> None:
        step = self._session.step
        self._session.screen.show(
            StepSummary(
                step=step,
                steps=self._setup.config.train.steps,
                loss=_mean_of_finite(self._losses),
                lr=view.lr,
                norm=readings[vocabulary.GRADIENT_NORM.name],
                images_per_second=self._images_per_second,
                seconds_left=self._session.seconds_left,
                refused=self._state.counters.refused,
                skill=self.skill,
            )
        )
        if time.monotonic() - self._reported > HEARTBEAT_SECONDS:
            self._reported = time.monotonic()
            self._session.folder.check()
            self._session.folder.update_status(
                step=step, epoch=self._setup.batches.epoch(step), seconds=self._session.speed.elapsed
            )

    def diagnose(self, *, at_last: bool = False) -> None:
        if self._setup.group.is_main:
            self._observer.diagnose(self._session.step, at_last=at_last)
