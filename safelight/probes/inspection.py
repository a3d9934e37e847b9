"""The probes of one run in the order it meets them: at its start, at every step, and deeper at a few of them."""

from __future__ import annotations

import functools
import math
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from safelight.diagnosis.rules.target import KINDS
from safelight.model.memory import available_memory
from safelight.monitors.modules import trained
from safelight.monitors.pool import Piece
from safelight.probes.average import look_at_average
from safelight.probes.dataset import look_at_images, take_images
from safelight.probes.network import look_at_network
from safelight.probes.noising import look_at_answers, look_at_batch, look_at_noising
from safelight.probes.replay import (
    Before,
    dense,
    keep_before,
    look_at_labels,
    look_at_update,
    replay_gradient,
    search_line,
)
from safelight.probes.sampler import Sampler, accepts, look_at_sampler
from safelight.probes.settings import look_at_names, look_at_optimizer, look_at_schedule
from safelight.probes.specimen import Call, Declared, Specimen, call_of
from safelight.probes.stream import Stream, prints_of
from safelight.vocabulary import CHECK

ALWAYS, EVERY = 16, 16  # the first steps are looked at closely, and then every so many
REPLAYED_FIRST = 3
COPIES = 6  # times the weights: what a replay holds for the length of a step
PATIENCE = 32  # steps between two replays that an alarm asks for; doubled by every alarm for nothing
LEAP = 3.0  # times the usual: an alarm, not a finding
HALF = {torch.float16: 1.0, torch.bfloat16: 2.0}

