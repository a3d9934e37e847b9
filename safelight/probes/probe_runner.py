"""The probes of one run: at its start, at every step, and more of them at a few steps."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from safelight import checks
from safelight.model.memory import available_memory
from safelight.monitors.modules import MAX_NAMES_IN_EVENT, trainable_parameters
from safelight.monitors.reading_buffer import PendingReading
from safelight.probes.call_hooks import CallHooks
from safelight.probes.conditions import exchange_conditions, has_null_gradient, measure_conditions
from safelight.probes.dataset import measure_images, most_images, take_images
from safelight.probes.draw_history import DrawHistory, fingerprints
from safelight.probes.forward_pass import NARROW_TIME_RANGE, Call, Declared, ForwardPass
from safelight.probes.mixtures import MixtureProbe
from safelight.probes.network import measure_network
from safelight.probes.noising import measure_batch, measure_magnitudes, measure_noising, read_magnitudes
from safelight.probes.preconditioning import Preconditioning
from safelight.probes.probe_schedule import REPLAYED_FIRST, ProbeSchedule
from safelight.probes.replay import measure_labels, measure_responses, replay_gradient, search_line
from safelight.probes.sample_parameter import SampleParameter
from safelight.probes.sampler import Sampler, accepts, measure_sampler
from safelight.probes.settings import (
    FrozenWeights,
    measure_adapters,
    measure_optimizer,
    measure_resume,
    measure_schedule,
    unmatched_parameters,
)
from safelight.probes.update import StateBefore, compare_with_weights, copy_state, measure_ema, measure_update
from safelight.vocabulary import CHECK

COPIES = 6  # times the weights: what a replay holds for the length of a step
SMALL_WEIGHTS_BYTES = 64_000_000  # bytes of weights that there is always room to copy
STATE_CHECKED = 16  # updates at which the optimizer's state is checked
HALF_PRECISION = {torch.float16: 1.0, torch.bfloat16: 2.0}


@dataclass(frozen=True, slots=True)
class InspectedLoop:
    """What is inspected; only the model is required."""

    model: nn.Module
    optimizer: torch.optim.Optimizer | None = None
    ema: Callable[[], list[Tensor] | None] | None = None
    sampler: Sampler | None = None
    data: Any = None
    scaled: bool = False
    """Whether a gradient scaler is in use."""
    space: str | None = None
    """One of SPACES, where the data is declared to be in it."""


class ProbeRunner:
    """Measures and never acts. Replays wait for the device, and there are few of them."""

    def __init__(
        self,
        subject: InspectedLoop,
        declared: Declared,
        say: Callable[[str], None],
        *,
        after_preflight: bool = False,
        alone: bool = True,
        from_step: int = 0,
    ) -> None:
        """`after_preflight`: a preflight has checked the network and the sampler. `alone`: no other process contributes
        to the gradient, so that it can be computed again. `from_step`: updates that were made before."""
        self.subject, self.declared, self._say, self._alone = subject, declared, say, alone
        self._after_preflight, self._from_step = after_preflight, from_step
        self._frozen = FrozenWeights(subject.model)
        self._named = trainable_parameters(subject.model)
        self._size = sum(p.numel() * p.element_size() for _, p in self._named)
        self._schedule = ProbeSchedule()
        self._has_all_tensors = False  # the loop passes what a call would show
        self._hooks = CallHooks(
            subject.model, self._named, self._needs_call, lambda: self._schedule.due.thorough, self._is_replayed
        )
        self._sample_parameter = SampleParameter(self._hooks.sample_parameter)
        self._sample_ema: dict[str, Tensor] = {}
        self._gradient_norm = torch.tensor(-1.0)
        self._on_host: list[dict[str, float]] = []  # readings of the step that may raise an alarm
        self._readings: dict[str, float] = {}  # measured on the host since the last step
        self._recorded: dict[str, float] = {}  # of what is recorded where it changes
        self._calls, self._is_sampler_measured = 0, False
        self._taken: np.ndarray | None = None  # images of a dataset that is slow to read, for whom else they serve
        self.mixtures = MixtureProbe()
        self._preconditioning = Preconditioning()
        self._is_settled = False
        self._sampled: tuple[tuple[int, ...], float] | None = None  # shape and reach of what a sampler returns
        self.broken: dict[str, str] = {}  # probes that failed, and why
        self.forget()

    def forget(self) -> None:
        """After a return to an earlier step, where repeats are expected."""
        self._draws = DrawHistory(self.declared.timesteps)
        self._before: StateBefore | None = None
        self._previous: Mapping[str, Tensor | None] | None = None  # the gradients of the step before
        self._old_ema: list[Tensor] | None = None
        self._ema_at_call: list[Tensor] | None = None
        self._rate: float | None = None  # at the last call
        self._had_state = False
        self._sample_parameter.forget()
        self._readings.clear()

    # --- before the first step ------------------------------------------------------------------------------------

    def at_start(self) -> dict[str, float]:
        """All that is known before the first step."""
        alphas, prediction, optimizer = self.declared.alphas, self.declared.prediction, self.subject.optimizer
        readings: dict[str, float] = {}
        if alphas is not None:
            readings |= self._measure("schedule", measure_schedule, alphas, prediction)
        if optimizer is not None:
            readings |= self._measure("optimizer", measure_optimizer, self.subject.model, optimizer)
        readings |= self._measure("adapters", measure_adapters, self.subject.model)
        if self._from_step:
            weights = [parameter for _, parameter in self._named]
            readings |= self._measure("resume", measure_resume, self._from_step, optimizer, self._read_ema(), weights)
        readings |= self._measure("data", self._measure_data)
        readings |= self._declared_target()
        if (space := self.subject.space) is not None:
            readings[checks.BATCH_SPACE] = float(checks.SPACES.index(space))
        return with_check_prefix(readings | {checks.PRECISION_SCALED: float(self.subject.scaled)})

    def _declared_target(self) -> dict[str, float]:
        prediction = self.declared.prediction
        return {} if prediction is None else {checks.TARGET_DECLARED: float(checks.PREDICTIONS.index(prediction))}

    def settle(self) -> tuple[Declared, dict[str, float]] | None:
        """Once, when it is known how the loop writes its times, or what it trains where nothing was declared: what
        holds from then on, and the readings that were waiting for it. Called between two steps."""
        if self._is_settled or not self.mixtures.has_news or "probes" in self.broken:
            return None
        if (found := self.mixtures.settle(self.declared)) is None:
            self._is_settled = self.mixtures.is_done
            return None
        self.declared, self._is_settled, self._hooks.paused = found, True, True
        try:
            readings = self._declared_target()
            if self._sampled is not None and not self._is_sampler_measured:
                readings |= self._measure_sampler(*self._sampled)
        finally:
            self._hooks.paused = False
        return found, with_check_prefix(readings)

    def _measure_data(self) -> dict[str, float]:
        """The images, and the sampler where they show what it has to return."""
        images = take_images(self.subject.data)
        if images is None:
            return {}
        self._taken = images[:: math.ceil(len(images) / max(1, most_images(images[0].nbytes)))].copy()
        readings = self._measure("data", measure_images, images)
        if readings.get(checks.DATA_INTEGER):
            return readings
        return readings | self._measure_sampler(tuple(images.shape[1:]), readings.get(checks.DATA_REACH, 1.0))

    def _measure_sampler(self, shape: tuple[int, ...], reach: float) -> dict[str, float]:
        """`reach`: of the images, from 0."""
        sampler, declared = self.subject.sampler, self.declared
        self._sampled = shape, reach
        if sampler is None or not declared.can_sample or not accepts(sampler):
            return {}
        self._is_sampler_measured = True
        return self._measure("sampler", measure_sampler, sampler, declared, shape, reach, self._device)

    def pop_images(self) -> np.ndarray | None:
        """Images of the dataset, once: more than were measured where that costs nothing, and no more bytes than a
        bound."""
        data, taken, self._taken = self.subject.data, self._taken, None
        if taken is None or not isinstance(data, Tensor | np.ndarray):
            return taken
        return take_images(data, most_images(taken[0].nbytes))

    def names(self) -> dict[str, list[str]]:
        """The first names of parameters that are missing in the optimizer, or frozen and in it: the first of them."""
        if self.subject.optimizer is None:
            return {}
        unmatched = unmatched_parameters(self.subject.model, self.subject.optimizer)
        return {kind: names[:MAX_NAMES_IN_EVENT] for kind, names in unmatched.items() if names}

    # --- at every step --------------------------------------------------------------------------------------------

    @property
    def _device(self) -> torch.device:
        return next(self.subject.model.parameters()).device

    def _needs_call(self) -> bool:
        return self._preconditioning.is_needed or not (self._has_all_tensors and self._schedule.is_quiet)

    def _is_replayed(self) -> bool:
        return self._alone and self._schedule.due.replay and self._has_room()

    def _is_searched(self) -> bool:
        return self._schedule.due.search and self._has_room()

    def _has_room(self) -> bool:
        return self._size < SMALL_WEIGHTS_BYTES or available_memory(self._device) > COPIES * self._size

    def attach(self, on_call: Callable[[], None] = lambda: None) -> None:
        """Hooks the network; `on_call` runs before every call with gradients that is not a probe's."""
        self._hooks.attach(on_call, functools.partial(self._guarded, self._on_call))

        def after_step(*_: object) -> None:
            self._guarded(self._just_updated)

        if (optimizer := self.subject.optimizer) is not None:
            self._hooks.undo.append(optimizer.register_step_post_hook(after_step).remove)

    def pop_call(self) -> Call | None:
        """The last call of the network, once; None if the step is not checked and the loop passes everything."""
        return self._hooks.pop_call()

    def offer_call(self, call: Call) -> None:
        """A call that was made before the network was hooked, and seen by somebody else."""
        if self._calls == 0:
            self._hooks.offer_call(call)
            self._guarded(self._on_call, call.training, call.half)

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
        self._guarded(self._before_update)

    def after_update(self, passes: Sequence[ForwardPass]) -> list[PendingReading]:
        """What was measured of the step and its micro-batches; readings follow when the pieces are on the host."""
        return self._guarded(self._after_update, passes)

    def _guarded(self, act: Callable[..., list[PendingReading] | None], *given: Any) -> list[PendingReading]:
        """An error of a probe switches them off, and nothing else."""
        if "probes" not in self.broken:
            try:
                return act(*given) or []
            except Exception as error:
                self.broken["probes"] = f"{type(error).__name__}: {error}"
                self._say(f"Safelight's probes stopped ({self.broken['probes']}); everything else continues.")
        return []

    def _measure(self, name: str, probe: Callable[..., Mapping[str, float]], *given: Any) -> dict[str, float]:
        """A probe that fails is recorded once and not run again; the others continue."""
        if name in self.broken:
            return {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return dict(probe(*given))
        except Exception as error:
            self.broken[name] = f"{type(error).__name__}: {error}"
            return {}

    def _on_call(self, training: bool, half: torch.dtype | None) -> None:
        """Once for every micro-batch."""
        self._record_change(checks.MODE_TRAINING, float(training))
        self._record_change(checks.PRECISION_HALF, 0.0 if half is None else HALF_PRECISION.get(half, 0.0))
        self._calls += 1
        self._compare_rates()
        if 0 < self._schedule.updates <= REPLAYED_FIRST:  # an EMA moves with an update, not between micro-batches
            ema = self._read_ema()
            if self._calls == 1:
                self._ema_at_call = None if ema is None else [each.clone() for each in ema]
            elif ema is not None and self._ema_at_call is not None:
                has_moved = float(not all(map(torch.equal, ema, self._ema_at_call)))
                self._readings[checks.EMA_BETWEEN] = max(self._readings.get(checks.EMA_BETWEEN, 0.0), has_moved)

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
        if self._schedule.is_quiet and self._old_ema is None:
            return
        if self._schedule.due.noising and self._frozen.were_changed():
            self._readings[checks.FROZEN_CHANGED] = 1.0
        self._compare_ema()
        if self._is_replayed() or self._is_searched():
            self._before = copy_state(self._named, self.subject.optimizer)
        if self._schedule.due.thorough:
            self._sample_parameter.before_update()
            if not self._recorded.get(checks.STREAM_NULL_TRAINED) and has_null_gradient(
                self.subject.model, self._hooks.call
            ):
                self._record_change(checks.STREAM_NULL_TRAINED, 1.0)
            ema, place = self._read_ema(), self._hooks.sample_place
            if ema is not None and place is not None and len(ema) == len(self._named):
                self._sample_ema = self._sample_parameter.measure_ema(ema[place])

    def _just_updated(self) -> None:
        """Before the loop can change anything."""
        optimizer = self.subject.optimizer
        self._had_state = optimizer is not None and any(optimizer.state.values())
        self._sample_parameter.just_updated(self._schedule.due.thorough)

    def _compare_ema(self) -> None:
        """Between two updates: the EMA before the last one, the EMA now, and the weights."""
        old, is_due = self._old_ema, self._schedule.due.ema
        if old is None and not is_due:
            return
        ema, weights = self._read_ema(), [parameter for _, parameter in self._named]
        if ema is not None and len(ema) == len(weights):
            self._readings |= self._measure("average", compare_with_weights, ema, weights)
        if ema is not None and old is not None and len(old) == len(ema) == len(weights):
            self._readings |= self._measure("average", measure_ema, old, ema, weights)
        self._old_ema = [each.clone() for each in ema] if is_due and ema is not None else None

    def _read_ema(self) -> list[Tensor] | None:
        return None if self.subject.ema is None else self.subject.ema()

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
        model = self.subject.model
        readings = self._measure("update", measure_update, before, self._named)
        if self._is_replayed():
            replayed = self._measure("replay", replay_gradient, model, before, passes, previous)
            readings |= replayed | ({checks.REPLAY_SAMPLE_GRADIENT: float(self._gradient_norm)} if replayed else {})
        if self._is_searched():
            readings |= self._measure("search", search_line, model, before, passes[-1])
            readings |= self._measure("labels", measure_labels, model, before, passes[-1])
            readings |= self._measure("response", measure_responses, model, before, passes[-1])
            readings |= self._measure("conditions", exchange_conditions, model, before, passes[-1])
        return readings

    def _measure_first_batch(self, micro_batch: ForwardPass, old: Mapping[str, Tensor]) -> dict[str, float]:
        """`old`: the weights before the update, where they are known."""
        readings: dict[str, float] = {}
        x = micro_batch.x0 if micro_batch.x0 is not None else micro_batch.input
        if x is not None:
            readings[checks.BATCH_INTEGER] = float(not x.is_floating_point())
            readings[checks.BATCH_DIMENSIONS] = float(x.dim())
            if not self._is_sampler_measured and x.dim() > 1:
                readings |= self._measure_sampler(tuple(x.shape[1:]), float(x.detach().float().abs().max()))
        answer, target = micro_batch.answer, micro_batch.target
        if target is not None:
            readings[checks.TARGET_WITH_GRADIENT] = float(target.requires_grad)
        if answer is not None and target is not None:
            readings[checks.LOSS_SAME_SHAPE] = float(answer.shape == target.shape)
        if self._has_room():
            given = self.subject.model, micro_batch, self.declared.timesteps, old
            readings |= self._measure("network", measure_network, *given)
            if self.declared.tells_little or _tells_little(micro_batch, self.declared):
                readings.pop(checks.NETWORK_TIME_COLLISION, None)
        return readings


def _at_once(piece: PendingReading) -> PendingReading:
    """On the host nothing is waited for, and what was recognised holds from the next step on."""
    if any(tensor.device.type != "cpu" for tensor in piece.tensors):
        return piece
    readings = piece.finish(*(tensor.numpy() for tensor in piece.tensors))
    return PendingReading((), lambda: readings)


def _tells_little(micro_batch: ForwardPass, declared: Declared) -> bool:
    """Whether times are t in [0, 1], σ or log σ, which hardly differ: networks learn from them all the same. Not where
    the loop has times up to 1,000 and tells the network a fraction."""
    told = None if micro_batch.call is None else micro_batch.call.t
    if told is None or declared.timesteps is not None or not told.is_floating_point():
        return False
    own = told if micro_batch.t is None else micro_batch.t
    return float(told.max() - told.min()) < NARROW_TIME_RANGE and float(own.max() - own.min()) < NARROW_TIME_RANGE**2


def with_check_prefix(readings: Mapping[str, float]) -> dict[str, float]:
    """By their names in the record."""
    return {f"{CHECK.name}/{name}": value for name, value in readings.items()}
