"""The only hand on a running run: it makes the steps as the journal says, and writes into it what it does."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from safelight.checkpoints.snapshot import Loaded
from safelight.diffusion.inputs import Inputs
from safelight.healing.alarms import is_lost
from safelight.healing.bad_samples import find_bad_samples
from safelight.healing.journal import Act, Kind
from safelight.healing.orders import BudgetSpent, Rollback
from safelight.healing.rates import try_rates
from safelight.healing.replays import Replays
from safelight.healing.treatment import Treatment, choose_cut, longer_warmup, next_micro_batches, prescribe
from safelight.model.memory import is_out_of_memory
from safelight.training.build import Parts
from safelight.training.optimizer import warmup_steps
from safelight.training.scaling import LOWEST, LossScale


class Healer:
    """Without `heal.enabled` it does nothing new, but what the journal of the run says goes on."""

    def __init__(self, parts: Parts, tell: Callable[[Act], None]) -> None:
        self._parts, self._config, self._state, self._tell = parts, parts.config, parts.state, tell
        self.enabled = parts.config.heal.enabled
        # A look before the update is free where nothing has to be waited for. All processes see the same.
        self._looks = self.enabled and parts.engine.device.type == "cpu"
        self._in_train_mode = [module for module in parts.state.model.modules() if module.training]
        self._zero = parts.fixed_set.zero_level() if self.enabled else math.nan
        self._replays = Replays()
        self._treatment: Treatment | None = None
        self._buffers: list[tuple[Tensor, Tensor]] = []
        self._touched = False  # whether the update of this step may have begun
        self._moded = False  # whether the step was made again in train mode
        parts.stepper.judge = self.judge if self.enabled else None

    def prepare(self, step: int) -> None:
        """Before a step: everything as the journal says."""
        treatment = self._prescribed(step)
        if treatment != self._treatment:
            self._apply(treatment)
        if self.enabled or treatment.keeps_mode:
            self._keep_mode(step)
        if self.enabled:  # a pass moves the buffers of spectral and batch norm
            self._buffers = [(buffer, buffer.clone()) for buffer in self._state.model.buffers()]
        self._replays.begin()
        self._touched = self._moded = False

    def _prescribed(self, step: int) -> Treatment:
        return prescribe(self._config, self._state.journal.acts, step)

    def _apply(self, treatment: Treatment) -> None:
        parts, self._treatment = self._parts, treatment
        parts.stepper.optimizer_settings = treatment.optimizer
        parts.engine.precision = treatment.precision
        if treatment.precision != "fp16" or not self._state.scale.active:
            self._state.scale = LossScale(treatment.precision, parts.engine.device)
        parts.batches.quarantined = treatment.quarantined
        parts.feed.split(treatment.micro_batches)
        parts.feed.forget()

    def _keep_mode(self, step: int) -> bool:
        """Whether a module had to be put back into train mode; the first time is an act, which holds from then on."""
        off = [module for module in self._in_train_mode if not module.training]
        if off and not self._prescribed(step).keeps_mode:
            reason = f"{len(off)} modules of the model were in evaluation mode; they are kept in train mode from here"
            self._act("restore-mode", step, reason, {"modules": len(off)})
        for module in off:
            module.training = True
        return bool(off)

    def judge(
        self, step: int, inputs: Sequence[Inputs], loss: Tensor, norm: Tensor, refused: Tensor
    ) -> Sequence[Inputs] | None:
        """Inside a step, before anything is touched: None to go on, or the inputs to make the step again with."""
        again = self._again(step, inputs, loss, norm, refused)
        if again is not None:
            self._put_back()
        else:
            self._touched = True
        return again

    def _again(
        self, step: int, inputs: Sequence[Inputs], loss: Tensor, norm: Tensor, refused: Tensor
    ) -> Sequence[Inputs] | None:
        if self._keep_mode(step) and not self._moded:
            self._moded = True  # once: who leaves train mode in every pass would be waited for without end
            return inputs
        if not self._looks:
            return None
        mean, size, finite = float(loss.mean()), float(norm), not bool(refused)
        if not finite and self._is_overflow(loss):
            return None
        verdict = self._replays.judge(mean, size, finite=finite)
        if verdict == "again":
            return inputs
        if verdict == "isolate" and self._quarantine(step, inputs, since=step):
            self._replays.begin()
            self._apply(self._prescribed(step))
            return [micro.moved(self._parts.engine.send) for micro in self._parts.feed.prepare(step)]
        if verdict == "redone":
            self._tell_redone(step)
        self._replays.remember(mean, size)
        self._look_for_divergence(step, mean)
        return None

    def _is_overflow(self, loss: Tensor) -> bool:
        """fp16 looking for its scale: see the guard."""
        scale = self._state.scale
        return scale.active and float(scale.scale) > LOWEST and bool(loss.isfinite().all())

    def _tell_redone(self, step: int) -> None:
        facts = self._replays.facts()
        reason = (
            f"loss {facts['loss']:.4g} and gradient norm {facts['norm']:.4g} did not come out again (now "
            f"{facts['loss_again']:.4g} and {facts['norm_again']:.4g}): an error of the machine; the step was redone"
        )
        self._act("redo", step, reason, facts)

    def _quarantine(self, step: int, inputs: Sequence[Inputs], *, since: int) -> bool:
        """Whether some samples are to blame. If not, it is the weights: a divergence, if it goes on."""
        self._put_back()
        samples = find_bad_samples(self._parts.stepper, inputs, step)
        if not samples:
            return False
        names = ", ".join(map(str, samples[:8])) + (" …" if len(samples) > 8 else "")
        one = len(samples) == 1
        reason = f"the loss or gradient of sample{'' if one else 's'} {names} alone is not finite; "
        reason += f"{'it is' if one else 'they are'} not drawn again"
        self._act("quarantine", step, reason, {"samples": samples}, since=since)
        return True

    def _look_for_divergence(self, step: int, loss: float) -> None:
        if not self._state.watch.see(loss, self._zero):
            return
        group, lowest = self._parts.engine.group, self._state.counters.lowest_probe
        probe = group.broadcast(lambda: self._parts.fixed_set.losses(self._state)[0])
        if is_lost(probe, lowest, self._zero):
            facts = {"probe": probe, "lowest_probe": lowest, "zero_level": self._zero}
            raise Rollback("lower-rate", step, f"diverged: the probe loss is {probe:.4g}, it was {lowest:.4g}", facts)

    def _put_back(self) -> None:
        with torch.no_grad():
            for buffer, value in self._buffers:
                buffer.copy_(value)

    def read(self, step: int, inputs: Sequence[Inputs], loss: float, *, refused: bool, overflow: bool) -> None:
        """After a step was brought to the host; where its update was not looked at before, it is now."""
        if not self.enabled:
            return
        if overflow and self._state.watch.see_overflow(step):
            to = "bf16" if self._has_bf16() else "fp32"
            reason = f"{len(self._state.watch.overflows)} of the last steps overflowed in fp16; {to} from here"
            raise Rollback("change-precision", step, reason, {"to": to})
        if self._looks or overflow:
            return
        if refused:
            self._quarantine(step, inputs, since=self._state.counters.step)
        else:
            self._look_for_divergence(step, loss)

    def _has_bf16(self) -> bool:
        return self._parts.engine.device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)

    def despair(self, step: int, where: str) -> None:
        """Too many refused updates in a row, and no sample is to blame: the weights have diverged."""
        if self.enabled:
            row = self._state.counters.refused_in_row
            reason = f"diverged: {row} updates in a row were not finite, beginning in {where}"
            raise Rollback("lower-rate", step, reason, {"first_nonfinite": where})

    def go_back(self, order: Rollback, loaded: Loaded) -> Act:
        """Restores the state of a good checkpoint and keeps the journal; the act is told by whoever cuts the record."""
        state = self._state
        journal, spent = state.journal, state.counters.evaluation_seconds
        self._refuse_beyond_budget(order.step, order.reason)
        state.optimizer.zero_grad(set_to_none=True)
        state.restore(loaded)
        self._apply(prescribe(self._config, journal.acts, loaded.step))
        facts, words = order.facts, order.reason
        if order.kind == "lower-rate":
            facts = facts | self._lower_rate(order.step, loaded)
            words += f"; the learning rate is multiplied by {facts['factor']:g}"
            words += f" and the warmup takes {facts['warmup']:,} steps" if facts["warmup"] is not None else ""
        words += f", and the run goes back to step {loaded.step:,}"
        state.journal, state.counters.evaluation_seconds = journal, spent
        self._replays, self._treatment = Replays(), None
        return journal.write(order.kind, step=order.step, since=loaded.step, reason=words, facts=facts)

    def _lower_rate(self, step: int, loaded: Loaded) -> dict[str, Any]:
        settings, steps = self._parts.stepper.optimizer_settings, self._config.train.steps
        tried = try_rates(self._parts, loaded, settings)
        return {
            "factor": choose_cut(tried),
            "warmup": longer_warmup(warmup_steps(settings, steps), step, steps),
            "tried": {f"{factor:g}": loss for factor, loss in tried.items()},
        }

    def may_split(self, error: BaseException) -> bool:
        """Whether smaller micro-batches could help: a step that ran out of memory before its update began."""
        treatment = self._treatment
        if self._parts.engine.processes > 1 or self._config.train.shards is not None:
            return False  # the other processes are in the middle of the step; a shard cannot be cut
        if not self.enabled or self._touched or treatment is None or not is_out_of_memory(error):
            return False
        return next_micro_batches(self._share, treatment.micro_batches) is not None

    @property
    def _share(self) -> int:
        return self._config.train.batch_size // self._parts.engine.processes

    def split(self, step: int) -> None:
        """After running out of memory: the same batch in smaller pieces."""
        assert self._treatment is not None, "may_split comes first"
        self._state.optimizer.zero_grad(set_to_none=True)
        self._put_back()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        before = self._treatment.micro_batches
        more = next_micro_batches(self._share, before)
        assert more is not None, "may_split comes first"
        reason = f"out of memory with micro-batches of {self._share // before}; "
        reason += f"the same batch is made of {more} micro-batches of {self._share // more} from here"
        self._act("halve-batch", step, reason, {"micro_batches": more})

    def _act(self, kind: Kind, step: int, reason: str, facts: dict[str, Any], *, since: int | None = None) -> None:
        self._refuse_beyond_budget(step, reason)
        since = step if since is None else since
        self._tell(self._state.journal.write(kind, step=step, since=since, reason=reason, facts=facts))

    def _refuse_beyond_budget(self, step: int, reason: str) -> None:
        if len(self._state.journal.acts) >= self._config.heal.budget:
            raise BudgetSpent(step, reason)


def undo(parts: Parts, number: int) -> Act:
    """Drops the effect of an act from the next step on."""
    act = parts.state.journal.undo(number, parts.state.counters.step)
    if act.kind == "change-precision":  # the search for a scale begins anew
        parts.state.scale = LossScale(parts.config.train.precision, parts.engine.device)
    return act
