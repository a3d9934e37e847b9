"""Checkpoints and EMA snapshots of a run: when they are due, how good the weights are, and the way back to one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from safelight.checkpoints.coordinator import SaveCoordinator
from safelight.checkpoints.ema_profiles import snapshot_steps
from safelight.checkpoints.folder import KEEP_ALL, discard_after, steps
from safelight.checkpoints.loading import load_once
from safelight.checkpoints.reader import find_good
from safelight.checkpoints.room import Room, shortage
from safelight.checkpoints.snapshot import Loaded
from safelight.checkpoints.writer import PartWriter, Writer, write
from safelight.config import Config
from safelight.config.epochs import every_in_steps
from safelight.errors import CheckpointError, ProcessLost
from safelight.healing.alarms import is_good
from safelight.processes.group import ProcessGroup
from safelight.processes.interrupts import seconds_of_grace
from safelight.processes.restarts import note_failure
from safelight.training.recovery import RunHealing
from safelight.training.step_reporter import StepReporter, TrainingSession
from safelight.vocabulary import (
    EMA_GAIN,
    FIXED_SET_LOSS_EMA,
    FIXED_SET_LOSS_RAW,
    HELD_OUT_GAP,
    HELD_OUT_LOSS_EMA,
    HELD_OUT_LOSS_RAW,
    SKILL_EMA,
)
from safelight.yardstick.held_out import gap

CHECKPOINT_FILES = 10  # inodes of a checkpoint


def checkpoint_interval(config: Config) -> int:
    return every_in_steps(config.checkpoint.every) or max(1, min(1000, config.train.steps // 20))


class Saving:
    """Called by all processes; the first one writes, or all of them where weights are divided."""

    def __init__(self, session: TrainingSession, reader: StepReporter, healing: RunHealing) -> None:
        setup, folder = session.setup, session.folder
        self._session, self._setup, self._reader, self._healing = session, setup, reader, healing
        self._config, self._state, self._group = setup.config, setup.state, setup.group
        self._record, self._folder = session.record, folder
        keep = self._config.checkpoint
        self._writer = self._open_writer(folder.checkpoints, last=keep.keep_last, every=keep.keep_every)
        self._profile_writer = self._open_writer(folder.snapshots, last=KEEP_ALL, every=0, leaving=self._next_room)
        self._snapshots = set(snapshot_steps(self._config.ema.snapshots, self._config.train.steps))
        self._warned = False  # that a save takes longer than a stop signal allows
        self._saved = 0  # the last step that the writer was given

    def _next_room(self) -> Room:
        """What the next checkpoint takes: it comes before snapshots and pictures. Model, EMA, two moments, profiles."""
        # What this process holds: whole tensors of sharded weights take all processes, and this is asked of one.
        held = sum(parameter.nbytes for _, parameter in self._state.weights.named_parameters)
        weights = held if self._state.weights.shard is None else held * self._group.size
        return Room(weights * (4 + len(self._state.ema.shadows)), CHECKPOINT_FILES)

    def refuse_without_room(self) -> None:
        """For what may be left out, such as a picture."""
        words = shortage(self._folder.path, self._next_room(), self._folder.disk)
        if words is not None:
            raise CheckpointError(f"{words} by the next checkpoint, which comes first")

    def _open_writer(self, folder: Path, *, last: int, every: int, leaving: Callable[[], Room] | None = None) -> Writer:
        # A resume cuts the record at its checkpoint, so all that comes before has to be on disk first.
        written, say = self._record.wait_until_written, self._session.screen.say
        coordinator = SaveCoordinator(self._group, folder.name) if self._setup.is_sharded else None
        if self._group.is_main or coordinator is None:
            return Writer(
                folder,
                last=last,
                every=every,
                say=say,
                disk=self._folder.disk,
                before_commit=written,
                coordinator=coordinator,
                leaving=leaving,
            )
        return PartWriter(folder, coordinator, self._folder.disk)

    @property
    def _step(self) -> int:
        return self._session.step

    @property
    def _writes(self) -> bool:
        return self._group.is_main or self._setup.is_sharded

    def begin(self) -> None:
        self.save_ema_profiles_if_due()  # a kill may have come between the checkpoint and the snapshot of one step
        if self._healing.healer.enabled and self._step == 0:
            self._save_start()

    def _save_start(self) -> None:
        """What a run goes back to that diverges before its first checkpoint."""
        self._state.counters.lowest_fixed_set_loss = self._healing.fixed_set_loss()
        self._state.counters.good_step = 0
        if self._group.is_main:
            self._session.attempt("The first checkpoint", self._write_now)

    def _write_now(self) -> None:
        write(self._folder.checkpoints, self._state.snapshot(), disk=self._folder.disk)

    def poll(self) -> None:
        """Reports what happened in the background."""
        self._writer.poll()
        self._warn_of_grace()
        self._profile_writer.poll()

    def _warn_of_grace(self) -> None:
        """Once, as soon as it is known how long a save takes."""
        grace = seconds_of_grace(self._config.train.grace)
        if self._writer.seconds <= grace or self._warned:
            return
        self._warned = True
        self._session.screen.say(
            f"A checkpoint took {self.seconds:.0f} s to save, and {grace:.0f} s are left after a stop signal: the "
            "steps since the last checkpoint would be trained again. Allow more time, and set train.grace to it; for "
            "torchrun, set TORCH_ELASTIC_SHUTDOWN_TIMEOUT, which is seen here too."
        )

    def save_ema_profiles_if_due(self) -> None:
        """Saves the EMA profiles if this step is one of theirs."""
        if self._step not in self._snapshots or not self._writes:
            return

        def is_saved() -> bool:
            return self._step in steps(self._folder.snapshots)

        if self._group.broadcast(is_saved) if self._setup.is_sharded else is_saved():
            return  # written before a kill, with the same bytes
        self._profile_writer.wait()
        self._profile_writer.submit(self._state.snapshot_profiles(), None)

    def save_if_due(self) -> None:
        due = self._step % checkpoint_interval(self._config) == 0 and self._saved != self._step
        if due and self._step < self._config.train.steps:
            self.save()

    def save(self, *, wait: bool = False, measured: bool = True) -> None:
        """`measured`: with the losses of the fixed set, which take a while."""
        self._folder.check()
        self._reader.read()
        self._record.flush()  # the writer waits for it before it commits the checkpoint
        patient = self._config.train.patience is not None
        # Where a run goes back to, and where patience ends it, must not depend on the disk's speed.
        if wait or self._healing.healer.enabled or patient:
            self._writer.wait()
        elif self._group.broadcast(lambda: self._writer.busy):
            self._record.event(self._step, "checkpoint_skipped", reason="the one before is still being written")
            return
        losses = self._measure_losses(self._group) if measured else []
        for name, value in self._group.broadcast(lambda: self._rate_weights(losses)).items():
            setattr(self._state.counters, name, value)
        if self._writes:
            self._submit()
        self._saved = self._step
        if wait:
            self._writer.wait()

    def save_best(self) -> None:
        """After an evaluation: the best may be this one, and it must be on disk."""
        if self._step < self._config.train.steps:
            self._writer.wait()
            self.save()

    def _submit(self) -> None:
        counters = self._state.counters
        best = counters.best_step if self._config.checkpoint.keep_best else None
        safe = counters.good_step if self._healing.healer.enabled else None
        self._writer.wait()  # done already; of divided weights by the first process, and the others follow at once
        self._writer.submit(self._state.snapshot(reuse_buffer=True), best, safe)
        self._folder.update_status(best_step=counters.best_step)

    def _measure_losses(self, group: ProcessGroup) -> list[tuple[Tensor, Tensor]]:
        """(raw, EMA) of the fixed set, and of held-out images where there are some: by all processes of the group."""
        sets = self._setup.fixed_set, self._setup.held_out_set
        return [each.losses(self._state, group) for each in sets if each is not None]

    def _rate_weights(self, losses: Sequence[tuple[Tensor, Tensor]]) -> dict[str, Any]:
        """How good the weights are: by the first process, and broadcast to all as counters."""
        setup, counters = self._setup, self._state.counters
        counters.seconds = self._session.speed.trained
        if not losses:  # not measured
            return asdict(counters)
        raw, ema = losses[0]
        skills = setup.fixed_set.skills(raw, ema)
        self._mark_good(float(raw.mean()))
        numbers = {FIXED_SET_LOSS_RAW: float(raw.mean()), FIXED_SET_LOSS_EMA: float(ema.mean())}
        if (gain := gap(ema, raw, setup.fixed_set.ids)) is not None:
            numbers[EMA_GAIN] = gain
        if setup.held_out_set is not None:
            held, ema = losses[1]
            skills |= setup.held_out_set.skills(held, ema)
            numbers |= {HELD_OUT_LOSS_RAW: float(held.mean()), HELD_OUT_LOSS_EMA: float(ema.mean())}
            if (apart := gap(raw, held, setup.held_out_set.ids)) is not None:
                numbers[HELD_OUT_GAP] = apart
        self._record.add(counters.step - 1, {signal.name: number for signal, number in numbers.items()} | skills)
        if (loss := float(ema.mean())) < counters.best_loss:  # of held-out images, where there are some
            counters.best_loss = loss
            counters.best_step = counters.best_step if counters.best_evaluated else counters.step
        self._mark_planned(loss)
        self._reader.skill = skills.get(SKILL_EMA.name)
        return asdict(counters)

    def _mark_planned(self, loss: float) -> None:
        """Only at planned steps: where a signal happened to save must not decide when patience ends the run."""
        counters = self._state.counters
        if loss < counters.planned_loss and counters.step % checkpoint_interval(self._config) == 0:
            counters.planned_loss, counters.planned_step = loss, counters.step

    def patience_is_over(self) -> bool:
        """At a checkpoint that is saved; the same on all processes, whose counters are those of the first."""
        patience, interval = self._config.train.patience, checkpoint_interval(self._config)
        lowest = self._state.counters.planned_step
        if patience is None or lowest is None or self._step % interval:
            return False
        return self._step - lowest >= patience * interval

    def report_patience(self) -> None:
        """Why the run ended before its last step, and how it continues."""
        lowest, patience = self._state.counters.planned_step, self._config.train.patience
        which = "fixed set" if self._setup.held_out_set is None else "held-out images"
        self._record.event(self._step, "patience", lowest=lowest, checkpoints=patience)
        self._session.screen.say(
            f"Ended at step {self._step} of {self._config.train.steps}: the loss on the {which} was never lower than "
            f"at step {lowest}, {patience} checkpoints ago (train.patience). Continue with: safelight resume "
            f"{self._folder.path} --set train.patience=none"
        )

    def _mark_good(self, loss: float) -> None:
        """Only at planned steps: where a signal happened to save must not decide what a run goes back to."""
        counters = self._state.counters
        if math.isfinite(loss):
            counters.lowest_fixed_set_loss = min(counters.lowest_fixed_set_loss, loss)
        if counters.step % checkpoint_interval(self._config) == 0 and is_good(loss, counters.lowest_fixed_set_loss):
            counters.good_step = counters.step

    def find_good(self) -> Loaded | None:
        """The checkpoint to go back to, on all processes."""
        self._writer.wait()
        self._profile_writer.wait()
        folder, newest = self._folder, self._state.counters.good_step
        return load_once(self._group, lambda: find_good(folder.checkpoints, newest, folder.disk))

    def restart(self, step: int) -> None:
        """Removes what was saved after a step that the run went back to."""
        if self._group.is_main:
            for saved in (self._folder.checkpoints, self._folder.snapshots):
                discard_after(saved, step, self._folder.disk)
            self._write_now()  # the same checkpoint, with the act in its journal
        self._saved = step

    def save_alone(self, lost: ProcessLost) -> None:
        """Another process is gone. This one has the state after the last whole step, which all agreed on; of divided
        weights the part of the lost process is missing, and the last checkpoint has to be enough."""
        refused = self._reader.discard()
        self._setup.stepper.discard_pass()
        if self._group.is_main:
            unsaved = self._step not in steps(self._folder.checkpoints)
            if unsaved and not self._healing.is_trying and not refused and not self._setup.is_sharded:
                self._writer.wait()
                self._rate_weights(self._measure_losses(ProcessGroup()))
                self._submit()
                self._writer.wait()
            self._folder.update_status(status="interrupted", step=self._step, error=str(lost))
            note_failure(self._folder, self._step, str(lost))

    def finish(self) -> None:
        self._writer.wait()  # it may be this very step that is being written
        if self._group.broadcast(lambda: self._step not in steps(self._folder.checkpoints)):
            self.save(wait=True)

    def finish_until(self, killed_at: float) -> None:
        """As `finish`, before this process is killed: how good the weights are is not measured, and a save that would
        not end in time is not begun."""
        self._writer.wait()
        begin = self._group.broadcast(
            lambda: self.newest != self._step and time.monotonic() + self._writer.seconds <= killed_at
        )
        if begin:
            self.save(wait=True, measured=False)

    @property
    def newest(self) -> int | None:
        """The newest checkpoint."""
        return max(steps(self._folder.checkpoints), default=None)

    @property
    def seconds(self) -> float:
        """That the last save took."""
        return self._writer.seconds

    def check_finished(self) -> None:
        if self._group.is_main and self._step not in steps(self._folder.checkpoints):
            self._folder.update_status(status="unsaved", step=self._step)
            raise CheckpointError(
                f"Training reached step {self._step}, but it could not be saved. Free space in "
                f"{self._folder.checkpoints} and continue from the last checkpoint that was: "
                f"safelight resume {self._folder.path}"
            )

    def close(self) -> None:
        self._writer.wait()
        self._profile_writer.wait()
