"""The probes of one run: at its start, at every step, and more of them at a few steps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from safelight import checks
from safelight.monitors.parameters import trainable_parameters
from safelight.monitors.reading_buffer import PendingReading
from safelight.probes.call_hooks import CallHooks
from safelight.probes.conditions import has_null_gradient, measure_conditions
from safelight.probes.draw_history import DrawHistory, fingerprints
from safelight.probes.forward_pass import Call, ForwardPass, ProcessSpec
from safelight.probes.mixtures import NoisingFit
from safelight.probes.noising import measure_batch, measure_magnitudes, measure_noising, read_magnitudes
from safelight.probes.preconditioning import Preconditioning
from safelight.probes.probe_schedule import REPLAYED_FIRST, SHARE, ProbeSchedule
from safelight.probes.runner.averages import EmaProbe
from safelight.probes.runner.copies import ReplayProbe
from safelight.probes.runner.guard import ProbeGuard
from safelight.probes.runner.inspected_loop import InspectedLoop
from safelight.probes.runner.start import StartProbe
from safelight.probes.sample_parameter import MonitoredParameter
from safelight.probes.settings import FrozenWeights
from safelight.probes.update import StateBefore, copy_state
from safelight.vocabulary import CHECK

STATE_CHECKED = 16  # updates at which the optimizer's state is checked
HALF_PRECISION = {torch.float16: 1.0, torch.bfloat16: 2.0}


class ProbeRunner:
    """Measures and never acts. Replays wait for the device, and there are few of them."""

    def __init__(
        self,
        subject: InspectedLoop,
        declared: ProcessSpec,
        say: Callable[[str], None],
        *,
        after_preflight: bool = False,
        alone: bool = True,
        from_step: int = 0,
        share: float = SHARE,
        replayed: Sequence[Mapping[str, float]] = (),
    ) -> None:
        """`after_preflight`: a preflight has checked the network and the sampler. `alone`: no other process contributes
        to the gradient, so that it can be computed again. `from_step`: updates that were made before. `share`: of the
        steps' time, for replays and searches. `replayed`: what a preflight that made these very steps has measured on
        copies, one for each of them."""
        self.subject, self.declared, self._alone = subject, declared, alone
        self._after_preflight, self._from_step = after_preflight, from_step
        self._guard = ProbeGuard(say)
        self._start, self._copies = StartProbe(subject, self._guard), ReplayProbe(subject, self._guard)
        self._frozen = FrozenWeights(subject.model)
        self._named = trainable_parameters(subject.model)
        self._schedule, self._replayed = ProbeSchedule(share, done=len(replayed)), replayed
        self._has_all_tensors = False  # the loop passes what a call would show
        self._hooks = CallHooks(
            subject.model, self._named, self._needs_call, lambda: self._schedule.due.thorough, self._is_replayed
        )
        self._sample_parameter = MonitoredParameter(self._hooks.sample_parameter)
        self._sample_ema: dict[str, Tensor] = {}
        self._gradient_norm = torch.tensor(-1.0)
        self._on_host: list[dict[str, float]] = []  # readings of the step that may raise an alarm
        self._readings: dict[str, float] = {}  # measured on the host since the last step
        self._recorded: dict[str, float] = {}  # of what is recorded where it changes
        self._calls = 0
        self.mixtures = NoisingFit()
        self._preconditioning = Preconditioning()
        self._is_settled = False
        self._average = EmaProbe(subject, self._named, self._guard)
        self.forget()

    def forget(self) -> None:
        """After a return to an earlier step, where repeats are expected."""
        self._draws = DrawHistory(self.declared.timesteps)
        self._before: StateBefore | None = None
        self._previous: Mapping[str, Tensor | None] | None = None  # the gradients of the step before
        self._average.forget()
        self._rate: float | None = None  # at the last call
        self._had_state = False
        self._sample_parameter.forget()
        self._readings.clear()

    # --- before the first step ------------------------------------------------------------------------------------

    @property
    def broken(self) -> dict[str, str]:
        """Probes that failed, and why."""
        return self._guard.broken

    def at_start(self) -> dict[str, float]:
        """All that is known before the first step."""
        return with_check_prefix(self._start.measure(self.declared, self._from_step))

    def settle(self) -> tuple[ProcessSpec, dict[str, float]] | None:
        """Once, when it is known how the loop writes its times, or what it trains where nothing was declared: what
        holds from then on, and the readings that were waiting for it. Called between two steps."""
        if self._is_settled or not self.mixtures.has_news or self._guard.is_off:
            return None
        if (found := self.mixtures.settle(self.declared)) is None:
            self._is_settled = self.mixtures.is_done
            return None
        self.declared, self._is_settled, self._hooks.paused = found, True, True
        try:
            readings = self._start.measure_settled(found)
        finally:
            self._hooks.paused = False
        return found, with_check_prefix(readings)

    def pop_images(self) -> np.ndarray | None:
        """Of the dataset, once."""
        return self._start.pop_images()

    def names(self) -> dict[str, list[str]]:
        """Of parameters that are missing in the optimizer, or frozen and in it: the first of them."""
        return self._start.names()

    # --- at every step --------------------------------------------------------------------------------------------

    def _needs_call(self) -> bool:
        return self._preconditioning.is_needed or not (self._has_all_tensors and self._schedule.is_quiet)

    def _is_replayed(self) -> bool:
        return self._alone and self._schedule.due.replay and self._copies.has_room()

    def _is_searched(self) -> bool:
        return self._schedule.due.search and self._copies.has_room()

    def attach(self, on_call: Callable[[], None] = lambda: None) -> None:
        """Hooks the network; `on_call` runs before every call with gradients that is not a probe's."""
        self._hooks.attach(on_call, functools.partial(self._guard.run, self._on_call))

        def after_step(*_: object) -> None:
            self._guard.run(self._just_updated)

        if (optimizer := self.subject.optimizer) is not None:
            self._hooks.undo.append(optimizer.register_step_post_hook(after_step).remove)

    def pop_call(self) -> Call | None:
        """The last call of the network, once; None if the step is not checked and the loop passes everything."""
        return self._hooks.pop_call()

    @property
    def last_call(self) -> Call | None:
        return self._hooks.call

    def offer_call(self, call: Call) -> None:
        """The call of the next pass, seen by somebody else: the network may have been called again meanwhile, and may
        not have been hooked yet."""
        self._hooks.offer_call(call)
        if self._calls == 0:
            self._guard.run(self._on_call, call.training, call.half)

    @property
    def cleared(self) -> int:
        """Gradients that came since the last update and were cleared without another."""
        return self._hooks.cleared

    def begin_again(self) -> None:
        """The step is made once more: backward passes so far do not count."""
        self._hooks.take_backwards()

    def close(self) -> None:
        self._hooks.close()

    def before_update(self) -> None:
        """Gradients are there, weights are still the old ones, and the EMA has followed the update before."""
        self._guard.run(self._before_update)

    def after_update(self, passes: Sequence[ForwardPass]) -> list[PendingReading]:
        """What was measured of the step and its micro-batches; readings follow when the pieces are on the host."""
        return self._guard.run(self._after_update, passes)

    def _on_call(self, training: bool, half: torch.dtype | None) -> None:
        """Once for every micro-batch."""
        self._record_change(checks.MODE_TRAINING, float(training))
        self._record_change(checks.PRECISION_HALF, 0.0 if half is None else HALF_PRECISION.get(half, 0.0))
        self._calls += 1
        self._compare_rates()
        if 0 < self._schedule.updates <= REPLAYED_FIRST:
            has_moved = self._average.has_moved(self._calls == 1)
            if has_moved is not None:
                before = self._readings.get(checks.EMA_BETWEEN, 0.0)
                self._readings[checks.EMA_BETWEEN] = max(before, float(has_moved))

    def _compare_rates(self) -> None:
        """A schedule moves the rate with an update, not between micro-batches. A rate that is a tensor is not read."""
        optimizer = self.subject.optimizer
        rate = None if optimizer is None or not optimizer.param_groups else optimizer.param_groups[0]["lr"]
        if isinstance(rate, float):
            if self._calls > 1 and self._rate is not None and rate != self._rate:
                self._readings[checks.RATE_BETWEEN] = 1.0
            self._rate = rate

    def _record_change(self, name: str, number: float) -> None:
        if self._recorded.get(name) != number:
            self._recorded[name] = self._readings[name] = number

    @torch.no_grad()
    def _before_update(self) -> None:
        """Copies what the update must be compared with."""
        if self.subject.optimizer is not None and self._had_state:  # it must still have one
            is_forgotten = not any(self.subject.optimizer.state.values())
            if is_forgotten or self._schedule.updates < STATE_CHECKED:
                self._readings[checks.OPTIMIZER_FORGOTTEN] = float(is_forgotten)
        if self._sample_parameter.was_changed():
            self._readings[checks.SAMPLE_PARAMETER_CHANGED] = 1.0
        self._sample_ema = {}
        if self._schedule.is_quiet and not self._average.is_waiting:
            return
        if self._schedule.due.noising and self._frozen.were_changed():
            self._readings[checks.FROZEN_CHANGED] = 1.0
        self._readings |= self._average.measure(self._schedule.due.ema)
        if self._is_replayed() or self._is_searched():
            self._before = copy_state(self._named, self.subject.optimizer)
        if self._schedule.due.thorough:
            self._sample_parameter.before_update()
            if not self._recorded.get(checks.STREAM_NULL_TRAINED) and has_null_gradient(
                self.subject.model, self._hooks.call
            ):
                self._record_change(checks.STREAM_NULL_TRAINED, 1.0)
            ema, place = self.subject.read_ema(), self._hooks.sample_place
            if ema is not None and place is not None and len(ema) == len(self._named):
                self._sample_ema = self._sample_parameter.measure_ema(ema[place])

    def _just_updated(self) -> None:
        """Before the loop can change anything."""
        optimizer = self.subject.optimizer
        self._had_state = optimizer is not None and any(optimizer.state.values())
        self._sample_parameter.just_updated(self._schedule.due.thorough)

    def _after_update(self, passes: Sequence[ForwardPass]) -> list[PendingReading]:
        passes = [self._preconditioning.undo(each) for each in passes]
        self._record_change(checks.ACCUMULATION_MICRO_BATCHES, float(len(passes)))
        self._record_change(checks.ACCUMULATION_BACKWARDS, float(self._hooks.take_backwards()))
        self._has_all_tensors = passes[-1].is_complete
        readings, self._readings = self._readings, {}
        pieces = self._measure_step(passes)
        before, previous = self._before, self._previous
        self._before, self._previous = None, None if before is None else before.gradients
        self._hooks.paused = True
        try:
            if self._schedule.updates == 0 and not self._after_preflight:
                readings |= self._measure_first_batch(passes[-1], {} if before is None else before.weights)
            if before is not None:
                readings |= self._measure_on_copies(passes, before, previous)
        finally:
            self._hooks.paused = False
        if readings:
            pieces.append(PendingReading((), lambda: with_check_prefix(readings)))
        if (made := self._schedule.updates) < len(self._replayed):
            pieces.append(PendingReading((), lambda: self._replayed[made]))
        self._schedule.advance()
        for on_host in self._on_host:
            self._schedule.check_for_alarm(on_host)
        self._on_host.clear()
        self._calls = 0
        return pieces

    @torch.no_grad()
    def _measure_step(self, passes: Sequence[ForwardPass]) -> list[PendingReading]:
        """Without waiting for the device. On the host, where numbers are read without waiting, also the magnitudes of
        steps with an unusual loss; on a device those of all steps, which costs almost nothing."""
        due, last = self._schedule.due, passes[-1]
        if not (due.magnitudes or last.loss.device.type != "cpu" or self._schedule.is_odd(float(last.loss.mean()))):
            return []
        pieces = self._pending(measure_magnitudes(last), read_magnitudes)
        if not due.thorough:
            return pieces
        self._gradient_norm = self._hooks.take_norm()
        scalars = self._sample_parameter.after_update() | self._sample_ema | self._hooks.take_readings()
        scalars |= {checks.SAMPLE_PARAMETER_BACKWARD: self._gradient_norm} if scalars else {}
        scalars |= measure_noising(last, self.declared) if due.noising else measure_batch(last)
        scalars |= measure_conditions(last.call)
        pieces += self._pending(scalars, dict)
        if due.noising and not self.mixtures.is_done:
            pieces += [_at_once(piece) for piece in (self.mixtures.measure(last),) if piece is not None]
        prints = [fingerprints(micro_batch) for micro_batch in passes]
        if names := tuple(prints[0]):
            joined = tuple(torch.cat([each[name].reshape(-1) for each in prints if name in each]) for name in names)
            pieces.append(PendingReading(joined, functools.partial(self._add_draws, names)))
        return pieces

    def _pending(
        self, scalars: Mapping[str, Tensor], read: Callable[[dict[str, float]], dict[str, float]]
    ) -> list[PendingReading]:
        """Read at once on the host, so that no clock decides when an alarm is raised; else with its window."""
        if not scalars:
            return []
        device = next(iter(scalars.values())).device
        stacked = torch.stack([value.detach().to(device, torch.float32).reshape(()) for value in scalars.values()])

        def finish(numbers: np.ndarray) -> dict[str, float]:
            readings = read(dict(zip(scalars, numbers.tolist(), strict=True)))
            alarming(readings)
            return with_check_prefix(readings)

        if device.type == "cpu":
            alarming = self._on_host.append
            readings = finish(stacked.numpy())
            return [PendingReading((), lambda: readings)]
        alarming = self._schedule.check_for_alarm
        return [PendingReading((stacked,), finish)]

    def _add_draws(self, names: tuple[str, ...], *vectors: np.ndarray) -> dict[str, float]:
        """Without the zeros of what did not repeat."""
        readings = self._draws.add_step(**dict(zip(names, vectors, strict=True)))
        return with_check_prefix(
            {name: n for name, n in readings.items() if n or not name.endswith(("again", "alike"))}
        )

    def _measure_on_copies(
        self, passes: Sequence[ForwardPass], before: StateBefore, previous: Mapping[str, Tensor | None] | None
    ) -> dict[str, float]:
        readings = self._copies.measure_update(before)
        is_replayed, is_searched = self._is_replayed(), self._is_searched()
        if is_replayed:
            readings |= self._copies.replay(before, passes, previous, self._gradient_norm)
            self._schedule.book("replay", self._copies.cost_in_steps(passes))
        if is_searched:
            readings |= self._copies.search(before, passes[-1])
            self._schedule.book("search", self._copies.cost_in_steps(passes))
        return readings

    def _measure_first_batch(self, micro_batch: ForwardPass, old: Mapping[str, Tensor]) -> dict[str, float]:
        """`old`: the weights before the update, where they are known."""
        readings: dict[str, float] = {}
        x = micro_batch.x0 if micro_batch.x0 is not None else micro_batch.input
        if x is not None:
            readings[checks.BATCH_INTEGER] = float(not x.is_floating_point())
            readings[checks.BATCH_DIMENSIONS] = float(x.dim())
            if not self._start.has_sampled and x.dim() > 1:
                reach = float(x.detach().float().abs().max())
                readings |= self._start.measure_sampler(self.declared, tuple(x.shape[1:]), reach)
        answer, target = micro_batch.answer, micro_batch.target
        if target is not None:
            readings[checks.TARGET_WITH_GRADIENT] = float(target.requires_grad)
        if answer is not None and target is not None:
            readings[checks.LOSS_SAME_SHAPE] = float(answer.shape == target.shape)
        if self._copies.has_room():
            readings |= self._copies.measure_network(micro_batch, self.declared, old)
        return readings


def _at_once(piece: PendingReading) -> PendingReading:
    """On the host nothing is waited for, and what was recognised holds from the next step on."""
    if any(tensor.device.type != "cpu" for tensor in piece.tensors):
        return piece
    readings = piece.finish(*(tensor.numpy() for tensor in piece.tensors))
    return PendingReading((), lambda: readings)


def with_check_prefix(readings: Mapping[str, float]) -> dict[str, float]:
    """By their names in the record."""
    return {f"{CHECK.name}/{name}": value for name, value in readings.items()}
