"""Steps that have reached the host: refused updates are counted, the healer sees them, the screen shows them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from safelight.healing.healer import Healer
from safelight.healing.step_settings import settings_at
from safelight.observing.observer import Observer
from safelight.observing.process_check import ProcessCheck
from safelight.observing.recorder import Recorder
from safelight.observing.row_check import RowCheck
from safelight.observing.speed import Speedometer
from safelight.observing.step_view import StepView
from safelight.run import HEARTBEAT_SECONDS, RunFolder
from safelight.training.build import Setup
from safelight.training.ema import MAIN
from safelight.training.nonfinite import count_refusal, stopped
from safelight.vocabulary import (
    DATA_WAIT,
    EMA_DECAY,
    GRADIENT_NORM,
    LEARNING_RATE,
    LOSS,
    MEMORY,
    REFUSED,
    SPEED,
    TIME_LEFT,
)

SYSTEM_EVERY = 16  # steps between readings of speed and memory


@dataclass(frozen=True, slots=True)
class Progress:
    """What a screen shows of a step."""

    step: int
    steps: int
    loss: float
    lr: float
    norm: float
    images_per_second: float
    seconds_left: float
    refused: int


class Screen(Protocol):
    """Where a run is shown."""

    def say(self, text: str) -> None: ...
    def show(self, progress: Progress) -> None: ...


class StepReader:
    """Reads the device once per window: a copy waits for all the work that is queued before it."""

    def __init__(
        self,
        setup: Setup,
        observer: Observer,
        record: Recorder,
        folder: RunFolder,
        screen: Screen,
        speed: Speedometer,
        healer: Healer,
    ) -> None:
        self._setup, self._config, self._state = setup, setup.config, setup.state
        self._record, self._folder, self._screen, self._speed, self._healer = record, folder, screen, speed, healer
        self._observer = observer
        group, weights = setup.runtime.group, setup.state.weights
        self._process_check = ProcessCheck(setup.config, group, setup.state.model, weights, setup.batches, speed)
        self._row_check = RowCheck(setup.config, setup.images, setup.runtime.to_device)
        self.signal = 0  # number of a signal that one of the processes received
        self._reported = 0.0
        self._window: list[StepView] = []

    def restart(self) -> None:
        """The steps that were not read yet are given up."""
        self._window = []
        self._observer.restart()

    def add(self, view: StepView) -> None:
        """After every step."""
        self._window.append(view)
        decay = self._state.ema.decay(MAIN, view.step + 1)
        replaced = bool(settings_at(self._config, self._state.journal.acts, view.step).quarantined)
        known = {LEARNING_RATE.name: view.lr, EMA_DECAY.name: decay}
        known |= self._process_check.look(view, replaced=replaced)
        self._observer.add(view.step, [*view.readings, *self._row_check.look(view)], known)
        ended = self._state.counters.step == self._config.train.steps
        on_host = view.refused.device.type == "cpu"  # can be read at no cost: a refusal is judged at once
        if on_host:
            self.signal = self.signal or int(view.stop_signal)
        if self._observer.is_due or ended or (on_host and bool(view.refused)):
            self.read()

    def read(self) -> None:
        """Reads all steps of the window; also before a checkpoint, which holds what the monitors remember."""
        views, self._window = self._window, []
        if not views:
            return
        readings = self._observer.read()
        self.signal = self.signal or max(int(view.stop_signal) for view in views)
        for view, reading in zip(views, readings, strict=True):
            self._read(view, reading)
            if view.step % SYSTEM_EVERY == 0:
                self._record_system(view.step)
        self._show(views[-1], readings[-1])
        if self._setup.runtime.group.is_main:
            self._observer.diagnose(self._state.counters.step)

    def _read(self, view: StepView, reading: Mapping[str, float]) -> None:
        stepper, counters, refused = self._setup.stepper, self._state.counters, bool(reading[REFUSED.name])
        overflow, where = False, None
        if refused:
            overflow = self._state.loss_scale.is_overflow(view.loss, view.scale)
            where = count_refusal(stepper, self._record, view, overflow=overflow)
        else:
            counters.refused_in_row = 0
        if counters.refused_in_row == 1:
            self._screen.say(f"Step {view.step}: the loss or gradient is not finite; the update was refused.")
        if where is not None:
            self._healer.give_up_weights(view.step, where)
            raise stopped(stepper, view.step, where)
        self._healer.read(view.step, view.inputs, reading[LOSS.name], refused=refused, overflow=overflow)

    def discard(self) -> bool:
        """Drops the steps that were not read yet; whether one of their updates was refused, which is not counted."""
        self._window = []
        return any(bool(reading[REFUSED.name]) for reading in self._observer.read())

    def _pace(self) -> tuple[float, float]:
        """(images per second, seconds left)."""
        seconds, left = self._speed.seconds_per_step, self._config.train.steps - self._state.counters.step
        return self._config.train.batch_size / seconds, left * seconds

    def _record_system(self, step: int) -> None:
        images_per_second, seconds_left = self._pace()
        numbers = {SPEED: images_per_second, DATA_WAIT: self._speed.share_waiting, TIME_LEFT: seconds_left}
        numbers[MEMORY] = self._setup.runtime.memory()
        self._record.add(step, {signal.name: number for signal, number in numbers.items()})

    def _show(self, view: StepView, readings: Mapping[str, float]) -> None:
        images_per_second, seconds_left = self._pace()
        counters = self._state.counters
        self._screen.show(
            Progress(
                step=counters.step,
                steps=self._config.train.steps,
                loss=readings[LOSS.name],
                lr=view.lr,
                norm=readings[GRADIENT_NORM.name],
                images_per_second=images_per_second,
                seconds_left=seconds_left,
                refused=counters.refused,
            )
        )
        if time.monotonic() - self._reported > HEARTBEAT_SECONDS:
            self._reported = time.monotonic()
            self._folder.report(step=counters.step)

    def finish(self) -> None:
        if self._setup.runtime.group.is_main:
            self._observer.diagnose(self._state.counters.step, at_last=True)
