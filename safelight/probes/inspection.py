"""The probes of one run: at its start, at every step, and more of them at a few steps."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from safelight import checks
from safelight.model.memory import available_memory
from safelight.monitors.modules import trained
from safelight.monitors.reading_buffer import PendingReading
from safelight.probes.average import look_at_average
from safelight.probes.call_hooks import CallHooks
from safelight.probes.dataset import look_at_images, take_images
from safelight.probes.draw_history import DrawHistory, prints_of
from safelight.probes.forward_pass import Call, Declared, ForwardPass
from safelight.probes.network import look_at_network
from safelight.probes.noising import glance, look_at_batch, look_at_noising, read_glance
from safelight.probes.probe_schedule import REPLAYED_FIRST, ProbeSchedule
from safelight.probes.replay import (
    StateBefore,
    keep_before,
    look_at_labels,
    look_at_responses,
    look_at_update,
    replay_gradient,
    search_line,
)
from safelight.probes.sample_parameter import SampleParameter
from safelight.probes.sampler import Sampler, accepts, look_at_sampler
from safelight.probes.settings import look_at_names, look_at_optimizer, look_at_schedule
from safelight.vocabulary import CHECK

COPIES = 6  # times the weights: what a replay holds for the length of a step
SMALL = 64_000_000  # bytes of weights that there is always room to copy
REMEMBERS = 16  # updates at which the optimizer's state is checked
HALF = {torch.float16: 1.0, torch.bfloat16: 2.0}

Average = Callable[[], list[Tensor] | None]


@dataclass(frozen=True, slots=True)
class InspectedLoop:
    """What is inspected; only the model is required."""

    model: nn.Module
    optimizer: torch.optim.Optimizer | None = None
    average: Average | None = None
    sampler: Sampler | None = None
    data: Any = None
    scaled: bool = False
    """Whether a gradient scaler is in use."""


class Inspection:
    """Measures and never acts. Replays wait for the device, and there are few of them."""

    def __init__(
        self,
        subject: InspectedLoop,
        declared: Declared,
        say: Callable[[str], None],
        *,
        looked_before: bool = False,
        alone: bool = True,
    ) -> None:
        """`looked_before`: a preflight has checked the network and the sampler. `alone`: no other process contributes
        to the gradient, so that it can be computed again."""
        self.subject, self.declared, self._say, self._alone = subject, declared, say, alone
        self._looked_before = looked_before
        self._named = trained(subject.model)
        self._size = sum(p.numel() * p.element_size() for _, p in self._named)
        self._schedule = ProbeSchedule()
        self._tells_all = False
        self._hooks = CallHooks(
            subject.model, self._named, self._is_wanted, lambda: self._schedule.is_close, self._is_replayed
        )
        self._sample_parameter = SampleParameter(self._hooks.sentinel)
        self._averaged_sample: dict[str, Tensor] = {}
        self._came = torch.tensor(-1.0)
        self._heard: list[dict[str, float]] = []
        self._stream = DrawHistory(declared.timesteps)
        self._before: StateBefore | None = None
        self._previous: dict[str, Tensor | None] | None = None
        self._old_average: list[Tensor] | None = None
        self._call_average: list[Tensor] | None = None
        self._told: dict[str, float] = {}  # measured on the host since the last step
        self._standing: dict[str, float] = {}  # recorded where they change
        self._calls, self._sampled, self._had_memory = 0, False, False
        self.broken: dict[str, str] = {}  # probes that failed, and why

    # --- before the first step ------------------------------------------------------------------------------------

    def at_start(self) -> dict[str, float]:
        """All that is known before the first step."""
        told: dict[str, float] = {}
        alphas, subject = self.declared.alphas, self.subject
        if alphas is not None:
            told |= self._ask("schedule", lambda: look_at_schedule(alphas, self.declared.prediction))
        if (optimizer := subject.optimizer) is not None:
            told |= self._ask("optimizer", lambda: look_at_optimizer(subject.model, optimizer))
        shape: tuple[int, ...] | None = None
        reach = 1.0
        if subject.data is not None:
            try:
                images = take_images(subject.data)
            except Exception as error:
                images, self.broken["data"] = None, str(error)
            if images is not None:
                whole = not np.issubdtype(images.dtype, np.floating) or not _is_float(subject.data)
                told |= self._ask("data", lambda: look_at_images(images, whole))
                shape = tuple(images.shape[1:])
                reach = told.get(checks.DATA_REACH, 1.0)
        if shape is not None and not told.get(checks.DATA_INTEGER):
            told |= self.look_at_sampler(shape, reach)
        if (prediction := self.declared.prediction) is not None:
            told[checks.TARGET_DECLARED] = float(checks.PREDICTIONS.index(prediction))
        told[checks.PRECISION_SCALED] = float(subject.scaled)
        return checked(told)

    def look_at_sampler(self, shape: tuple[int, ...], reach: float) -> dict[str, float]:
        """`reach`: of the images, from 0."""
        sampler, alphas, prediction = self.subject.sampler, self.declared.alphas, self.declared.prediction
        if sampler is None or alphas is None or prediction is None or not accepts(sampler):
            return {}
        device = next(self.subject.model.parameters()).device
        self._sampled = True
        return self._ask("sampler", lambda: look_at_sampler(sampler, alphas, prediction, shape, reach, device))

    def names(self) -> dict[str, Sequence[str]]:
        return {} if self.subject.optimizer is None else look_at_names(self.subject.model, self.subject.optimizer)

    # --- at every step --------------------------------------------------------------------------------------------

    def _is_wanted(self) -> bool:
        return not (self._tells_all and self._schedule.is_quiet)

    def _is_replayed(self) -> bool:
        return self._alone and self._schedule.is_replayed and self._has_room()

    def _is_searched(self) -> bool:
        return self._schedule.is_searched and self._has_room()

    def _has_room(self) -> bool:
        device = next(self.subject.model.parameters()).device
        return self._size < SMALL or available_memory(device) > COPIES * self._size

    def attach(self, on_call: Callable[[], None] | None = None) -> None:
        """Hooks the network; `on_call` runs before every call with gradients that is not a probe's."""
        self._hooks.attach(on_call or _nothing, lambda *heard: self._guarded(lambda: self._on_call(*heard)))
        if (optimizer := self.subject.optimizer) is not None:
            hook = optimizer.register_step_post_hook(lambda *_: self._guarded(self._just_updated))
            self._hooks.undo_later(hook.remove)

    def take_call(self) -> Call | None:
        """The last call of the network, once; None where the step is not checked and the loop passes everything."""
        return self._hooks.take_call()

    @property
    def cleared(self) -> int:
        """Gradients that came since the last update and were cleared without another."""
        return self._hooks.cleared

    def begin_again(self) -> None:
        """The step is made once more: backward passes so far do not count."""
        self._hooks.take_backwards()

    def close(self) -> None:
        self._hooks.close()

    def forget(self) -> None:
        """After a return to an earlier step, where repeats are expected."""
        self._stream = DrawHistory(self.declared.timesteps)
        self._before, self._previous, self._old_average, self._call_average = None, None, None, None
        self._had_memory = False
        self._sample_parameter.forget()
        self._told.clear()

    def before_update(self) -> None:
        """Gradients are there, weights are still the old ones, and the EMA has seen the update before."""
        self._guarded(self._before_update)

    def after_update(self, micro_batches_seen: Sequence[ForwardPass]) -> list[PendingReading]:
        """What was measured of the step; readings follow when the pieces are on the host."""
        pieces: list[PendingReading] = []
        self._guarded(lambda: pieces.extend(self._after_update(micro_batches_seen)))
        return pieces

    def _guarded(self, act: Callable[[], None]) -> None:
        """An error of the inspection switches it off, and nothing else."""
        if "inspection" not in self.broken:
            try:
                act()
            except Exception as error:
                self.broken["inspection"] = f"{type(error).__name__}: {error}"
                self._say(f"Safelight's probes stopped ({self.broken['inspection']}); everything else continues.")

    def _on_call(self, training: bool, half: torch.dtype | None) -> None:
        """Once for every micro-batch."""
        self._stand(checks.MODE_TRAINING, float(training))
        self._stand(checks.PRECISION_HALF, 0.0 if half is None else HALF.get(half, 0.0))
        self._calls += 1
        if 0 < self._schedule.seen <= REPLAYED_FIRST:  # an EMA moves with an update, not between micro-batches
            now = self._averaged()
            if self._calls == 1:
                self._call_average = None if now is None else [each.clone() for each in now]
            elif now is not None and self._call_average is not None:
                moved = not all(map(torch.equal, now, self._call_average))
                self._told[checks.AVERAGE_BETWEEN] = max(self._told.get(checks.AVERAGE_BETWEEN, 0.0), float(moved))

    def _stand(self, name: str, number: float) -> None:
        if self._standing.get(name) != number:
            self._standing[name] = self._told[name] = number

    def _before_update(self) -> None:
        self._look_at_memory()
        if (changed := self._sample_parameter.look_between()) is not None:
            self._told[checks.SENTINEL_CHANGED] = changed
        self._averaged_sample = {}
        if not self._schedule.is_quiet or self._old_average is not None:
            self._keep_before()

    @torch.no_grad()
    def _keep_before(self) -> None:
        """What the update must be compared with."""
        self._look_at_average()
        if self._is_replayed() or self._is_searched():
            self._before = keep_before(self._named, self.subject.optimizer)
        if self._schedule.is_close:
            self._sample_parameter.keep()
            average, place = self._averaged(), self._hooks.place
            if average is not None and place is not None and len(average) == len(self._named):
                self._averaged_sample = self._sample_parameter.look_at_average(average[place])

    def _just_updated(self) -> None:
        """Before the loop can change anything."""
        optimizer = self.subject.optimizer
        self._had_memory = optimizer is not None and any(optimizer.state.values())
        self._sample_parameter.leave(self._schedule.is_close)

    def _look_at_average(self) -> None:
        """Between two updates: the EMA before the last one, the EMA now, and the weights."""
        old, keep = self._old_average, self._schedule.is_about_average
        if old is None and not keep:
            return
        now = self._averaged()
        live = [parameter for _, parameter in self._named]
        if now is not None and old is not None and len(old) == len(now) == len(live):
            self._told |= self._ask("average", lambda: look_at_average(old, now, live))
        self._old_average = [each.clone() for each in now] if keep and now is not None else None

    def _look_at_memory(self) -> None:
        """The optimizer's state must still be there at its next step."""
        optimizer = self.subject.optimizer
        if optimizer is not None and self._had_memory:
            forgotten = not any(optimizer.state.values())
            if forgotten or self._schedule.seen < REMEMBERS:
                self._told[checks.OPTIMIZER_FORGOTTEN] = float(forgotten)

    def _averaged(self) -> list[Tensor] | None:
        return None if self.subject.average is None else self.subject.average()

    def _after_update(self, micro_batches_seen: Sequence[ForwardPass]) -> list[PendingReading]:
        self._stand(checks.ACCUMULATION_MICRO_BATCHES, float(len(micro_batches_seen)))
        self._stand(checks.ACCUMULATION_BACKWARDS, float(self._hooks.take_backwards()))
        self._tells_all = micro_batches_seen[-1].tells_all
        told, self._told = self._told, {}
        pieces: list[PendingReading] = []
        if self._is_glanced(micro_batches_seen[-1].loss):
            pieces += self._look(micro_batches_seen)
        if self._before is not None or self._schedule.seen == 0:
            self._hooks.busy = True
            try:
                told |= self._look_deep(micro_batches_seen)
            finally:
                self._hooks.busy = False
        else:
            self._previous = None
        if told:
            pieces.append(PendingReading((), lambda: checked(told)))
        self._schedule.turn()
        for found in self._heard:
            self._schedule.listen(found)
        self._heard.clear()
        self._calls = 0
        return pieces

    def _is_glanced(self, loss: Tensor) -> bool:
        """On the host, where numbers are read without waiting, also steps with an unusual loss; on a device all steps,
        which costs almost nothing."""
        return self._schedule.is_glanced or loss.device.type != "cpu" or self._schedule.is_odd(float(loss.mean()))

    @torch.no_grad()
    def _look(self, micro_batches_seen: Sequence[ForwardPass]) -> list[PendingReading]:
        """Without waiting for the device."""
        pieces: list[PendingReading] = []
        if (seen := glance(micro_batches_seen[-1])) is not None:
            pieces.append(self._piece(seen[1], functools.partial(read_glance, seen[0])))
        return pieces + self._look_closely(micro_batches_seen) if self._schedule.is_close else pieces

    def _look_closely(self, micro_batches_seen: Sequence[ForwardPass]) -> list[PendingReading]:
        self._came = self._hooks.take_came()
        scalars = self._sample_parameter.look() | self._averaged_sample | self._hooks.take_carried()
        scalars |= self._hooks.take_unheard()
        scalars |= {checks.SENTINEL_CAME: self._came} if scalars else {}
        scalars |= (
            look_at_noising(micro_batches_seen[-1], self.declared)
            if self._schedule.is_about_noising
            else look_at_batch(micro_batches_seen[-1])
        )
        pieces: list[PendingReading] = []
        if scalars:
            device = next(iter(scalars.values())).device
            stacked = torch.stack([value.detach().to(device, torch.float32).reshape(()) for value in scalars.values()])
            pieces.append(self._piece(stacked, functools.partial(_named, tuple(scalars))))
        prints = [prints_of(micro_batch) for micro_batch in micro_batches_seen]
        if names := tuple(prints[0]):
            joined = tuple(torch.cat([each[name].reshape(-1) for each in prints if name in each]) for name in names)
            pieces.append(PendingReading(joined, functools.partial(self._tell_stream, names)))
        return pieces

    def _look_deep(self, micro_batches_seen: Sequence[ForwardPass]) -> dict[str, float]:
        told: dict[str, float] = {}
        if self._schedule.seen == 0 and not self._looked_before:
            told |= self._first_look(micro_batches_seen)
        before, self._before = self._before, None
        if before is None:
            self._previous = None
            return told
        told |= self._ask("update", lambda: look_at_update(before, self._named))
        model = self.subject.model
        if self._is_replayed():
            previous = self._previous
            told |= self._ask("replay", lambda: replay_gradient(model, before, micro_batches_seen, previous))
            told |= {checks.REPLAY_CAME: float(self._came)} if checks.REPLAY_NORM in told else {}
        if self._is_searched():
            told |= self._ask("search", lambda: search_line(model, before, self._named, micro_batches_seen[-1]))
            told |= self._ask("labels", lambda: look_at_labels(model, before, micro_batches_seen[-1]))
            told |= self._ask("response", lambda: look_at_responses(model, before, micro_batches_seen[-1]))
        self._previous = before.gradients
        return told

    def _first_look(self, micro_batches_seen: Sequence[ForwardPass]) -> dict[str, float]:
        told: dict[str, float] = {}
        micro_batch = micro_batches_seen[-1]
        x = micro_batch.x0 if micro_batch.x0 is not None else micro_batch.input
        if x is not None:
            told[checks.BATCH_INTEGER] = float(not x.is_floating_point())
            told[checks.BATCH_DIMENSIONS] = float(x.dim())
            if not self._sampled and x.dim() > 1:
                told |= self.look_at_sampler(tuple(x.shape[1:]), float(x.detach().float().abs().max()))
        answer, target = micro_batch.answer, micro_batch.target
        if answer is not None and target is not None:
            told[checks.LOSS_SAME_SHAPE] = float(answer.shape == target.shape)
        model, timesteps = self.subject.model, self.declared.timesteps
        if self._has_room():
            old = {} if self._before is None else self._before.weights
            told |= self._ask("network", lambda: look_at_network(model, micro_batch, timesteps, old))
        return told

    def _piece(self, numbers: Tensor, read: Callable[[np.ndarray], dict[str, float]]) -> PendingReading:
        """Read at once on the host, so that no clock decides when an alarm is raised; else with its window."""
        if numbers.device.type == "cpu":
            self._heard.append(found := read(numbers.numpy()))
            return PendingReading((), lambda: checked(found))

        def finish(values: np.ndarray) -> dict[str, float]:
            found = read(values)
            self._schedule.listen(found)
            return checked(found)

        return PendingReading((numbers,), finish)

    def _tell_stream(self, names: tuple[str, ...], *vectors: np.ndarray) -> dict[str, float]:
        """Without the zeros of what did not repeat."""
        told = self._stream.look(**dict(zip(names, vectors, strict=True)))
        return checked({name: value for name, value in told.items() if value or not name.endswith(("again", "alike"))})

    def _ask(self, name: str, probe: Callable[[], Mapping[str, float]]) -> dict[str, float]:
        """A probe that fails is recorded once and not run again; the others continue."""
        if name in self.broken:
            return {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return dict(probe())
        except Exception as error:
            self.broken[name] = f"{type(error).__name__}: {error}"
            return {}


def checked(told: Mapping[str, float]) -> dict[str, float]:
    """By their names in the record."""
    return {f"{CHECK.name}/{name}": value for name, value in told.items()}


def _named(names: tuple[str, ...], numbers: np.ndarray) -> dict[str, float]:
    return dict(zip(names, numbers.tolist(), strict=True))


def _nothing() -> None: ...


def _is_float(data: Any) -> bool:
    kind = getattr(data, "dtype", None)
    if isinstance(kind, torch.dtype):
        return kind.is_floating_point
    return kind is None or np.issubdtype(kind, np.floating)