Average = Callable[[], list[Tensor] | None]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is inspected; everything but the model may be missing."""

    model: nn.Module
    optimizer: torch.optim.Optimizer | None = None
    average: Average | None = None
    sampler: Sampler | None = None
    data: Any = None
    scaled: bool = False
    """Whether a gradient scaler is in use."""


class Inspection:
    """Measures and tells; the training is told nothing. Deep looks wait for the device, and there are few of them."""

    def __init__(
        self, subject: Subject, declared: Declared, say: Callable[[str], None], *, looked_before: bool = False
    ) -> None:
        """`looked_before`: the network and the sampler were looked at by a preflight."""
        self.subject, self.declared, self._say = subject, declared, say
        self._looked_before = looked_before
        self._named = trained(subject.model)
        self._stream = Stream(declared.timesteps)
        self._seen = 0  # updates
        self._before: Before | None = None
        self._previous: dict[str, Tensor | None] | None = None
        self._old_average: list[Tensor] | None = None
        self._call_average: list[Tensor] | None = None
        self._sentinel = _sentinel([p for _, p in self._named])
        self._kept: tuple[Tensor, Tensor | None] | None = None
        self._last_gradient: Tensor | None = None
        self._alarmed, self._quiet_until, self._patience = 0, 0, PATIENCE
        self._usual: dict[str, float] = {}
        self._told: dict[str, float] = {}  # measured on the host since the last step was told
        self._calls, self._sampled = 0, False
        self._had_memory, self._backwards = False, 0
        self._counts: dict[str, float] = {}  # told where they change
        self.busy = False  # while the network is called by a probe
        self._call: Call | None = None
        self._random: Tensor | None = None
        self._undo: list[Callable[[], None]] = []
        self._came: Tensor | None = None  # the sentinel's gradient as it came out of the backward pass
        self._head = self._named[-1][1] if self._named else None
        for parameter in {id(p): p for p in (self._sentinel, self._head) if p is not None}.values():
            see = weakref.WeakMethod(self._see_gradient)  # torch holds it where no garbage collector looks
            hook = parameter.register_post_accumulate_grad_hook(lambda p, see=see: (see() or _ignore)(p))
            self._undo.append(hook.remove)
        self.broken: dict[str, str] = {}  # probes that could not be asked, and why

    # --- before the first step ------------------------------------------------------------------------------------

    def at_start(self) -> dict[str, float]:
        """All that is known before anything was trained."""
        told: dict[str, float] = {}
        alphas, subject = self.declared.alphas, self.subject
        if alphas is not None:
            told |= self._ask("schedule", lambda: look_at_schedule(alphas, self.declared.prediction))
        if (optimizer := subject.optimizer) is not None:
            told |= self._ask("optimizer", lambda: look_at_optimizer(subject.model, optimizer))
        shape: tuple[int, ...] | None = None
        reach = 1.0
        if subject.data is not None:
            images = self._ask_for_images()
            if images is not None:
                whole = not np.issubdtype(images.dtype, np.floating) or not _is_float(subject.data)
                told |= self._ask("data", lambda: look_at_images(images, whole))
                shape = tuple(images.shape[1:])
                reach = max(abs(told.get("data/lowest", 1.0)), abs(told.get("data/highest", 1.0)))
        if shape is not None and not told.get("data/integer"):
            told |= self.look_at_sampler(shape, reach)
        if (prediction := self.declared.prediction) is not None:
            told["target/declared"] = float(KINDS.index(prediction))
        told["precision/scaled"] = float(subject.scaled)
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

    def _ask_for_images(self) -> np.ndarray | None:
        try:
            return take_images(self.subject.data)
        except Exception as error:
            self.broken["data"] = str(error)
            return None

    # --- at every step --------------------------------------------------------------------------------------------

    def _is_deep(self) -> bool:
        n = self._seen
        planned = n < REPLAYED_FIRST or (n >= 64 and _is_power(n, 8))
        return (planned or self._alarmed > 0) and self._has_room()

    def _is_searched(self) -> bool:
        n = self._seen
        often = n in (1, 4, 16) or (n >= 32 and (_is_power(n, 2) or (n % 3 == 0 and _is_power(n // 3, 2))))
        return (often or n % 1024 == 1023) and self._has_room()

    def _has_room(self) -> bool:
        size = sum(p.numel() * p.element_size() for _, p in self._named)
        device = next(self.subject.model.parameters()).device
        return size < 64_000_000 or available_memory(device) > COPIES * size

    def attach(self, on_call: Callable[[], None] | None = None) -> None:
        """Listens to the network from now on; `on_call` before every call with gradients that is not a probe's."""
        model = self.subject.model

        def before(*_: object) -> None:
            if self._is_heard():
                self._random = torch.get_rng_state() if self._is_deep() else None
                if on_call is not None:
                    on_call()

        def after(network: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
            if self._is_heard():
                self._guarded(lambda: self._on_call(call_of(network, inputs, named, output, self._random)))

        self._undo.append(model.register_forward_pre_hook(before).remove)
        self._undo.append(model.register_forward_hook(after, with_kwargs=True).remove)

    def _is_heard(self) -> bool:
        """Neither samples that are drawn meanwhile, nor calls of our own."""
        return torch.is_grad_enabled() and not self.busy and not torch.compiler.is_compiling()

    def take_call(self) -> Call | None:
        """The last call of the network, once."""
        call, self._call = self._call, None
        return call

    def close(self) -> None:
        undo, self._undo = self._undo, []
        for each in undo:
            each()

    def forget(self) -> None:
        """After going back to an earlier step: what comes again then comes rightly."""
        self._stream = Stream(self.declared.timesteps)
        self._before, self._previous, self._old_average, self._call_average = None, None, None, None
        self._kept, self._last_gradient, self._had_memory = None, None, False
        self._told.clear()

    def _see_gradient(self, parameter: Tensor) -> None:
        if self.busy:
            return
        self._backwards += parameter is self._head
        if self._is_deep() and parameter.grad is not None:
            norm = dense(parameter.grad).float().norm()
            self._came = norm if self._came is None else torch.maximum(self._came, norm.to(self._came.device))

    def before_update(self) -> None:
        """Gradients are there, weights are still the old ones, and the average has seen the update before."""
        self._guarded(self._before_update)

    def after_update(self, specimens: Sequence[Specimen]) -> list[Piece]:
        """What was seen of the step; readings come when the pieces are brought to the host."""
        pieces: list[Piece] = []
        self._guarded(lambda: pieces.extend(self._after_update(specimens)))
        return pieces

    def _guarded(self, act: Callable[[], None]) -> None:
        """A fault of the inspection switches it off, and nothing else."""
        if "inspection" not in self.broken:
            try:
                act()
            except Exception as error:
                self.broken["inspection"] = f"{type(error).__name__}: {error}"
                self._say(f"Safelight's probes stopped ({self.broken['inspection']}); everything else goes on.")

    def _on_call(self, call: Call) -> None:
        """Once for every micro-batch."""
        self._call = call
        self._told["mode/training"] = float(call.training)
        self._told["precision/half"] = 0.0 if call.half is None else HALF.get(call.half, 0.0)
        self._calls += 1
        if 0 < self._seen <= REPLAYED_FIRST:  # an average may only move with an update, not between micro-batches
            now = self._averaged()
            if self._calls == 1:
                self._call_average = None if now is None else [each.clone() for each in now]
            elif now is not None and self._call_average is not None:
                moved = not all(map(torch.equal, now, self._call_average))
                self._told["average/between"] = max(self._told.get("average/between", 0.0), float(moved))

    @torch.no_grad()
    def _before_update(self) -> None:
        self._look_at_average()
        self._look_at_memory()
        deep = self._is_deep()
        if deep or self._is_searched():
            self._before = keep_before(self._named, self.subject.optimizer)
        if self._sentinel is not None:
            grad = self._sentinel.grad
            self._kept = (self._sentinel.detach().clone(), None if grad is None else dense(grad))

    def _look_at_average(self) -> None:
        """Between two updates: what the average was before the last one, what it is now, and what it should follow."""
        old, keep = self._old_average, self._seen < REPLAYED_FIRST or self._seen % EVERY == 0
        now = self._averaged() if keep or old is not None else None
        live = [parameter for _, parameter in self._named]
        if now is not None and old is not None and len(old) == len(now) == len(live):
            self._told |= self._ask("average", lambda: look_at_average(old, now, live))
        self._old_average = [each.clone() for each in now] if keep and now is not None else None

    def _look_at_memory(self) -> None:
        """What an optimizer has gathered must still be there at its next step."""
        optimizer = self.subject.optimizer
        if optimizer is not None and self._had_memory and self._seen < ALWAYS:
            self._told["optimizer/forgotten"] = float(not any(optimizer.state.values()))

    def _averaged(self) -> list[Tensor] | None:
        return None if self.subject.average is None else self.subject.average()

    def _after_update(self, specimens: Sequence[Specimen]) -> list[Piece]:
        told, self._told = self._told, {}
        scalars: dict[str, Tensor] = {}
        with torch.no_grad():
            scalars |= look_at_answers(specimens[-1])
            if self._seen < ALWAYS or self._seen % EVERY == 0:
                scalars |= look_at_noising(specimens[-1], self.declared)
            else:
                scalars |= look_at_batch(specimens[-1])
            scalars |= self._look_at_sentinel()
        self.busy = True
        try:
            told |= self._look_deep(specimens)
        finally:
            self.busy = False
        pieces = [Piece((), lambda: checked(told))] if told else []
        if scalars:
            device = next(iter(scalars.values())).device
            stacked = torch.stack([value.detach().to(device, torch.float32).reshape(()) for value in scalars.values()])
            pieces.append(Piece((stacked,), functools.partial(self._tell, tuple(scalars))))
        prints = [prints_of(specimen) for specimen in specimens]
        if names := tuple(prints[0]):
            joined = tuple(torch.cat([each[name].reshape(-1) for each in prints if name in each]) for name in names)
            pieces.append(Piece(joined, functools.partial(self._tell_stream, names)))
        optimizer = self.subject.optimizer
        self._had_memory = optimizer is not None and any(optimizer.state.values())
        counts = {"accumulation/micro_batches": float(len(specimens)), "accumulation/backwards": float(self._backwards)}
        self._backwards = 0
        if changed := {name: count for name, count in counts.items() if self._counts.get(name) != count}:
            self._counts |= changed
            pieces.append(Piece((), functools.partial(checked, changed)))
        self._seen += 1
        self._calls = 0
        return pieces

    def _look_at_sentinel(self) -> dict[str, Tensor]:
        """One tensor that is small: does it move at all, and is its gradient that of the step before?"""
        if self._sentinel is None or self._kept is None:
            return {}
        (old, grad), self._kept = self._kept, None
        found = {"sentinel/moved": (self._sentinel.detach() != old).any().float()}
        if grad is not None:
            found["sentinel/gradient"] = grad.float().norm()
            last, self._last_gradient = self._last_gradient, grad
            if last is not None:
                found["sentinel/echo"] = nn.functional.cosine_similarity(
                    grad.float().flatten(), last.float().flatten(), dim=0
                )
        return found

    def _look_deep(self, specimens: Sequence[Specimen]) -> dict[str, float]:
        told: dict[str, float] = {}
        if self._seen == 0 and not self._looked_before:
            told |= self._first_look(specimens)
        before, self._before = self._before, None
        if before is None:
            self._previous = None
            return told
        told |= self._ask("update", lambda: look_at_update(before, self._named))
        came, self._came = self._came, None
        told["replay/came"] = -1.0 if came is None else float(came)
        model = self.subject.model
        if self._is_deep():
            previous = self._previous
            told |= self._ask("replay", lambda: replay_gradient(model, before, specimens, previous))
            self._alarmed = max(0, self._alarmed - 1)
        if self._is_searched():
            told |= self._ask("search", lambda: search_line(model, before, self._named, specimens[-1]))
            told |= self._ask("labels", lambda: look_at_labels(model, before, specimens[-1]))
        self._previous = before.gradients
        return told

    def _first_look(self, specimens: Sequence[Specimen]) -> dict[str, float]:
        told: dict[str, float] = {}
        specimen = specimens[-1]
        x = specimen.x0 if specimen.x0 is not None else specimen.input
        if x is not None:
            told["batch/integer"] = float(not x.is_floating_point())
            told["batch/dimensions"] = float(x.dim())
            if not self._sampled and x.dim() > 1:
                told |= self.look_at_sampler(tuple(x.shape[1:]), float(x.detach().float().abs().max()))
        answer, target = specimen.answer, specimen.target
        if answer is not None and target is not None:
            told["loss/same_shape"] = float(answer.shape == target.shape)
        model, timesteps = self.subject.model, self.declared.timesteps
        if self._has_room():
            told |= self._ask("network", lambda: look_at_network(model, specimen, timesteps))
        return told

    def _tell(self, names: tuple[str, ...], numbers: np.ndarray) -> dict[str, float]:
        found = dict(zip(names, numbers.tolist(), strict=True))
        self._listen(found)
        return checked({k: v for k, v in found.items() if not (k.startswith("finite/") and v == 1.0)})

    def _tell_stream(self, names: tuple[str, ...], *vectors: np.ndarray) -> dict[str, float]:
        """Without the noughts of what did not come back."""
        told = self._stream.look(**dict(zip(names, vectors, strict=True)))
        return checked({name: value for name, value in told.items() if value or not name.endswith(("again", "alike"))})

    def _listen(self, found: Mapping[str, float]) -> None:
        """Something unlike the steps before asks for a replay; alarms for nothing ask ever more rarely."""
        watched = {name: found[name] for name in ("loss/error", "sentinel/gradient") if name in found}
        leaps = found.get("sentinel/echo", 0.0) > 0.95 or found.get("sentinel/moved", 1.0) == 0
        for name, number in watched.items():
            usual = self._usual.get(name)
            if not math.isfinite(number) or number <= 0:
                continue
            if usual is not None and self._seen > ALWAYS and abs(math.log(number / usual)) > math.log(LEAP):
                leaps = True
            self._usual[name] = number if usual is None else usual * (number / usual) ** 0.1
        if leaps and self._seen >= self._quiet_until:
            self._alarmed = 2  # steps: the second is compared with the first
            self._patience *= 2
            self._quiet_until = self._seen + self._patience

    def _ask(self, name: str, probe: Callable[[], Mapping[str, float]]) -> dict[str, float]:
        """A probe that breaks is told once and not asked again; the others go on."""
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
    """By the names that answers of probes have in the record."""
    return {f"{CHECK.name}/{name}": value for name, value in told.items()}


def _ignore(_: Tensor) -> None: ...


def _is_power(n: int, base: int) -> bool:
    while n > 1 and n % base == 0:
        n //= base
    return n == 1


def _sentinel(parameters: Sequence[nn.Parameter]) -> nn.Parameter | None:
    """The largest matrix that is still small."""
    fit = [p for p in parameters if p.dim() > 1 and p.numel() <= 20_000] or [
        p for p in parameters if p.numel() <= 10**6
    ]
    return max(fit, key=lambda p: p.numel(), default=None)


def _is_float(data: Any) -> bool:
    kind = getattr(data, "dtype", None)
    if isinstance(kind, torch.dtype):
        return kind.is_floating_point
    return kind is None or np.issubdtype(kind, np.floating)
