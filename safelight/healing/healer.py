"""The only component that intervenes in a running run: it makes the steps as the journal says, and records there
what it does."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from safelight.checkpoints.snapshot import Loaded
from safelight.config import Config
from safelight.config.tree import Optimizer
from safelight.diffusion.micro_batch import MicroBatch
from safelight.errors import Stopped
from safelight.healing.alarms import DivergenceDetector, is_lost
from safelight.healing.journal import Act, Journal, Kind
from safelight.healing.rates import choose_cut, longer_warmup, try_rates
from safelight.healing.replays import Replays
from safelight.healing.step_settings import StepSettings, effective_settings, next_micro_batches
from safelight.model.memory import is_out_of_memory
from safelight.processes.group import ProcessGroup

MAX_BAD_SHARE = 0.5  # share of a step's samples; where more are bad alone, it is not the samples


@dataclass(eq=False)
class Rollback(Exception):
    """Raised to make the loop go back to a good checkpoint: what came after it is given up."""

    kind: Kind
    step: int
    reason: str
    facts: dict[str, Any] = field(default_factory=dict)

    def without_checkpoint(self, lr: float) -> Stopped:
        return Stopped(
            f"Stopped at step {self.step}: {self.reason}, and there is no good checkpoint to go back to. The usual "
            f"fixes: a lower --lr (now {lr:g}), a longer optimizer.warmup.",
            finding=self.reason,
        )


class HealedCounters(Protocol):
    """The numbers of a run that acts depend on."""

    step: int
    refused_in_row: int
    lowest_fixed_set_loss: float


class HealedState(Protocol):
    """What changes while training, as far as healing needs it."""

    model: nn.Module
    journal: Journal
    watch: DivergenceDetector

    @property
    def counters(self) -> HealedCounters: ...


class HealableRun(Protocol):
    """What the healer may do with a run."""

    device: torch.device
    group: ProcessGroup

    # The loss of a model that always predicts zero, and that of the raw weights, on the fixed set.
    def zero_level(self) -> float: ...
    def fixed_set_loss(self) -> float: ...

    def inputs(self, step: int, step_settings: StepSettings) -> Sequence[MicroBatch]: ...

    # Whether the loss and gradient of one sample alone are finite.
    def is_finite(self, row: MicroBatch, step: int, step_settings: StepSettings) -> bool: ...

    # Whether a refused update only means that the loss scale is too large.
    def is_overflow(self, loss: Tensor) -> bool: ...

    # Drops the gradients of a pass and restores the buffers that it moved.
    def discard_pass(self) -> None: ...

    # The state of a checkpoint; the journal stays.
    def restore(self, loaded: Loaded) -> None: ...

    # The loss of the fixed set after some updates; the checkpoint is restored afterwards.
    def loss_after(self, loaded: Loaded, step_settings: StepSettings, updates: int) -> float: ...

    def warmup_steps(self, settings: Optimizer) -> int: ...


class Healer:
    """Without `heal.enabled` it takes no new action; actions that the journal of the run has still apply."""

    def __init__(self, config: Config, state: HealedState, run: HealableRun, report: Callable[[Act], None]) -> None:
        self._config, self._state, self._run, self._report = config, state, run, report
        self.enabled = config.heal.enabled
        # A check before the update is free where nothing has to be waited for. All processes see the same.
        self._checks_before = self.enabled and run.device.type == "cpu"
        self._in_train_mode = [module for module in state.model.modules() if module.training]
        self._zero = run.zero_level() if self.enabled else math.nan
        self._replays = Replays()
        self.step_settings = self._settings(state.counters.step)  # of the step that is being made
        self._touched = False  # whether the update of this step may have begun
        self._repeated = False  # whether the step was repeated in train mode

    def prepare(self, step: int) -> StepSettings:
        """How the next step is made: as the journal says."""
        self.step_settings = step_settings = self._settings(step)
        if self.enabled or step_settings.keeps_train_mode:
            self._keep_train_mode(step)
        self._replays.begin()
        self._touched = self._repeated = False
        return step_settings

    def _settings(self, step: int) -> StepSettings:
        return effective_settings(self._config, self._state.journal.acts, step)

    def _keep_train_mode(self, step: int) -> bool:
        """Whether a module had to be returned to train mode; the first time is an act, which holds from then on."""
        off = [module for module in self._in_train_mode if not module.training]
        if off and not self._settings(step).keeps_train_mode:
            reason = f"{len(off)} modules of the model were in evaluation mode; they are kept in train mode from here"
            self._act("restore-mode", step, reason, {"modules": len(off)})
        for module in off:
            module.training = True
        return bool(off)

    def check_gradients(
        self, step: int, inputs: Sequence[MicroBatch], loss: Tensor, norm: Tensor, refused: Tensor
    ) -> Sequence[MicroBatch] | None:
        """Inside a step, before anything is touched: None to continue, or the inputs to repeat the step with."""
        again = self._inputs_again(step, inputs, loss, norm, refused)
        self._touched = again is None
        return again

    def _inputs_again(
        self, step: int, inputs: Sequence[MicroBatch], loss: Tensor, norm: Tensor, refused: Tensor
    ) -> Sequence[MicroBatch] | None:
        if self._keep_train_mode(step) and not self._repeated:
            self._repeated = True  # once: a model that leaves train mode in every pass would repeat without end
            return inputs
        if not self._checks_before:
            return None
        mean, size, finite = float(loss.mean()), float(norm), not bool(refused)
        if not finite and self._run.is_overflow(loss):
            return None
        verdict = self._replays.judge(mean, size, finite=finite)
        if verdict == "again":
            return inputs
        if verdict == "isolate" and self._quarantine(step, inputs, since=step):
            self._replays.begin()
            self.step_settings = self._settings(step)
            return self._run.inputs(step, self.step_settings)
        if verdict == "redone":
            facts = self._replays.facts()
            reason = "loss {loss:.4g} and gradient norm {norm:.4g} did not come out again (now {loss_again:.4g} and "
            reason += "{norm_again:.4g}): an error of the machine; the step was redone"
            self._act("redo", step, reason.format(**facts), facts)
        self._replays.remember(mean, size)
        self._check_divergence(step, mean)
        return None

    def _quarantine(self, step: int, inputs: Sequence[MicroBatch], *, since: int) -> bool:
        """Whether some samples are the cause. If not, it is the weights: a divergence, if it continues."""
        self._run.discard_pass()
        samples = find_bad_samples(
            inputs, lambda row: self._run.is_finite(row, step, self.step_settings), self._run.group
        )
        if not samples:
            return False
        names = ", ".join(map(str, samples[:8])) + (" …" if len(samples) > 8 else "")
        one = len(samples) == 1
        reason = f"the loss or gradient of sample{'' if one else 's'} {names} alone is not finite; "
        reason += f"{'it is' if one else 'they are'} not drawn again"
        self._act("quarantine", step, reason, {"samples": samples}, since=since)
        return True

    def _check_divergence(self, step: int, loss: float) -> None:
        if not self._state.watch.add_loss(loss, self._zero):
            return
        loss, lowest = self._run.fixed_set_loss(), self._state.counters.lowest_fixed_set_loss
        if is_lost(loss, lowest, self._zero):
            facts = {"probe": loss, "lowest_probe": lowest, "zero_level": self._zero}
            reason = f"diverged: the loss on the fixed set is {loss:.4g}, it was {lowest:.4g}"
            raise Rollback("lower-rate", step, reason, facts)

    def read(self, step: int, inputs: Sequence[MicroBatch], loss: float, *, refused: bool, overflow: bool) -> None:
        """After a step was brought to the host; an update that was not checked before is checked now."""
        if not self.enabled:
            return
        if overflow and self._state.watch.add_overflow(step):
            on_cuda = self._run.device.type == "cuda"
            to = "bf16" if not on_cuda or torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
            reason = f"{len(self._state.watch.overflows)} of the last steps overflowed in fp16; {to} from here"
            raise Rollback("change-precision", step, reason, {"to": to})
        if self._checks_before or overflow:
            return
        if refused:
            self._quarantine(step, inputs, since=self._state.counters.step)
        else:
            self._check_divergence(step, loss)

    def roll_back_diverged(self, step: int, where: str) -> None:
        """Too many refused updates in a row, and no sample is the cause: the weights have diverged."""
        if self.enabled:
            row = self._state.counters.refused_in_row
            reason = f"diverged: {row} updates in a row were not finite, beginning in {where}"
            raise Rollback("lower-rate", step, reason, {"first_nonfinite": where})

    def go_back(self, rollback: Rollback, loaded: Loaded) -> Act:
        """Restores a good checkpoint and keeps the journal; the act is reported once the record is cut."""
        self._check_budget(rollback.step, rollback.reason)
        self._run.restore(loaded)
        facts, reason = rollback.facts, rollback.reason
        if rollback.kind == "lower-rate":
            facts = facts | self._lower_rate(rollback.step, loaded)
            reason += f"; the learning rate is multiplied by {facts['factor']:g}"
            reason += f" and the warmup takes {facts['warmup']:,} steps" if facts["warmup"] is not None else ""
        reason += f", and the run goes back to step {loaded.step:,}"
        self._replays = Replays()
        return self._state.journal.write(
            rollback.kind, step=rollback.step, since=loaded.step, reason=reason, facts=facts
        )

    def _lower_rate(self, step: int, loaded: Loaded) -> dict[str, Any]:
        step_settings, steps = self._settings(loaded.step), self._config.train.steps

        def loss_after(optimizer: Optimizer, updates: int) -> float:
            return self._run.loss_after(loaded, replace(step_settings, optimizer=optimizer), updates)

        tried = try_rates(step_settings.optimizer, loss_after)
        return {
            "factor": choose_cut(tried),
            "warmup": longer_warmup(self._run.warmup_steps(step_settings.optimizer), step, steps),
            "tried": {f"{factor:g}": loss for factor, loss in tried.items()},
        }

    def may_split(self, error: BaseException) -> bool:
        """Whether smaller micro-batches could help: a step that ran out of memory before its update began."""
        if self._run.group.size > 1 or self._config.train.shards is not None:
            return False  # the other processes are in the middle of the step; an exact part cannot be cut
        if not self.enabled or self._touched or not is_out_of_memory(error):
            return False
        return next_micro_batches(self._config.train.batch_size, self.step_settings.micro_batches) is not None

    def split(self, step: int) -> None:
        """After running out of memory: the same batch in smaller pieces."""
        self._run.discard_pass()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        batch, before = self._config.train.batch_size, self.step_settings.micro_batches
        more = next_micro_batches(batch, before)
        assert more is not None, "may_split comes first"
        reason = f"out of memory with micro-batches of {batch // before}; "
        reason += f"the same batch is made of {more} micro-batches of {batch // more} from here"
        self._act("halve-batch", step, reason, {"micro_batches": more})

    def _act(self, kind: Kind, step: int, reason: str, facts: dict[str, Any], *, since: int | None = None) -> None:
        self._check_budget(step, reason)
        since = step if since is None else since
        self._report(self._state.journal.write(kind, step=step, since=since, reason=reason, facts=facts))

    def _check_budget(self, step: int, reason: str) -> None:
        acts, budget = self._state.journal.acts, self._config.heal.budget
        if len(acts) >= budget:
            done = "; ".join(f"{act.number}: {act.kind} at step {act.step:,}" for act in acts)
            raise Stopped(
                f"Stopped at step {step}: {reason}. That would be act {len(acts) + 1}, and heal.budget is {budget} "
                f"({done}). The weights are saved. Look for the cause with `safelight doctor`, or allow more: "
                f"--set heal.budget={2 * budget}",
                finding=reason,
            )


def find_bad_samples(
    inputs: Sequence[MicroBatch], is_finite: Callable[[MicroBatch], bool], group: ProcessGroup
) -> list[int]:
    """Dataset indices of the samples whose own loss or gradient is not finite; none if it is the weights that are
    bad, or where samples are bad only together."""
    rows = [row for micro in inputs for row in micro.rows()]
    found = group.all_gather_object([int(row.ids[0]) for row in rows if not is_finite(row)])
    bad = [sample for each in found for sample in each]
    return sorted(set(bad)) if len(bad) <= MAX_BAD_SHARE * len(rows) * group.size else []
