"""Healing in the loop: what the healer may do with the run, and where its acts are reported."""

from __future__ import annotations

import math

from torch import Tensor

from safelight.checkpoints.snapshot import Loaded
from safelight.checkpoints.writer import write
from safelight.config.tree import Optimizer
from safelight.errors import UsageError
from safelight.healing.healer import Healer, Rollback
from safelight.healing.journal import Act
from safelight.healing.step_settings import StepSettings, configured_precision
from safelight.run import RunFolder
from safelight.training.build import Setup
from safelight.training.optimizer import warmup_steps
from safelight.training.scaling import LossScale
from safelight.training.step_reporter import TrainingSession


class RunHealing:
    """The run as the healer acts on it: see `healing.healer.HealableRun`. The journal itself is in the checkpoints."""

    def __init__(self, session: TrainingSession) -> None:
        setup = session.setup
        self._session, self._setup, self._state, self._folder = session, setup, setup.state, session.folder
        self.device, self.group = setup.runtime.device, setup.group
        self.zero_level, self.inputs = setup.fixed_set.zero_level, setup.inputs
        self.is_finite, self.discard_pass = setup.stepper.is_finite, setup.stepper.discard_pass
        self.is_trying = False  # whether the state is that of a trial, and not of a whole number of steps
        self.healer = Healer(setup.config, setup.state, self, self._report)
        self.restart(setup.state.counters.step)

    def go_back(self, rollback: Rollback, loaded: Loaded) -> Act:
        self.is_trying = True
        act = self.healer.go_back(rollback, loaded)
        self.is_trying = False
        return act

    def restart(self, step: int) -> None:
        """The record was cut at a step that is trained again; the acts after it still hold."""
        acts = self._state.journal.acts
        for act in acts:
            if act.step >= step:
                self._record_act(act)
        if acts or "journal" in self._folder.status():
            self._folder.update_status(journal=self._state.journal.to_json())

    def _report(self, act: Act) -> None:
        self._record_act(act)
        self._session.screen.say(act.describe())
        self._folder.update_status(journal=self._state.journal.to_json())

    def _record_act(self, act: Act) -> None:
        facts = {"number": act.number, "act": act.kind, "since": act.since, "undone": act.undone}
        self._session.record.event(act.step, "healed", **facts, reason=act.reason, **act.facts)

    # --- what the healer may do -----------------------------------------------------------------------------------

    def warmup_steps(self, settings: Optimizer) -> int:
        return warmup_steps(settings, self._setup.config.train.steps)

    def fixed_set_loss(self) -> float:
        return float(self._setup.fixed_set.raw_losses(self._state, self.group).mean())

    def is_overflow(self, loss: Tensor) -> bool:
        return self._state.loss_scale.is_overflow(loss)

    def restore(self, loaded: Loaded) -> None:
        journal, spent = self._state.journal, self._state.counters.evaluation_seconds
        self._state.optimizer.zero_grad(set_to_none=True)
        self._state.restore(loaded)
        self._state.journal, self._state.counters.evaluation_seconds = journal, spent

    def loss_after(self, loaded: Loaded, step_settings: StepSettings, updates: int) -> float:
        loss = math.inf
        for step in range(loaded.step, min(loaded.step + updates, self._setup.config.train.steps)):
            view = self._setup.stepper.step(self.inputs(step, step_settings), step, step_settings)
            if bool(view.refused) and not self._state.loss_scale.active:
                break
        else:
            loss = self.fixed_set_loss()
        self.restore(loaded)
        return loss


def undo(setup: Setup, folder: RunFolder, number: int) -> Act:
    """Drops the effect of an act from the next step on, at once on disk: a kill must not bring it back."""
    state = setup.state
    if setup.is_sharded:
        raise UsageError("--undo rewrites a checkpoint, which no process has whole. Add --set train.weights=whole.")
    act = state.journal.undo(number, state.counters.step)
    if act.kind == "change-precision":  # the search for a scale begins anew
        state.loss_scale = LossScale(configured_precision(setup.config), setup.runtime.device)
    if setup.group.is_main:
        save_again(setup, folder)
    return act


def save_again(setup: Setup, folder: RunFolder) -> None:
    """The checkpoint of this step, with what was accepted at the resume written down in it."""
    write(folder.checkpoints, setup.state.snapshot(), disk=folder.disk)
