"""Runs the steps and calls everything that happens between them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from signal import Signals

from safelight.config.resolve import to_dict
from safelight.errors import Interrupted, ProcessLost, RunFolderLost, RunTaken, Stopped
from safelight.healing.healer import Rollback
from safelight.model.memory import is_out_of_memory
from safelight.observing.live_diagnosis import LiveDiagnosis
from safelight.observing.observer import Observer
from safelight.observing.recorder import Recorder, open_record
from safelight.observing.speed import Speedometer
from safelight.probes.probe_runner import ProbeRunner
from safelight.processes.interrupts import Interrupts, exit_code_of
from safelight.record.sinks.logger_threads import LoggerThreads
from safelight.record.store import RecordWriter
from safelight.run import RunFolder
from safelight.training.build import Setup, out_of_memory
from safelight.training.pictures import PicturesAndEvaluations
from safelight.training.recovery import RunHealing
from safelight.training.saving import Saving
from safelight.training.step_reporter import Screen, StepReporter, TrainingSession


class Trainer:
    """Trains from the step of the state to the last one."""

    def __init__(
        self, setup: Setup, folder: RunFolder, screen: Screen, probe_runner: ProbeRunner | None = None
    ) -> None:
        self.setup, self.folder, self.screen = setup, folder, screen
        self.config, self.state = setup.config, setup.state
        elapsed = folder.status().get("seconds", self.state.counters.seconds)
        self._speed = Speedometer(self.state.counters.seconds, elapsed if isinstance(elapsed, float) else 0.0)
        self.record = Recorder(*self._open_record())
        session = TrainingSession(setup, folder, self.record, self._speed, screen)
        self._healing = RunHealing(session)
        self._healer = healer = self._healing.healer
        diagnosis = LiveDiagnosis(folder, self.record, screen.say)
        flush_by_time = setup.group.size == 1
        self._observer = Observer(
            self.record, self.state.monitors, probe_runner, diagnosis, flush_by_time=flush_by_time
        )
        self._reader = StepReporter(session, self._observer, healer)
        self._saving = Saving(session, self._reader, self._healing)
        self._pictures = PicturesAndEvaluations(session, self._reader, self._saving)
        self._on_gradients = healer.check_gradients if healer.enabled else None

    def _open_record(self) -> tuple[RecordWriter, LoggerThreads | None]:
        """From the present step on; what was recorded of it and later ones is removed."""
        step, is_main = self.state.counters.step, self.setup.group.is_main
        loggers, config = self.config.log.to, to_dict(self.config)
        return open_record(self.folder, step, self.screen.say, loggers=loggers, config=config, silent=not is_main)

    def run(self) -> None:
        """Trains to the last step, to a signal or to a diagnosis. Whatever happens, the state is saved."""
        setup, state, group, steps = self.setup, self.state, self.setup.group, self.config.train.steps
        with self._closing(), Interrupts() as interrupts, self._saving_last():
            self.folder.update_status(status="training", step=state.counters.step, steps=steps)
            self._saving.begin()
            self._pictures.begin()
            while True:
                try:
                    if (step := state.counters.step) >= steps or self._saving.patience_is_over():
                        self._pictures.draw_last()
                        self._finish()
                        break
                    step_settings = self._healer.prepare(step)
                    with group.expecting_progress(), self._speed.waiting():
                        inputs = setup.loader.load(step, step_settings)
                        inputs = [micro.moved(setup.runtime.to_device) for micro in inputs]
                    view = None
                    with group.expecting_progress(), self._speed.working():
                        try:
                            view = setup.stepper.step(
                                inputs, step, step_settings, self._observer, self._on_gradients, interrupts.os_signal
                            )
                        except (RuntimeError, MemoryError) as error:
                            if not self._healer.may_split(error):
                                raise
                    if view is None:  # outside the handler: the traceback would keep the failed pass alive
                        self._healer.split(step)
                        continue
                    state.counters.step += 1
                    state.counters.epoch = setup.batches.epoch(state.counters.step)
                    self._reader.add(view)
                    self._saving.poll()
                    self._pictures.draw_if_due()
                    self._saving.save_ema_profiles_if_due()
                    if number := interrupts.os_signal if group.size == 1 else self._reader.os_signal:
                        self._leave(number, interrupts.kill_moment(number, self.config.train.grace))
                    self._saving.save_if_due()
                except Rollback as rollback:
                    self._go_back(rollback)
            self._pictures.final_evaluation()
            self._reader.diagnose(at_last=True)
            self.folder.update_status(status="finished", step=state.counters.step)
            if state.counters.step < steps:
                self._saving.report_patience()

    def _go_back(self, rollback: Rollback) -> None:
        """Removes every trace of the discarded steps: in memory, on disk and in the record."""
        loaded = self._saving.find_good()
        if loaded is None:
            raise rollback.without_checkpoint(self.config.optimizer.lr)
        act = self._healing.go_back(rollback, loaded)
        self._saving.restart(loaded.step)
        self.record.close()
        self.record.replace(*self._open_record())
        self._reader.restart()
        self._pictures.restart()
        self._healing.restart(loaded.step)
        self.screen.say(act.describe())

    def _finish(self) -> None:
        self.folder.check()
        self._saving.finish()
        self._pictures.finish()
        self._saving.check_finished()

    def _leave(self, number: int, killed_at: float) -> None:
        """`killed_at`: what can wait is left out, and so is a save that would not end in time."""
        if math.isinf(killed_at):
            self._finish()
        else:
            self.folder.check()
            self._saving.finish_until(killed_at)
        step, saved = self.state.counters.step, self.setup.group.broadcast(lambda: self._saving.newest)
        self.folder.update_status(status="interrupted", step=step if saved is None else saved)
        kept = "everything is saved"
        if saved != step:
            kept = (
                f"a checkpoint takes {self._saving.seconds:.0f} s, and less was left (train.grace): "
                f"{'nothing' if saved is None else f'step {saved}'} is saved"
            )
        raise Interrupted(
            f"Stopped by {Signals(number).name} after step {step} of {self.config.train.steps}; {kept}. "
            f"Continue with: safelight resume {self.folder.path}",
            exit_code=exit_code_of(number),
        )

    @contextmanager
    def _saving_last(self) -> Iterator[None]:
        """Saves a run that a diagnosis stops, and one that lost a process, before the launcher ends this one too."""
        try:
            try:
                yield
            except Stopped as stopped:
                self._healer.enabled = False
                self._saving.save(wait=True)
                step = self.state.counters.step
                self.folder.update_status(status="stopped", step=step, last_finding=stopped.finding)
                raise
        except ProcessLost as lost:
            self._saving.save_alone(lost)
            raise

    @contextmanager
    def _closing(self) -> Iterator[None]:
        interrupted = taken = False
        try:
            yield
        except Interrupted:
            interrupted = True
            raise
        except (RunTaken, RunFolderLost):
            taken = True
            raise
        except RuntimeError as error:
            if is_out_of_memory(error):
                self.folder.update_status(status="out of memory", step=self.state.counters.step)
                raise out_of_memory(self.config) from error
            raise
        finally:
            self.setup.loader.close()
            self._saving.close()
            if taken:
                self.record.abandon()
            else:
                self.record.close(interrupted=interrupted)
                self.folder.update_status(
                    seconds=self._speed.elapsed,
                    epoch=self.state.counters.epoch,
                    restorations=self.record.restorations,
                )
