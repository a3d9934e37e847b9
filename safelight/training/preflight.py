"""Before the first step: a few real steps with every probe looking, and everything put back as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from safelight import checks
from safelight.checkpoints.snapshot import Loaded
from safelight.config import Config
from safelight.data.images import hold_out
from safelight.diagnosis.case import Case, Remembered
from safelight.diagnosis.doctor import examine
from safelight.diagnosis.finding import Finding
from safelight.diffusion.sampling import Denoiser
from safelight.diffusion.schedule import make_schedule
from safelight.generate import Request, draw_from, make_denoiser
from safelight.monitors.modules import NAMED
from safelight.monitors.pool import Pool
from safelight.observing.row_check import RowCheck
from safelight.probes.inspection import Inspection, Subject, checked
from safelight.probes.micro_batch import Declared
from safelight.probes.sampler import look_at_guidance
from safelight.processes.group import ProcessGroup
from safelight.processes.reduction import Alone
from safelight.training.build import Parts, environment
from safelight.training.ema import MAIN
from safelight.vocabulary import CHECK, LEARNING_RATE

STEPS = 3
TRIED_STEPS = 20  # of the sampler


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found, and the readings that say so."""

    findings: list[Finding]
    static: Mapping[str, float]
    """Of what does not change with the steps: for the record of the run."""
    readings: Mapping[int, Mapping[str, float]]
    """Of the steps that were rehearsed."""
    parameters: Mapping[str, list[str]]
    """Names of those that are frozen or missing in the optimizer."""

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]


class Gathered:
    """A record of what was measured, in memory."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[str, float]] = {}

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        self.steps.setdefault(step, {}).update(numbers)

    def series(self) -> dict[str, tuple[list[int], list[float]]]:
        found: dict[str, tuple[list[int], list[float]]] = {}
        for step, numbers in sorted(self.steps.items()):
            for name, number in numbers.items():
                steps, values = found.setdefault(name, ([], []))
                steps.append(step)
                values.append(number)
        return found


def inspect(parts: Parts, say: Callable[[str], None], *, looked_before: bool = False) -> Inspection:
    """The probes on safelight's own step; the same that `safelight.watch` puts on anyone's."""
    config, state = parts.config, parts.state
    steps = max(TRIED_STEPS, config.sample.steps)  # what is tested is the formula, which few steps blur
    request = Request(0, 0, config.sample.sampler, steps, config.sample.guidance)

    def sampler(model: nn.Module, noise: Tensor) -> Tensor:
        return draw_from(model, noise, config, request)

    subject = Subject(
        state.model,
        state.optimizer if state.weights.shard is None else None,  # else it holds other tensors than the model
        lambda: state.averages.shadows[MAIN],
        sampler,
        None if looked_before else _images(parts),
        scaled=state.scale.active,
    )
    declared = Declared(make_schedule(config.diffusion).alphas_cumprod, config.diffusion.prediction)
    alone = parts.stepper.group.size == 1
    return Inspection(subject, declared, say, looked_before=looked_before, alone=alone)


def _images(parts: Parts) -> Tensor:
    """As the network is given them, each at most once."""
    return parts.batches.rows(0, 0, min(parts.batches.count, parts.config.train.batch_size)).images


def preflight(parts: Parts, say: Callable[[str], None]) -> Preflight:
    """State, gradients and randomness are those of before afterwards, to the last bit. Among several processes it is
    made by one alone, on its share of the batch."""
    if parts.state.weights.shard is not None:
        return _without_steps(parts, say)
    stepper = parts.stepper
    together = stepper.group, stepper.reduction
    if stepper.group.size > 1:
        stepper.group, stepper.reduction = ProcessGroup(), Alone()
    try:
        return _preflight(parts, say)
    finally:
        stepper.group, stepper.reduction = together


def _preflight(parts: Parts, say: Callable[[str], None]) -> Preflight:
    kept = _Kept(parts)
    gathered = Gathered()
    step = parts.state.counters.step
    inspection = inspect(parts, say)
    static = _static(parts, inspection)
    gathered.add(step, static)
    inspection.attach()
    parts.stepper.inspection = inspection
    try:
        first = _rehearse(parts, gathered, step)
        kept.put_back()
        gathered.add(step, checked(_round_trip(parts, first, step)))
    finally:
        inspection.close()
        parts.stepper.inspection = None
        kept.put_back()
    names = {kind: list(found)[:NAMED] for kind, found in inspection.names().items() if found}
    case = Case(Remembered(gathered.series(), [(step, "parameters", names)]), parts.config)
    found = [finding for finding in examine(case) if finding.over is None]
    fixed = {name: value for name, value in gathered.steps[step].items() if name.startswith(STATIC)}
    return Preflight(found, static | fixed, gathered.steps, names)


def _static(parts: Parts, inspection: Inspection) -> dict[str, float]:
    """What is known without a step."""
    static = inspection.at_start() | ask_guidance(parts.config) | checked(_overlap(parts))
    if parts.config.data.balance:  # the same image may be drawn twice, and rightly
        static = {name: value for name, value in static.items() if "duplicates" not in name}
    return static


def _without_steps(parts: Parts, say: Callable[[str], None]) -> Preflight:
    """Of divided weights, for one process: every pass of the network would take all of them."""
    inspection, step = inspect(parts, say), parts.state.counters.step
    try:
        static = _static(parts, inspection)
    finally:
        inspection.close()
    series = {name: ([step], [value]) for name, value in static.items()}
    found = [finding for finding in examine(Case(Remembered(series, []), parts.config)) if finding.over is None]
    return Preflight(found, static, {step: static}, {})


STATIC = tuple(f"{CHECK.name}/{name}/" for name in ("network", "sampler", "checkpoint", "batch/dim", "batch/integer"))


def _rehearse(parts: Parts, gathered: Gathered, step: int) -> list[Tensor]:
    """The weights after each of a few real steps."""
    pool, ledger = Pool(gathered), RowCheck(parts.config, parts.images, parts.engine.send)
    for number in range(step, step + STEPS):
        inputs = [micro.moved(parts.engine.send) for micro in parts.feed.prepare(number)]
        view = parts.stepper.take(inputs, number)
        pool.add(number, [*view.readings, *ledger.look(view)], {LEARNING_RATE.name: view.lr})
    pool.flush()
    return [value.detach().clone() for value in parts.state.model.state_dict().values()]


def _round_trip(parts: Parts, first: list[Tensor], step: int) -> dict[str, float]:
    """Saved after one step, loaded, and trained on: the weights must be those of the steps without that."""
    state, stepper = parts.state, parts.stepper
    stepper.inspection = None

    def take(number: int) -> None:
        stepper.take([micro.moved(parts.engine.send) for micro in parts.feed.prepare(number)], number)

    take(step)
    snapshot = state.snapshot(environment())
    live = _everything(parts)
    loaded = Loaded(snapshot.step, Path("memory"), snapshot.tensors, dict(snapshot.state), {})
    state.optimizer.state.clear()
    with torch.no_grad():
        for tensors in (*state.averages.shadows.values(), list(state.model.parameters())):
            for tensor in tensors:
                tensor.add_(1)  # what a snapshot does not hold must not be right by having been there before
    state.restore(loaded)
    told = {str(checks.CHECKPOINT[name]): _apart(own, live[name]) for name, own in _everything(parts).items()}
    for number in range(step + 1, step + STEPS):
        take(number)
    told[checks.CHECKPOINT_STEP] = _apart([v.detach() for v in state.model.state_dict().values()], first)
    return told


def _everything(parts: Parts) -> dict[str, list[Tensor]]:
    state = parts.state
    moments = [v for p in state.model.parameters() for v in state.optimizer.state.get(p, {}).values()]
    return {
        "model": [value.detach().clone() for value in state.model.state_dict().values()],
        "average": [value.clone() for track in state.averages.shadows.values() for value in track],
        "optimizer": [value.clone() for value in moments if isinstance(value, Tensor)],
    }


def _apart(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The share of tensors that are not the same, to the last bit."""
    if len(ours) != len(theirs):
        return 1.0
    return sum(not torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)) / max(1, len(ours))


