"""Marks in shared memory: what a process was doing when the blow came, to be read by whoever struck it."""

from __future__ import annotations

import functools
import mmap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from safelight import start
from safelight.checkpoints import writer as checkpoint
from safelight.diffusion.micro_batch import MicroBatch
from safelight.observing.observer import StepResult
from safelight.training.loop import Trainer
from safelight.training.pictures import PicturesAndEvaluations
from safelight.training.step import Stepper


class Phase(IntEnum):
    """Where the main thread of a sitting is."""

    STARTING = 0
    LOADING = 1
    BUILDING = 2
    TRAINING = 3
    CLOSING = 4
    JOINING = 5  # looking for the other processes of the run
    DRAWING = 6  # samples, in the middle of the training


class _Place(IntEnum):
    """Which number is which."""

    PHASE = 0
    SAVES_BEGUN = 1
    SAVES_ENDED = 2
    SAVES_FAILED = 3
    STEP = 4
    STEPS_BEGUN = 5
    JOINED = 6
    DRAWINGS = 7
    LOADS = 8
    HOLD = 9
    HELD = 10


class Marks:
    """Numbers that parent and child share, and that stay as they were when the child dies."""

    def __init__(self) -> None:
        self._numbers = memoryview(mmap.mmap(-1, 64)).cast("i")
        self._lock = threading.Lock()  # checkpoints and EMA snapshots are saved by two threads

    def clear(self) -> None:
        for place in range(len(self._numbers)):
            self._numbers[place] = 0

    @property
    def phase(self) -> Phase:
        return Phase(self._numbers[_Place.PHASE])

    @property
    def saves_begun(self) -> int:
        return self._numbers[_Place.SAVES_BEGUN]

    @property
    def saving(self) -> bool:
        return self._numbers[_Place.SAVES_BEGUN] > self._numbers[_Place.SAVES_ENDED]

    @property
    def saves_failed(self) -> int:
        return self._numbers[_Place.SAVES_FAILED]

    @property
    def saves_done(self) -> int:
        return self._numbers[_Place.SAVES_ENDED] - self.saves_failed

    @property
    def step(self) -> int:
        """The last that was begun."""
        return self._numbers[_Place.STEP]

    @step.setter
    def step(self, step: int) -> None:
        self._numbers[_Place.STEP] = step

    @property
    def steps_begun(self) -> int:
        """In this sitting."""
        return self._numbers[_Place.STEPS_BEGUN]

    @property
    def first_step(self) -> int:
        """Of this sitting, if it came as far as a step."""
        return self.step - self.steps_begun + 1

    @property
    def has_joined(self) -> bool:
        """Whether all processes of the run had found each other."""
        return self._numbers[_Place.JOINED] > 0

    @property
    def drawings(self) -> int:
        """That were begun in this sitting."""
        return self._numbers[_Place.DRAWINGS]

    @property
    def has_loaded(self) -> bool:
        """Whether it has at least begun to; the phase is over in a moment, which nobody may have seen."""
        return self._numbers[_Place.LOADS] > 0

    @property
    def is_held(self) -> bool:
        """Whether it stands before a step until it is struck or let go."""
        return self._numbers[_Place.HELD] > 0

    def hold_at(self, step: int) -> None:
        """Has the process that takes the marks along stand still before this step or a later one."""
        self._numbers[_Place.HOLD] = step

    def let_go(self) -> None:
        self._numbers[_Place.HOLD] = 0

    def stand(self, step: int) -> None:
        """In the process that is held."""
        while 0 < self._numbers[_Place.HOLD] <= step:
            self._numbers[_Place.HELD] = 1
            time.sleep(0.001)
        self._numbers[_Place.HELD] = 0

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        before, self._numbers[_Place.PHASE] = self._numbers[_Place.PHASE], phase
        try:
            yield
        finally:
            self._numbers[_Place.PHASE] = Phase.CLOSING if phase == Phase.TRAINING else before

    @contextmanager
    def during_join(self) -> Iterator[None]:
        with self.during(Phase.JOINING):
            yield
        self.add(_Place.JOINED)

    @contextmanager
    def during_load(self) -> Iterator[None]:
        self.add(_Place.LOADS)
        with self.during(Phase.LOADING):
            yield

    @contextmanager
    def during_drawing(self) -> Iterator[None]:
        self.add(_Place.DRAWINGS)
        with self.during(Phase.DRAWING):
            yield

    @contextmanager
    def during_save(self) -> Iterator[None]:
        self.add(_Place.SAVES_BEGUN)
        try:
            yield
        except BaseException:
            self.add(_Place.SAVES_FAILED)
            raise
        finally:
            self.add(_Place.SAVES_ENDED)

    def begin_step(self, step: int) -> None:
        self.step = step
        self.add(_Place.STEPS_BEGUN)

    def add(self, place: _Place) -> None:
        with self._lock:
            self._numbers[place] += 1


def put_up_marks(marks: Marks) -> None:
    """Patches this process, which is a child and does not live long."""
    start.join_group = _within(start.join_group, marks.during_join)
    start.load_latest = _within(start.load_latest, marks.during_load)
    start.build = _within(start.build, lambda: marks.during(Phase.BUILDING))
    Trainer.run = _within(Trainer.run, lambda: marks.during(Phase.TRAINING))
    PicturesAndEvaluations._draw = _within(PicturesAndEvaluations._draw, marks.during_drawing)
    checkpoint.commit = _within(checkpoint.commit, marks.during_save)
    take = Stepper.step

    def marked(self: Stepper, inputs: Sequence[MicroBatch], step: int, *more: Any, **named: Any) -> StepResult:
        marks.begin_step(step)
        marks.stand(step)
        return take(self, inputs, step, *more, **named)

    Stepper.step = marked


def _within(work: Callable[..., Any], context: Callable[[], Any]) -> Callable[..., Any]:
    @functools.wraps(work)
    def marked(*args: Any, **named: Any) -> Any:
        with context():
            return work(*args, **named)

    return marked
