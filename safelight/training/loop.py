"""The loop: a table of contents of what happens in a run, and in which order."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Any, NoReturn, Protocol

from safelight.checkpoints.folder import KEEP_ALL
from safelight.checkpoints.folder import steps as steps_on_disk
from safelight.checkpoints.joint_writer import FirstWriter, PartWriter, Relay
from safelight.checkpoints.loading import load_once
from safelight.checkpoints.rollback import find_good, give_up_future
from safelight.checkpoints.stand_ins import SilentRecord, SilentWriter
from safelight.checkpoints.writer import Writer, write
from safelight.config import Config
from safelight.config.resolve import to_dict
from safelight.contact import contact_sheet
from safelight.data.summary import summary
from safelight.errors import CheckpointError, Interrupted, ProcessLost, Stopped
from safelight.healing.action_log import ActionLog
from safelight.healing.alarms import is_good
from safelight.healing.healer import Healer
from safelight.healing.orders import BudgetSpent, Rollback
from safelight.model.memory import is_out_of_memory
from safelight.monitors.histograms import weight_histograms
from safelight.monitors.modules import trained
from safelight.monitors.pool import Pool
from safelight.observing.live_diagnosis import LiveDiagnosis
from safelight.observing.process_check import ProcessCheck
from safelight.observing.recorder import Recorder
from safelight.observing.row_check import RowCheck
from safelight.observing.speed import Speedometer
from safelight.observing.step_view import StepView
from safelight.pictures.grid import save_png
from safelight.processes.restarts import note_failure
from safelight.record.sinks import open_sinks
from safelight.record.sinks.pump import Pump
from safelight.record.store import Record
from safelight.run import HEARTBEAT_SECONDS, RunFolder
from safelight.training.build import Parts, environment, out_of_memory
from safelight.training.ema import MAIN, snapshot_steps
from safelight.training.ema_snapshots import snapshot_profiles
from safelight.training.evaluation import evaluation_steps
from safelight.training.examiner import Examiner
from safelight.training.fixed_set import gap
from safelight.training.interrupts import Interrupts, exit_code_of
from safelight.training.nonfinite import FiniteGuard
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
from safelight.training.state import Counters
from safelight.vocabulary import (
    DATA_WAIT,
    EMA_DECAY,
    GRADIENT_NORM,
    HELD_EMA,
    HELD_GAP,
    HELD_RAW,
    LEARNING_RATE,
    LOSS,
    MEMORY,
    PROBE_EMA,
    PROBE_RAW,
    REFUSED,
    SPEED,
    TIME_LEFT,
)

TOLD_REJECTED = 1000  # files left out that the record names; data.json has all
SYSTEM_EVERY = 16  # steps between looks at speed and memory


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
    """Where a run is watched; never asked more than it needs to know."""

    def say(self, text: str) -> None: ...
    def show(self, progress: Progress) -> None: ...


def checkpoint_interval(config: Config) -> int:
    return config.checkpoint.every or max(1, min(1000, config.train.steps // 20))


class Trainer:
    """Runs the parts from where the state stands to the last step."""

    def __init__(self, parts: Parts, folder: RunFolder, screen: Screen) -> None:
        self.parts, self.folder, self.screen = parts, folder, screen
        self.config, self.state = parts.config, parts.state
        self.group, self.is_main = parts.engine.group, parts.engine.is_main
        self._sharded = parts.state.weights.shard is not None  # a pass of the network takes all processes
        keep = self.config.checkpoint
        self.writer = self._make_writer(folder.checkpoints, last=keep.keep_last, every=keep.keep_every)
        self.profile_writer = self._make_writer(folder.snapshots, last=KEEP_ALL, every=0)
        self.record = Recorder(*self._open_record(self.state.counters.step))
        if self.state.counters.step == 0 and self.is_main:
            found = summary(parts.images, self.config.data)
            self.record.event(0, "data", **found | {"rejected": found["rejected"][:TOLD_REJECTED]})
            attempt("The contact sheet", lambda: self._draw_contact_sheet(found), screen.say)
        self._stages, self._evaluations = stage_steps(self.config), evaluation_steps(self.config)
        self._examiner = Examiner(parts, self.record, screen.say, folder)
        self._snapshots = set(snapshot_steps(self.config.ema.snapshots, self.config.train.steps))
        self._guard = FiniteGuard(self.config, parts.stepper, self.record)
        self._action_log = ActionLog(self.state, self.record, folder, screen.say)
        self._action_log.retell(self.state.counters.step)
        self._healer = Healer(parts, self._action_log.tell)
        self._live_diagnosis = LiveDiagnosis(folder, self.record, screen.say)
        self._speed = Speedometer()
        self._process_check = ProcessCheck(
            parts.config, parts.engine.group, parts.state.model, parts.state.weights, parts.batches, self._speed
        )
        self._row_check = RowCheck(parts.config, parts.images, parts.engine.send)
        self._seconds_before = self.state.counters.seconds
        self._pool = Pool(self.record, by_clock=self.group.size == 1)
        self._window: list[StepView] = []
        self._signal = 0  # of a process that was asked to stop
        self._is_whole = True  # whether the state is that after a whole number of steps
        self._saved = 0  # the step that was handed to the writer last
        self._beat = 0.0

    def _make_writer(self, folder: Path, *, last: int, every: int) -> Writer:
        """A resume cuts the record at its checkpoint, so all that lies before that has to be on disk first."""

        def before_commit() -> None:
            self.record.settle()

        if self._sharded:
            relay = Relay(self.group, folder.name)
            if not self.is_main:
                return PartWriter(folder, relay)
            return FirstWriter(folder, relay, last=last, every=every, say=self.screen.say, before_commit=before_commit)
        if not self.is_main:
            return SilentWriter()
        return Writer(folder, last=last, every=every, say=self.screen.say, before_commit=before_commit)

    def _draw_contact_sheet(self, found: dict[str, Any]) -> None:
        path = self.folder.samples / "contact_sheet.png"
        save_png(contact_sheet(self.parts.images, found), path)
        self.record.picture(0, "contact_sheet", path)

    def _open_record(self, step: int) -> tuple[Record, Pump | None]:
        """From this step on; what was told of it and later ones before is forgotten."""
        if not self.is_main:
            return SilentRecord(), None
        say = self.screen.say
        names = dict.fromkeys(self.config.log.to)
        settings = to_dict(self.config)
        folder, name = self.folder.path, self.folder.path.name
        pump = open_sinks(names, folder, config=settings, run_name=name, from_step=step, say=say) if names else None
        return Record(self.folder.record, from_step=step, say=say), pump

    def run(self) -> None:
        """Trains to the end, or to the first signal, or to a diagnosis; whatever happens, the state is saved."""
        interrupted = False
        try:
            with Interrupts() as interrupts:
                try:
                    self._train(interrupts)
                except ProcessLost as lost:  # inside: a launcher now asks all to go, and this one has to save first
                    self._save_alone(lost)
                    raise
        except Interrupted:
            interrupted = True
            raise
        except RuntimeError as error:
            if is_out_of_memory(error):
                self.folder.report(status="out of memory", step=self.state.counters.step)
                raise out_of_memory(self.config) from error
            raise
        finally:
            self.parts.feed.close()
            self.writer.close()
            self.profile_writer.close()
            self.record.close(interrupted=interrupted)

    def _train(self, interrupts: Interrupts) -> None:
        counters = self.state.counters
        self.folder.report(status="training", step=counters.step, steps=self.config.train.steps)
        if counters.step in self._snapshots:
            self._keep_profiles()  # a kill may have come between the checkpoint and the snapshot of one step
        self._draw_missed()
        if self._healer.enabled and counters.step == 0:
            self._save_start()
        try:
            while not self._reaches_the_end(interrupts):
                pass
        except BudgetSpent as spent:
            self._stop(spent.reason, spent.stopped(self.config.heal.budget, self.state.journal.acts))
        self._rescore()
        if self.is_main:
            self._live_diagnosis.visit(self.state.counters.step, at_last=True)
        self.folder.report(status="finished", step=self.state.counters.step)

    def _reaches_the_end(self, interrupts: Interrupts) -> bool:
        """False where the run had to go back."""
        try:
            self._advance(interrupts)
        except Rollback as order:
            self._go_back(order)
            return False
        return True

    def _advance(self, interrupts: Interrupts) -> None:
        counters = self.state.counters
        while counters.step < self.config.train.steps:
            view = self._step(counters.step, interrupts)
            counters.step += 1
            self._look(view)
            self.writer.poll()
            self.profile_writer.poll()
            evaluating = counters.step in self._evaluations and self._may_evaluate()
            if counters.step in self._stages or evaluating:
                self._draw(evaluating)
            if counters.step in self._snapshots:
                self._keep_profiles()
            if number := interrupts.number if self.group.size == 1 else self._signal:
                self._leave(number)
            due = counters.step % checkpoint_interval(self.config) == 0 and self._saved != counters.step
            if due and counters.step < self.config.train.steps:
                self._save(wait=False)
        self._finish()

    def _step(self, step: int, interrupts: Interrupts) -> StepView:
        while True:
            self._healer.prepare(step)
            with self.group.watched(), self._speed.waiting():
                inputs = [micro.moved(self.parts.engine.send) for micro in self.parts.feed.take(step)]
            with self.group.watched(), self._speed.working():
                try:
                    return self.parts.stepper.take(inputs, step, interrupts.number)
                except (RuntimeError, MemoryError) as error:
                    if not self._healer.may_split(error):
                        raise
            self._healer.split(step)  # outside the handler: the traceback would keep the failed pass alive

    def _look(self, view: StepView) -> None:
        """Reads the device once per window: a copy waits for all the work that is queued before it."""
        self._window.append(view)
        decay = self.state.averages.decay(MAIN, view.step + 1)
        known = {LEARNING_RATE.name: view.lr, EMA_DECAY.name: decay} | self._process_check.look(view)
        self._pool.add(view.step, [*view.readings, *self._row_check.look(view)], known)
        ended = self.state.counters.step == self.config.train.steps
        on_host = view.refused.device.type == "cpu"  # can be read at no cost: a refusal is judged at once
        if on_host:
            self._signal = self._signal or int(view.stop_signal)
        if self._pool.is_due or ended or (on_host and bool(view.refused)):
            self._drain()

    def _drain(self) -> None:
        """Brings what was measured to the host; also before a checkpoint, which holds what the monitors remember."""
        views, self._window = self._window, []
        if not views:
            return
        readings = self._pool.flush()
        self._signal = self._signal or max(int(view.stop_signal) for view in views)
        for seen, reading in zip(views, readings, strict=True):
            self._read(seen, refused=bool(reading[REFUSED.name]))
            self._heal(seen, reading)
            if seen.step % SYSTEM_EVERY == 0:
                self._tell_system(seen.step)
        self._show(views[-1], readings[-1])
        if self.is_main:
            self._live_diagnosis.visit(self.state.counters.step)

    def _read(self, view: StepView, *, refused: bool) -> None:
        where = self._guard.judge(view, refused=refused)
        if self.state.counters.refused_in_row == 1:
            self.screen.say(f"Step {view.step}: the loss or gradient is not finite; the update was refused.")
        if where is not None:
            self._healer.despair(view.step, where)
            self._stop(f"non-finite: {where}", self._guard.stopped(view, where))

    def _stop(self, finding: str, error: Stopped) -> NoReturn:
        self._healer.enabled = False
        self._save(wait=True)
        self.folder.report(status="stopped", step=self.state.counters.step, last_finding=finding)
        raise error

    def _heal(self, view: StepView, reading: Mapping[str, float]) -> None:
        refused, overflow = bool(reading[REFUSED.name]), self._guard.overflowed
        self._healer.read(view.step, view.inputs, reading[LOSS.name], refused=refused, overflow=overflow)

    def _save_start(self) -> None:
        """What a run goes back to that falls ill before its first checkpoint."""
        self.state.counters.lowest_probe = self.group.broadcast(lambda: self.parts.fixed_set.losses(self.state)[0])
        self.state.counters.good_step = 0
        if self.is_main:
            attempt(
                "The first checkpoint",
                lambda: write(self.folder.checkpoints, self.state.snapshot(environment())),
                self.screen.say,
            )

    def _go_back(self, order: Rollback) -> None:
        """Nothing of the steps that are given up may be left: not in memory, on disk, or in the record."""
        self.writer.wait()
        self.profile_writer.wait()
        loaded = load_once(self.group, lambda: find_good(self.folder.checkpoints, self.state.counters.good_step))
        if loaded is None:
            self._stop(order.reason, order.without_checkpoint(self.config.optimizer.lr))
        self._is_whole = False  # rates are tried out on it
        act = self._healer.go_back(order, loaded)
        self._is_whole = True
        if self.is_main:
            give_up_future(self.folder.checkpoints, loaded.step)
            give_up_future(self.folder.snapshots, loaded.step)
            write(self.folder.checkpoints, self.state.snapshot(environment()))  # the same, with the act in its journal
        self.record.close()
        self.record.replace(*self._open_record(loaded.step))
        self._window, self._pool = [], Pool(self.record, by_clock=self.group.size == 1)
        self._saved = loaded.step
        self._examiner = Examiner(self.parts, self.record, self.screen.say, self.folder)  # forgets a best that is gone
        self._action_log.retell(loaded.step)
        if self.parts.stepper.inspection is not None:
            self.parts.stepper.inspection.forget()
        self.screen.say(act.told())

    def _pace(self) -> tuple[float, float]:
        """(images per second, seconds left)."""
        seconds, left = self._speed.seconds_per_step, self.config.train.steps - self.state.counters.step
        return self.config.train.batch_size / seconds, left * seconds

    def _tell_system(self, step: int) -> None:
        images_per_second, seconds_left = self._pace()
        told = {SPEED: images_per_second, DATA_WAIT: self._speed.share_waiting, TIME_LEFT: seconds_left}
        told[MEMORY] = self.parts.engine.memory()
        self.record.add(step, {signal.name: number for signal, number in told.items()})

    def _show(self, view: StepView, readings: Mapping[str, float]) -> None:
        images_per_second, seconds_left = self._pace()
        step = self.state.counters.step
        self.screen.show(
            Progress(
                step=step,
                steps=self.config.train.steps,
                loss=readings[LOSS.name],
                lr=view.lr,
                norm=readings[GRADIENT_NORM.name],
                images_per_second=images_per_second,
                seconds_left=seconds_left,
                refused=self.state.counters.refused,
            )
        )
        if time.monotonic() - self._beat > HEARTBEAT_SECONDS:
            self._beat = time.monotonic()
            self.folder.report(step=step)

    def _may_evaluate(self) -> bool:
        return self.group.broadcast(lambda: self._examiner.may_evaluate(*self._seconds()))

    def _draw_missed(self) -> None:
        """Another process may have been lost while all drew: the step was saved without its picture."""
        step = self.state.counters.step
        if step in self._stages | self._evaluations and self.group.broadcast(
            lambda: not self.folder.picture(step).is_file()
        ):
            self._draw(step in self._evaluations and self._may_evaluate())

    def _draw(self, evaluating: bool) -> None:
        """Samples by all processes, pictures and evaluation by the first; the others wait for its word."""
        drawn: list[Drawn] = []
        samples = self.config.evaluate.samples if evaluating else 0

        def draw() -> None:
            drawn.append(draw_stage(self.state, self.config, self.group, samples=samples))

        if self._sharded:
            draw()  # where it fails on one process the others wait inside a pass: only its end can wake them
        else:
            attempt("The picture", draw, self.screen.say)
        if drawn and self.is_main:
            attempt("The picture", lambda: self._paint(drawn[0]), self.screen.say)

        def evaluate() -> None:
            trained = self._seconds()[0]
            attempt("The evaluation", lambda: self._examiner.evaluate(drawn[0], trained=trained), self.screen.say)

        if self.group.broadcast(lambda: bool(drawn)) and evaluating:
            self._drain()  # a run that must stop stops here, and not inside what may fail
            if self._sharded:
                self._examiner.recall()
            self.group.broadcast(evaluate)
            if self.state.counters.step < self.config.train.steps:  # the best may be this one: it must be on disk
                self.writer.wait()
                self._save(wait=False)

    def _rescore(self) -> None:
        trained, total = self._seconds()
        samples, failed = None, None
        if self._sharded and (step := self.group.broadcast(lambda: self._examiner.rescored_step(total))) is not None:
            try:
                samples = self._examiner.draw_fresh(step)
            except CheckpointError as error:  # of which all processes know
                failed = error

        def rescore() -> None:
            if failed is not None:
                raise failed
            found = self._examiner.rescore(trained, total, samples)
            if found is not None:
                self.folder.report(evaluation=found)

        if self.is_main:
            attempt("The final evaluation", rescore, self.screen.say)

    def _seconds(self) -> tuple[float, float]:
        """(trained so far, of the whole training at the present speed)."""
        so_far = self._seconds_before + self._speed.seconds
        return so_far, so_far + (self.config.train.steps - self.state.counters.step) * self._speed.seconds_per_step

    def _paint(self, drawn: Drawn) -> None:
        step = self.state.counters.step
        paint_stage(drawn, self.config, self.folder, step)
        self.record.add(step, compare_weights(drawn))
        self.record.picture(step, "samples", self.folder.picture(step))
        for kind in BESIDE:
            self.record.picture(step, kind, self.folder.picture(step, kind))
        if self.record.has_loggers and not self._sharded:  # of weights that this process has only in part
            attempt("A histogram", self._send_histograms, self.screen.say)

    def _send_histograms(self) -> None:
        weights = [parameter for _, parameter in trained(self.state.model)]
        found = weight_histograms(self.state.monitors.parts, weights)
        self.record.histograms(self.state.counters.step, {f"weight/{name}": each for name, each in found.items()})

    def _keep_profiles(self) -> None:
        if not self.is_main and not self._sharded:
            return

        def is_kept() -> bool:
            return self.state.counters.step in steps_on_disk(self.folder.snapshots)

        if self.group.broadcast(is_kept) if self._sharded else is_kept():
            return  # written before a kill, with the same bytes
        self.profile_writer.wait()
        self.profile_writer.submit(snapshot_profiles(self.state, environment()), None)

    def _save(self, *, wait: bool) -> None:
        counters = self.state.counters
        self._drain()
        self.record.flush()  # the writer waits for it before the checkpoint is there
        if wait or self._healer.enabled:  # the checkpoint that a run goes back to must not depend on the disk's speed
            self.writer.wait()
        elif self.group.broadcast(lambda: self.writer.busy):
            self.record.event(counters.step, "checkpoint_skipped", reason="the one before is still being written")
            return
        known = self.group.broadcast(self._weigh, all_act=self._sharded)
        for name, value in known.items():
            setattr(counters, name, value)
        if self.is_main or self._sharded:
            self._submit()
        self._saved = counters.step
        if wait:
            self.writer.wait()

    def _submit(self) -> None:
        counters = self.state.counters
        best = counters.best_step if self.config.checkpoint.keep_best else None
        safe = counters.good_step if self._healer.enabled else None
        self.writer.wait()  # it is done; of divided weights the first one is, and the others follow at once
        self.writer.submit(self.state.snapshot(environment(), again=True), best, safe)

    def _save_alone(self, lost: ProcessLost) -> None:
        """Another process is gone. What this one has is the state after the last whole step, on which all agreed; of
        divided weights the part of the lost one is missing, and the last checkpoint has to do."""
        refused = any(bool(reading[REFUSED.name]) for reading in self._pool.flush())  # not judged yet, so not counted
        self.parts.stepper.put_back()
        if self.is_main:
            step = self.state.counters.step
            unsaved = step not in steps_on_disk(self.folder.checkpoints)
            if unsaved and self._is_whole and not refused and not self._sharded:
                self.writer.wait()
                self._weigh()
                self._submit()
                self.writer.wait()
            self.folder.report(status="interrupted", step=step, error=str(lost))
            note_failure(self.folder, step, str(lost))

    def _weigh(self) -> dict[str, Any]:
        """How good the weights are: asked of the first process only, and known to all by what it returns."""
        counters = self.state.counters
        samples, others = self.parts.fixed_set.samples(self.state)
        raw, averaged = float(samples.mean()), float(others.mean())
        self._mark_good(raw)
        self.record.add(counters.step - 1, {PROBE_RAW.name: raw, PROBE_EMA.name: averaged})
        if self.parts.held_out_set is not None:
            held, others = self.parts.held_out_set.samples(self.state)
            averaged, apart = float(others.mean()), gap(samples, held, self.parts.held_out_set.ids)
            told = {HELD_RAW.name: float(held.mean()), HELD_EMA.name: averaged}
            self.record.add(counters.step - 1, told if apart is None else told | {HELD_GAP.name: apart})
        if averaged < counters.best_loss:  # of held-out images, where there are some
            counters.best_loss = averaged
            counters.best_step = counters.best_step if counters.best_evaluated else counters.step
        counters.seconds = self._seconds_before + self._speed.seconds
        return {name: getattr(counters, name) for name in Counters.__slots__}

    def _mark_good(self, probe: float) -> None:
        """Only at steps that are planned: where a signal happened to save must not decide what a run goes back to."""
        counters = self.state.counters
        counters.lowest_probe = min(counters.lowest_probe, probe) if math.isfinite(probe) else counters.lowest_probe
        if counters.step % checkpoint_interval(self.config) == 0 and is_good(probe, counters.lowest_probe):
            counters.good_step = counters.step

    def _finish(self) -> None:
        if self.group.broadcast(lambda: self.state.counters.step not in steps_on_disk(self.folder.checkpoints)):
            self._save(wait=True)
        if not self.is_main:
            return
        attempt("The timelapse", self._draw_timelapse, self.screen.say)
        step = self.state.counters.step
        if step not in steps_on_disk(self.folder.checkpoints):
            self.folder.report(status="unsaved", step=step)
            raise CheckpointError(
                f"Training reached step {step}, but it could not be saved. Free space in {self.folder.checkpoints} and "
                f"carry on from the last checkpoint that was: safelight resume {self.folder.path}"
            )

    def _draw_timelapse(self) -> None:
        path = draw_timelapse(self.folder)
        if path is not None:
            self.record.picture(self.state.counters.step, "timelapse", path)

    def _leave(self, number: int) -> None:
        self._finish()
        step = self.state.counters.step
        self.folder.report(status="interrupted", step=step)
        raise Interrupted(
            f"Stopped by {Signals(number).name} after step {step} of {self.config.train.steps}; everything is saved. "
            f"Carry on with: safelight resume {self.folder.path}",
            exit_code=exit_code_of(number),
        )