def ask_guidance(config: Config) -> dict[str, float]:
    if not config.model.conditional or (config.data.classes or 0) < 2:
        return {}
    shape = (2, config.data.channels or 3, config.data.image_size, config.data.image_size)
    request = Request(0, 0, config.sample.sampler, config.sample.steps)

    def denoiser(model: nn.Module, scale: float) -> Denoiser:
        return make_denoiser(model, None, config, replace(request, guidance=scale), torch.arange(2))

    return checked(look_at_guidance(denoiser, shape))


def _overlap(parts: Parts) -> dict[str, float]:
    """Whether images that are held out are trained on."""
    _, held = hold_out(parts.images, parts.config.data.held_out)
    if not len(held):
        return {}
    return {checks.DATA_HELD_OUT_OVERLAP: float(np.isin(held, parts.feed.batches.drawn_from()).mean())}


class _Kept:
    """A copy of everything that a step changes, and the way back."""

    def __init__(self, parts: Parts) -> None:
        state = parts.state
        self._state, self._counters = state, state.counters
        self._weights = [(v, v.detach().clone()) for v in (*state.model.parameters(), *state.model.buffers())]
        self._averages = {track: [v.clone() for v in values] for track, values in state.averages.shadows.items()}
        self._moments = {
            p: {k: v.clone() if isinstance(v, Tensor) else v for k, v in kept.items()}
            for p, kept in state.optimizer.state.items()
        }
        self._groups = [{k: v for k, v in group.items() if k != "params"} for group in state.optimizer.param_groups]
        self._running = state.clipper.running.clone()
        self._scale = (state.scale.scale.clone(), state.scale.good_steps.clone())
        self._monitors = {name: value.clone() for name, value in state.monitors.state().items()}
        self._random = torch.get_rng_state()
        self._modes = {module: module.training for module in state.model.modules()}

    @torch.no_grad()
    def put_back(self) -> None:
        state = self._state
        for value, before in self._weights:
            value.copy_(before)
        for track, values in self._averages.items():
            for value, before in zip(state.averages.shadows[track], values, strict=True):
                value.copy_(before)
        state.optimizer.zero_grad(set_to_none=True)
        state.optimizer.state.clear()
        for parameter, kept in self._moments.items():
            state.optimizer.state[parameter] = {k: v.clone() if isinstance(v, Tensor) else v for k, v in kept.items()}
        for group, before in zip(state.optimizer.param_groups, self._groups, strict=True):
            group.update(before)
        state.clipper.running = self._running.clone()
        state.scale.scale, state.scale.good_steps = (value.clone() for value in self._scale)
        state.monitors.restore({name: value.clone() for name, value in self._monitors.items()})
        state.counters = self._counters
        torch.set_rng_state(self._random)
        for module, training in self._modes.items():
            module.training = training
