"""What probes measure: one micro-batch as the loop made it, and what the loop declares."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from safelight.diffusion.process import SIGMA_DATA, Process, per_sample, vp
from safelight.diffusion.schedulers import Family
from safelight.diffusion.targets import TargetCoefficients, make_target
from safelight.model.calls import answer_of
from safelight.probes.random_state import kept_random_state

IMAGES = ("sample", "hidden_states", "x", "x_t", "noisy", "latents", "input")
TIMES = (
    "timestep",
    "timesteps",
    "t",
    "time",
    "times",
    "sigma",
    "sigmas",
    "noise_labels",
    "noise_level",
    "noise_levels",
)
BACKWARD = 2.0  # forward passes that a backward pass costs
STEP = 1 + BACKWARD
NARROW_TIME_RANGE = 10.0  # between the first and the last time: a sinusoidal embedding is made for 1,000
LABELS = ("class_labels", "labels", "label", "y", "classes", "class_cond", "c", "cond")


@dataclass(frozen=True)
class ProcessSpec:
    """What a loop declares; all of it is optional."""

    alphas: Tensor | None = None
    """alphas_cumprod, float64 [timesteps] on the CPU."""
    prediction: str | None = None
    continuous: Process | None = None
    """The process of continuous time, instead of a table."""
    sigma_data: float = SIGMA_DATA
    family: Family | None = None
    """The family of continuous time, before it is known how the loop writes it."""
    any_scale: bool = False
    """x_t may be scaled."""
    draws: np.ndarray | None = field(default=None, repr=False, compare=False)
    """In continuous time: times that the loop has drawn."""
    is_told: bool = True
    """Whether it is known what the network is told of a time."""
    is_seen: bool = False
    """Nothing was declared: this was recognised in what the loop passes."""

    @property
    def timesteps(self) -> int | None:
        return None if self.alphas is None else len(self.alphas)

    @functools.cached_property
    def process(self) -> Process | None:
        return self.continuous if self.alphas is None else vp(self.alphas)

    @property
    def can_sample(self) -> bool:
        """Whether a sampler can be driven: it is known what a network is asked for, shown and told."""
        return self.process is not None and self.prediction is not None and self.is_told

    @functools.cached_property
    def tells_little(self) -> bool:
        """Whether a network is told times that hardly differ, as log σ / 4 of EDM; it learns from them all the same."""
        process = self.process
        if process is None or process.c_noise is None:
            return False
        first, last = process.c_noise(torch.tensor([process.first, process.last], dtype=torch.float64)).tolist()
        return abs(last - first) < NARROW_TIME_RANGE

    def target(self, prediction: str) -> TargetCoefficients:
        return make_target(prediction, self.sigma_data)

    def covers(self, t: Tensor) -> Tensor:
        """Whether each time is one at which the process is known: a recognised one was read off at the times that had
        been drawn by then, and is the same at its ends as beyond them."""
        if self.process is None or not self.is_seen:
            return torch.ones_like(t, dtype=torch.bool)
        low, high = sorted((self.process.first, self.process.last))
        return (t >= low) & (t <= high)

    def coefficients(self, t: Tensor, like: Tensor) -> tuple[Tensor, Tensor] | None:
        """(a, s) at `t`, shaped to scale whole samples; None if t is not a time of the process."""
        process = self.process
        if process is None or t.shape != like.shape[:1]:
            return None
        # Whole times of continuous ones say nothing, before it was seen what the loop means by them.
        if t.is_floating_point() != (process.table is None) and (process.table is not None or self.draws is None):
            return None
        t = t if process.timesteps is None else t.clamp(0, process.timesteps - 1)
        t = t.detach()
        a, s = (per_sample(each, like).to(like.dtype) for each in process.at(t))
        return a, s


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the network that can be repeated."""

    inputs: tuple[Any, ...]
    named: Mapping[str, Any]
    output: Tensor | None = None
    training: bool = True
    half: torch.dtype | None = None
    """The type of autocast, if it was on."""
    random: Tensor | None = None
    """The random state of the host just before."""
    parameters: tuple[str, ...] = ()
    """What the network calls its first inputs; as many as are known."""

    @property
    def x(self) -> Tensor | None:
        """The noised images: by their name, else the first input of the shape of the output, else the first at all."""
        found = [(name, value) for name, value in self._tensors() if value.dim() > 1]
        named = (value for name, value in found if name in IMAGES and value.is_floating_point())
        shape = None if self.output is None else self.output.shape
        alike = (value for _, value in found if value.shape == shape)
        return next(named, next(alike, next((value for _, value in found), None)))

    @property
    def t(self) -> Tensor | None:
        """One for each sample."""
        raw = self._time
        return raw if raw is None or raw.dim() == 1 else raw.reshape(-1)

    @property
    def _time(self) -> Tensor | None:
        """As it was passed: [batch], or with dimensions of 1 behind. One of a usual name, the second input, or the only
        vector that is passed by position, as in model(t, x)."""
        found = self._found(1, TIMES)
        if found is None:
            vectors = [value for value in self.inputs if self._is_of_samples(value) and value.dim() == 1]
            found = vectors[0] if len(vectors) == 1 and vectors[0].is_floating_point() else None
        return found

    @property
    def labels(self) -> Tensor | None:
        found = self._found(2, LABELS)
        return found if found is None or found.dim() == 1 else None

    @property
    def conditions(self) -> list[Tensor]:
        """Everything with an entry for each sample but the images and the time, also inside of dicts and lists."""
        x, time = self.x, self._time
        if x is None:
            return []
        return [
            value
            for _, value in self._tensors()
            if value is not x and value is not time and value.dim() and len(value) == len(x) and value.numel()
        ]

    def _is_of_samples(self, value: Any) -> bool:
        """One number for each sample."""
        x = self.x
        return isinstance(value, Tensor) and x is not None and value.dim() > 0 and value.numel() == len(value) == len(x)

    def _found(self, place: int, names: tuple[str, ...]) -> Tensor | None:
        """The first of these inputs that has one number for each sample: a network with forward(x, c, t) has its
        time in another place than most."""
        by_name, by_place = dict(self._tensors()), dict(zip(self.parameters, self.inputs, strict=False))
        named = [by_place.get(name) for name in names]
        values = [*named, *self.inputs[place : place + 1], *(by_name.get(name) for name in names)]
        return next((value for value in values if value is not self.x and self._is_of_samples(value)), None)

    def _tensors(self) -> list[tuple[str, Tensor]]:
        """All inputs that are tensors, with the name of the argument or the key that holds them."""
        found: list[tuple[str, Tensor]] = []

        def add(name: str, value: Any) -> None:
            if isinstance(value, Tensor):
                found.append((name, value))
            elif isinstance(value, Mapping):
                for key, each in value.items():
                    add(str(key), each)
            elif isinstance(value, list | tuple):
                for each in value:
                    add(name, each)

        for value in self.inputs:
            add("", value)
        for name, value in self.named.items():
            add(name, value)
        return found

    def with_changes(self, *, x: Tensor | None = None, t: Tensor | None = None, labels: Tensor | None = None) -> Call:
        """The same call with other values in the same places."""
        raw = self._time
        times = t if t is None or raw is None else t.reshape(-1, *raw.shape[1:])
        swaps = [(old, new) for old, new in ((self.x, x), (raw, times), (self.labels, labels)) if new is not None]

        return self._map(lambda value: next((new for old, new in swaps if value is old), value))

    def with_conditions(self, change: Callable[[Tensor], Tensor]) -> Call:
        """The same call with other conditions."""
        found = self.conditions
        return self._map(lambda value: change(value) if any(value is each for each in found) else value)

    def of_first(self, count: int) -> Call:
        """On the first samples only: everything with one entry for each sample is cut."""
        size = 0 if self.x is None else len(self.x)

        def cut(value: Any) -> Any:
            return value[:count] if isinstance(value, Tensor) and value.dim() and len(value) == size else value

        return self._map(cut)

    def detached(self) -> Call:
        return self._map(lambda value: value.detach() if isinstance(value, Tensor) else value)

    def _map(self, change: Callable[[Any], Any]) -> Call:
        def changed(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: changed(each) for key, each in value.items()}
            if type(value) in (list, tuple):
                return type(value)(map(changed, value))
            return change(value)

        named = {name: changed(value) for name, value in self.named.items()}
        return replace(self, inputs=tuple(map(changed, self.inputs)), named=named, output=change(self.output))

    def again(self, model: nn.Module, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """The output of this call, with the autocast and the random state that it had. With other `weights`, the
        buffers that a pass may move are copies as well."""
        kind = "cpu" if self.x is None else self.x.device.type
        cast = torch.autocast(kind, dtype=self.half, enabled=self.half is not None)
        with kept_random_state(), torch.random.fork_rng(), cast:
            if self.random is not None:
                torch.set_rng_state(self.random)
            if weights is None:
                answer = answer_of(model(*self.inputs, **self.named))
            else:
                state = {name: value.clone() for name, value in model.named_buffers()} | dict(weights)
                answer = answer_of(functional_call(model, state, self.inputs, dict(self.named)))
        assert answer is not None, "the network returned a tensor before"
        return answer


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """One micro-batch; references to what the loop has, held until the next step."""

    loss: Tensor
    t: Tensor | None = None
    x0: Tensor | None = None
    noise: Tensor | None = None
    x_t: Tensor | None = None
    target: Tensor | None = None
    pred: Tensor | None = None
    labels: Tensor | None = None
    call: Call | None = field(default=None, repr=False)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What is known, by the names of `Watch.step`."""
        found = {name: getattr(self, name) for name in ("t", "x0", "noise", "x_t", "target", "pred", "labels")}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def is_complete(self) -> bool:
        """Whether the loop passes what a call would show."""
        return self.t is not None and self.x_t is not None and self.pred is not None

    @property
    def replayable(self) -> tuple[Call, Tensor] | None:
        """The call and its target, where the error of the call can be computed again."""
        call, target = self.call, self.target
        if call is None or target is None or call.output is None or call.output.shape != target.shape:
            return None
        return call, target.detach()

    @property
    def input(self) -> Tensor | None:
        """The input of the network: as it was passed, or as it was seen."""
        return self.x_t if self.x_t is not None or self.call is None else self.call.x

    @property
    def times(self) -> Tensor | None:
        return self.t if self.t is not None or self.call is None else self.call.t

    @property
    def answer(self) -> Tensor | None:
        return self.pred if self.pred is not None or self.call is None else self.call.output


class Repeats:
    """Of one step: probes share the answers that several of them need."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.passes = 0.0
        """Forward passes of a single sample."""
        self._answers: dict[tuple[str, int], Tensor] = {}

    def answer(self, call: Call, weights: Mapping[str, Tensor]) -> Tensor:
        self.passes += 0 if call.x is None else len(call.x)
        return call.again(self.model, weights)

    def book_backward(self, call: Call) -> None:
        self.passes += 0 if call.x is None else BACKWARD * len(call.x)

    @torch.no_grad()
    def answer_before(self, call: Call, weights: Mapping[str, Tensor]) -> Tensor:
        """To the first samples of the step's call, by the weights from before the update."""
        return self._once("as it was", call, lambda: self.answer(call, weights))

    @torch.no_grad()
    def answer_to_other_labels(self, call: Call, weights: Mapping[str, Tensor]) -> Tensor:
        """The same where each sample has the label of another."""
        assert call.labels is not None
        changed = call.with_changes(labels=of_others(call.labels))
        return self._once("labels", call, lambda: self.answer(changed, weights))

    def _once(self, kind: str, call: Call, make: Callable[[], Tensor]) -> Tensor:
        key = kind, 0 if call.x is None else len(call.x)
        if key not in self._answers:
            self._answers[key] = make()
        return self._answers[key]


def of_others(values: Tensor) -> Tensor:
    """The rows of other samples."""
    return values.roll(max(1, len(values) // 2), 0)
