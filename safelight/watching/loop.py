"""The watch of a loop that is not ours: `watch.step`, `watch.close`, and what it shows of itself."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from safelight.diagnosis import Diagnosis, Finding, Progress, diagnose_run
from safelight.monitors.parameters import MAX_NAMES_IN_EVENT, named_without_wrappers, unwrapped
from safelight.monitors.reading_buffer import PendingReading
from safelight.observing.live_diagnosis import LiveDiagnosis, OnFinding
from safelight.observing.observer import Observer
from safelight.observing.speed import DataWait, Pace
from safelight.probes.forward_pass import Call, ForwardPass
from safelight.vocabulary import DATA_WAIT, LEARNING_RATE, NONFINITE_PARAMETERS, SPEED, TIME_LEFT
from safelight.watching.arguments import WatchArguments
from safelight.watching.flush_timer import FlushTimer
from safelight.watching.foreign import ema_of_trained, is_compiled, per_sample
from safelight.watching.hooks import OptimizerHooks
from safelight.watching.inspection import Inspection, drawable
from safelight.watching.loop_values import LoggedValues, usable_loss, usable_tensors
from safelight.watching.ranks.joining import NullWatch, OptimizerStepCounts, join_as_first
from safelight.watching.remarks import WarnOnce
from safelight.watching.samples.previews import Previews
from safelight.watching.step_capture import StepCapture
from safelight.watching.watched_run import WatchedRun, crashed
from safelight.words import first_line, short_path

LONGEST_STEP = 1000  # micro-batches in one step
FLUSH_SECONDS = 0.5  # seconds after which readings no longer wait for the next step
MIN_UNUSED_GRADIENTS = (
    3  # micro-batches whose gradients were cleared without an update: once may be a loop that skips a bad one
)


class Watch:
    """Sees gradients and updates through hooks. A fault of its own switches it off, and is reported."""

    def __init__(
        self,
        arguments: WatchArguments,
        run: WatchedRun,
        step: int,
        say: Callable[[str], None],
        on_finding: OnFinding | None,
        *,
        is_captured: bool = False,
        calls: OptimizerStepCounts | None = None,
    ) -> None:
        """`is_captured`: somebody else sees the loop, says what it is, and passes it; `calls`: counts its updates."""
        lean = StepCapture(arguments.model, None if is_captured else arguments.optimizer, say)
        arguments = arguments if arguments.ema is not None else replace(arguments, ema=lean.ema)
        self._run, self._ema, self._say, self._on_finding = run, arguments.ema, say, on_finding
        self.folder, self._record = run.folder, run.record
        model = unwrapped(arguments.model)
        self._everything = named_without_wrappers(model)
        self._named = [(name, parameter) for name, parameter in self._everything if parameter.requires_grad]
        self._updates, self._on, self._process = step, True, os.getpid()
        self._is_captured = is_captured
        self._lock = threading.RLock()
        self._remarks = WarnOnce(say)
        self._first = join_as_first(arguments, self._named, self._remarks.once, calls)
        self._previews = Previews(drawable(arguments, self._remarks.once), run, say, self._remarks.once, step)
        self._new: list[Finding] = []  # that `on_finding` has not seen yet
        self._expects_skill = arguments.data is not None
        self._find_ema = functools.partial(ema_of_trained, arguments.ema, self._everything, self._named)
        self._inspection = Inspection(
            arguments, self._find_ema, run.record, step, say, self._report_no_skill, is_captured=is_captured
        )
        self._probe_runner, self._skill = self._inspection.probes, self._inspection.skill
        diagnosis = LiveDiagnosis(run.folder, run.record, say, self._new.append)
        self._observer = Observer(run.record, self._inspection.monitors, self._probe_runner, diagnosis, self._skill)
        self._hooks: OptimizerHooks | None = None
        try:
            self._hooks = OptimizerHooks(
                [parameter for _, parameter in self._named],
                arguments.optimizer,
                arguments.scaler,
                before_update=self._before_update,
                safely=self._measure_aside,
                on_refused=lambda where: self._record.event(self._updates, "refused", first_nonfinite=where),
            )
        except Exception as error:
            run.close(status="crashed", error=str(error))
            raise
        self._lean = lean
        self._micro_batches: list[tuple[Tensor, Tensor, Tensor | None]] = []  # losses, their mean, timesteps
        self._data_wait, self._pace = DataWait(), Pace(run.steps)
        # Steps that were not read yet, with the norms of their gradients and their number for the other processes.
        self._window: list[tuple[int, Tensor | None, int | None]] = []
        self._last = time.perf_counter()
        self._logged = LoggedValues(self._remarks.once)
        self._safely(lambda: self._inspection.start(self._updates))
        if not is_compiled(arguments.model):  # a hook would be compiled with it, and might change its arithmetic
            self._probe_runner.attach(lambda: self._safely(self._on_call))
        self._at_exit = functools.partial(_close_at_exit, weakref.ref(self))  # must not keep the model alive
        atexit.register(self._at_exit)
        self._timer = FlushTimer(self._flush_if_late)

    @property
    def updates(self) -> int:
        """Updates that were seen; the next reading has this number."""
        return self._updates

    @property
    def findings(self) -> list[Finding]:
        """What is wrong with the run, as far as it went: the rules are run now, on what was recorded."""
        return self.diagnosis.findings

    @property
    def verdict(self) -> str:
        """What is wrong, how many rules could look, and what to pass so that more can."""
        return self.diagnosis.verdict

    @property
    def progress(self) -> Progress:
        """Whether the loss still falls: a sentence as text, and the state of low, medium and high noise as `bands`."""
        return self.diagnosis.progress or Progress()

    @property
    def best_step(self) -> int | None:
        """Updates after which the samples were the best, by a test; None before the first evaluation."""
        return self._previews.best_step

    @property
    def stats(self) -> Mapping[str, Any]:
        """The newest numbers that are on the host: step, loss, loss_smooth, loss_std, grad_norm, lr; and the codes of
        the findings so far."""
        return self._previews.newest.stats

    @property
    def diagnosis(self) -> Diagnosis:
        """Findings, verdict and coverage, of what was recorded so far."""
        if self._hooks is not None:
            self._safely(self._read)
            self._record.flush(wait=True)
        return diagnose_run(self.folder.path)

    def step(
        self,
        loss: Tensor | float | None = None,
        *,
        t: Tensor | None = None,
        pred: Tensor | None = None,
        target: Tensor | None = None,
        x0: Tensor | None = None,
        noise: Tensor | None = None,
        x_t: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Mapping[str, Any]:
        """Once per micro-batch; the last one of a window after `optimizer.step()`. What is not given is seen where it
        can be: docs/capture.md. `loss`: a scalar or one value per sample, unscaled. With a loss for each sample, or
        `pred` and `target`, the loss is known by noise level; `t` is then what the model was called with, unless it is
        given. The more is given, the more can be checked: `x0` the clean images, `noise` and `x_t` as the model was
        shown them, `target`, `pred` and `labels`. Returns `stats`."""
        passed: dict[str, Tensor | None]
        passed = {"t": t, "x0": x0, "noise": noise, "x_t": x_t, "target": target, "pred": pred, "labels": labels}
        with self._lean.aside():
            self._safely(lambda: self._add_passed(loss, passed))
            self._last += self._previews.after_update(self._updates) if self._on else 0.0
            self._data_wait.begin(time.perf_counter())
            self._hand_over()
        return self._previews.newest.stats

    def image(self, name: str, images: Any, step: int | None = None) -> None:
        """Images of your own as a picture of the run: a tensor or an array, one or several; without `step`, of the
        updates so far. What cannot be drawn is reported, and costs the loop nothing."""
        if (place := self._logged.place(step, self._updates)) is not None:
            self._previews.image(name, images, place)

    def report(self, out: str | Path | None = None) -> Path:
        """Everything on one page, in one file: report.html in the run folder, or `out`. While the loop runs or after
        `close`."""
        if self._hooks is not None:
            self._safely(self._read)
            self._record.flush(wait=True)
        return self._run.write_report(out)

    def _add_passed(self, loss: Tensor | float | None, passed: dict[str, Tensor | None]) -> None:
        loss = usable_loss(loss, self._remarks.once)
        passed = usable_tensors(passed, self._remarks.once)
        if self._first is not None and not self._is_captured:
            self._first.see(passed["x0"], passed["noise"])
        seen = self._lean.take()
        for words in self._lean.compare(seen, passed):
            self._report_difference(words)
        if seen is not None:
            loss = seen.passed.loss if loss is None else loss
            passed = passed | seen.passed.tensors | {name: value for name, value in passed.items() if value is not None}
        if loss is None:
            self._remarks.once("no loss was passed, and none was seen: call watch.step(loss) after loss.backward().")
            return
        self._previews.see(passed["x0"], passed["x_t"])
        self._observer.add_forward_pass(loss.detach(), *passed.values())
        self._add(self._observer.forward_passes[-1])

    def step_captured(self, seen: ForwardPass) -> None:
        """As `step`, with what was captured of the micro-batch, its own call included: the last one that the hooks saw
        may be of the next micro-batch."""
        if (call := seen.call) is not None:
            self._safely(lambda: self._probe_runner.offer_call(call))
        self.step(seen.loss, **seen.tensors)

    def last_call(self) -> Call | None:
        """Of the network, where it is kept."""
        return self._probe_runner.last_call

    def log(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Numbers of your own, beside ours in the same record; without `step`, those of the step that is next."""
        place, numbers = self._logged.place(step, self._updates), self._logged.numbers(values)
        if place is not None and numbers:
            self._record.add(place, numbers)

    def close(self, **facts: Any) -> None:
        """Writes what is left, and takes the hooks off. `facts` go into run.json."""
        if self._hooks is None or os.getpid() != self._process:  # a fork has a copy of this, and no business with it
            return
        if "status" not in facts:  # after a crash or an interrupt nobody waits for the model
            self._safely(lambda: self._record.add(self._updates - 1, self._skill.at_end()))
            self._safely(lambda: self._previews.finish(self._updates))
        self._safely(lambda: self._read(at_last=True))
        self._safely(lambda: self._inspection.report_recognised(self._updates))
        self._safely(lambda: self._observer.diagnose(self._updates, at_last=True))
        self._timer.close()
        hooks, was_on, self._hooks, self._on = self._hooks, self._on, None, False
        try:
            self._lean.finish()
            hooks.close()
            if self._first is not None:
                self._first.close()
            self._observer.close()
        finally:
            self._run.close(step=self._updates, **facts)
            atexit.unregister(self._at_exit)
        with suppress(Exception):  # a diagnosis that fails was reported
            if was_on:
                self._say(f"Safelight: {self.verdict} More: safelight doctor {short_path(self.folder.path)}")
        self._hand_over()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(**{} if error is None else crashed(error))

    def _hand_over(self) -> None:
        """Outside of what is kept safe: what `on_finding` raises is meant for the loop."""
        while self._new:
            finding = self._new.pop(0)
            self._previews.newest.report(finding.code)
            if self._on_finding is not None:
                self._on_finding(finding)

    @torch.no_grad()
    def _add(self, passed: ForwardPass) -> None:
        hooks = self._hooks
        assert hooks is not None
        losses, t = per_sample(passed.loss, passed.pred, passed.target), passed.times
        is_known = t is not None and (not t.is_floating_point() or self._probe_runner.declared.alphas is None)
        times = t.detach().reshape(-1) if t is not None and is_known else None
        times = None if times is None or times.shape != losses.shape else times
        self._micro_batches.append((losses, passed.loss.float().mean().reshape(1), times))
        if hooks.norms is None and hooks.follows_updates and not hooks.skipped:
            self._wait_for_update()
            return  # the optimizer has not moved yet: a micro-batch of a larger step
        self._finish_step(hooks)
        self._inspection.settle(self._updates)
        if self._observer.is_due:
            self._read()

    def _wait_for_update(self) -> None:
        """An optimizer that was made anew, or is never called, is reported, and nothing is kept for it without end."""
        if len(self._micro_batches) < LONGEST_STEP:
            return
        self._report_no_update(len(self._micro_batches))
        del self._micro_batches[:-1], self._observer.forward_passes[:-1]
        self._remarks.once(
            f"{LONGEST_STEP} losses came without a step of the optimizer that is watched. Is it the one that trains?"
        )

    def _on_call(self) -> None:
        """The model is called for the next micro-batch: gradients that are gone by now went without an update."""
        self._data_wait.end(time.perf_counter())
        if self._micro_batches and self._probe_runner.cleared >= MIN_UNUSED_GRADIENTS:
            self._report_no_update(self._probe_runner.cleared)

    def _report_no_update(self, batches: int) -> None:
        if self._remarks.is_new("no_update"):
            self._record.event(self._updates, "no_update", batches=batches)

    def _report_no_skill(self, reason: str) -> None:
        """In words only where data was given: a loop that passes x0 for other reasons may not expect it."""
        self._record.event(self._updates, "no_skill", reason=reason)
        if self._expects_skill:
            self._remarks.once(f"Skill is not measured: {reason}.")

    def _before_update(self, gradients: Callable[[], list[Tensor]]) -> None:
        if self._first is not None:
            self._first.before_update(self._updates)
        self._observer.before_update(self._updates, gradients)
        reads_all_weights = self._observer.monitors.reads_all_weights(self._updates)
        if reads_all_weights and sum(p.requires_grad for _, p in self._everything) > len(self._named):
            self._remarks.once("Parameters were unfrozen since the watch began: it does not see those.")

    def _finish_step(self, hooks: OptimizerHooks) -> None:
        micro_batches, self._micro_batches = self._micro_batches, []
        losses, means = _joined([each[0] for each in micro_batches]), _joined([each[1] for each in micro_batches])
        times = [t for _, _, t in micro_batches if t is not None]
        t = _joined(times) if len(times) == len(micro_batches) else None
        seconds, self._last = time.perf_counter() - self._last, time.perf_counter()
        host_readings = {SPEED.name: len(losses) / seconds}
        if (waited := self._data_wait.share(seconds)) is not None:
            host_readings[DATA_WAIT.name] = waited
        if (left := self._pace.left(self._updates + 1, seconds)) is not None:
            host_readings[TIME_LEFT.name] = left
        pending: list[PendingReading] = []
        if (update := hooks.update(losses, t, self._read_ema)) is not None:
            spent = self._skill.spent
            pending += self._observer.after_update(self._updates, update)
            self._last += self._skill.spent - spent  # no part of the time of a step
        elif hooks.skipped:
            pending.append(hooks.skipped_reading())
            self._observer.repeat_step()
        self._observer.begin_step()
        call = None if self._first is None else self._first.take_call()
        pending = pending if self._first is None else self._first.joined(pending, call)
        # Last, over what was computed for the levels: the loss is what the loop says it is.
        pending.append(self._observer.monitors.read_loss(self._updates, means))
        if isinstance(hooks.lr, Tensor):
            pending.append(PendingReading((hooks.lr.reshape(1),), lambda rate: {LEARNING_RATE.name: float(rate[0])}))
        elif hooks.lr is not None:
            host_readings[LEARNING_RATE.name] = hooks.lr
        self._observer.add(self._updates, pending, host_readings)
        self._window.append((self._updates, hooks.norms, call))
        self._updates += 1
        hooks.clear()

    def _read_ema(self) -> list[Tensor] | None:
        if not self._observer.monitors.reads_all_weights(self._updates):
            return None
        ema = self._find_ema()
        if ema is None and self._ema != self._lean.ema and not isinstance(self._ema, FunctionType):
            self._remarks.once("The EMA could not be matched with the model: its distance is not recorded.")
        return ema

    def _read(self, *, at_last: bool = False) -> None:
        """Brings what was measured to the host; names the parameters whose gradients were not finite."""
        count, first = len(self._window), self._first
        if first is not None:  # steps whose shares have not all come are read later
            count = first.ready([call for _, _, call in self._window], at_last=at_last)
        window, self._window = self._window[:count], self._window[count:]
        for (step, own, call), readings in zip(window, self._observer.read(count), strict=True):
            self._previews.newest.add(step, readings)
            norms = first.norms(call) if first is not None and first.is_sharded else own
            if norms is not None and readings.get(NONFINITE_PARAMETERS.name):
                names = self._observer.monitors.parts.nonfinite(norms)
                self._record.event(step, "nonfinite", parameters=names[:MAX_NAMES_IN_EVENT], count=len(names))
                self._observer.hasten_diagnosis()
        if self._probe_runner.mixtures.is_certain:
            self._inspection.report_recognised(self._updates)
        for step, readings in [] if first is None else first.compared():
            self._record.add(step, readings)
        self._run.beat(self._updates)
        self._observer.diagnose(self._updates)

    def _measure_aside(self, act: Callable[[], None]) -> None:
        """In the middle of the loop's own step, of which it is no part."""
        with self._lean.aside():
            self._safely(act)

    def _safely(self, act: Callable[[], None]) -> None:
        """The watched loop continues, whatever happens here."""
        if not self._on or os.getpid() != self._process:  # a fork has a copy of this, and of a lock that may be held
            return
        try:
            with self._lock:
                act()
        except Exception as error:
            with suppress(Exception):
                self._read(at_last=True)  # what was measured before is kept
            self._on = False
            reason = first_line(error)
            self._say(
                f"Safelight's watch stopped ({type(error).__name__}: {reason}); your training continues without it."
            )

    def _report_difference(self, words: str) -> None:
        """Once each: what the loop passes is not what it does."""
        if self._remarks.is_new(words):
            self._record.event(self._updates, "passed_otherwise", words=words)
            self._remarks.once(f"{words}. What is passed is recorded: correct it, or leave it out.")

    def _flush_if_late(self) -> None:
        """From a thread of its own: a loop that is killed keeps what is older than a second."""
        if self._window and time.perf_counter() - self._last > FLUSH_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._safely(self._read)
            finally:
                self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or one that is sent to another process, watches nothing: this one does."""
        return NullWatch, ()


def _close_at_exit(watch: weakref.ref[Watch]) -> None:
    """Closes the watch of a loop that never said that it ended: it crashed, or was left."""
    if (left := watch()) is not None:
        error = getattr(sys, "last_value", None)
        left.close(**({"status": "ended"} if error is None else crashed(error)))


def _joined(vectors: Sequence[Tensor]) -> Tensor:
    return vectors[0] if len(vectors) == 1 else torch.cat(list(vectors))
