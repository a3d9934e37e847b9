"""Before the first step: a few real steps with every probe, and everything put back as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from safelight import checks
from safelight.checkpoints.snapshot import Loaded
from safelight.config import Config
from safelight.data.images import hold_out
from safelight.diagnosis.doctor import examine
from safelight.diagnosis.finding import Finding
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory
from safelight.diffusion.sampling import Denoiser
from safelight.diffusion.schedule import make_schedule
from safelight.generate import Request, draw_from, make_denoiser
from safelight.monitors.modules import NAMED
from safelight.observing.observer import Observer
from safelight.observing.row_check import RowCheck
from safelight.probes.forward_pass import Declared
from safelight.probes.inspection import InspectedLoop, Inspection, checked
from safelight.probes.sampler import look_at_guidance
from safelight.training.build import Setup
from safelight.training.ema import MAIN
from safelight.training.step import Stepper
from safelight.vocabulary import CHECK, LEARNING_RATE

STEPS = 3
TRIED_STEPS = 20  # of the sampler


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found, and the readings that it was found by."""

    findings: list[Finding]
    static: Mapping[str, float]
    """What does not change with the steps: for the record of the run."""
    readings: Mapping[int, Mapping[str, float]]
    """Of the steps that were rehearsed."""
    parameters: Mapping[str, list[str]]
    """Names of those that are frozen or missing in the optimizer."""

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]


class Gathered:
    """A record in memory."""

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


def inspect(setup: Setup, say: Callable[[str], None], *, looked_before: bool = False) -> Inspection:
    """The probes on safelight's own step; the same that `safelight.watch` puts on anyone's."""
    config, state = setup.config, setup.state
    steps = max(TRIED_STEPS, config.sample.steps)  # what is tested is the formula, which few steps blur
    request = Request(0, 0, config.sample.sampler, steps, config.sample.guidance)

    def sampler(model: nn.Module, noise: Tensor) -> Tensor:
        return draw_from(model, noise, config, request)

    subject = InspectedLoop(
        state.model,
        state.optimizer if state.weights.shard is None else None,  # else it holds other tensors than the model
        lambda: state.ema.shadows[MAIN],
        sampler,
        None if looked_before else _images(setup),
        scaled=state.loss_scale.active,
    )
    declared = Declared(make_schedule(config.diffusion).alphas_cumprod, config.diffusion.prediction)
    alone = setup.stepper.group.size == 1
    return Inspection(subject, declared, say, looked_before=looked_before, alone=alone)


def _images(setup: Setup) -> Tensor:
    """As the network is given them, each at most once."""
    return setup.batches.rows(0, 0, min(setup.batches.count, setup.config.train.batch_size)).images


def preflight(setup: Setup, say: Callable[[str], None]) -> Preflight:
    """State, gradients and randomness are the same as before afterwards, to the last bit. Among several processes one
    alone rehearses, on its share of the batch; of divided weights none does: every pass would take all of them."""
    step, gathered, rehearsed = setup.state.counters.step, Gathered(), setup.state.weights.shard is None
    kept = _Kept(setup) if rehearsed else None
    inspection = inspect(setup, say)
    try:
        static = fixed = _static(setup, inspection)
        gathered.add(step, static)
        if kept is not None:
            _rehearse(setup, inspection, gathered, step, kept)
            fixed = static | {name: n for name, n in gathered.steps[step].items() if name.startswith(STATIC)}
    finally:
        inspection.close()
        if kept is not None:
            kept.put_back()
    names = {kind: list(found)[:NAMED] for kind, found in inspection.names().items() if found} if rehearsed else {}
    case = RunHistory(
        InMemoryReadings(gathered.series(), [(step, "parameters", names)] if rehearsed else []), setup.config
    )
    return Preflight([each for each in examine(case) if each.over is None], fixed, gathered.steps, names)


def _static(setup: Setup, inspection: Inspection) -> dict[str, float]:
    """What is known without a step."""
    static = inspection.at_start() | ask_guidance(setup.config) | checked(_overlap(setup))
    if setup.config.data.balance:  # the same image may be drawn twice, and rightly
        static = {name: value for name, value in static.items() if "duplicates" not in name}
    return static


STATIC = tuple(f"{CHECK.name}/{name}/" for name in ("network", "sampler", "checkpoint", "batch/dim", "batch/integer"))


def _rehearse(setup: Setup, inspection: Inspection, gathered: Gathered, step: int, kept: _Kept) -> None:
    """A few real steps, and the same with a save and a load among them."""
    stepper, observer = setup.stepper.single_process(), Observer(gathered, setup.state.monitors, inspection)
    row_check = RowCheck(setup.config, setup.images, setup.runtime.to_device)
    inspection.attach()
    for number in range(step, step + STEPS):
        view = stepper.step(setup.inputs(number), number, observer=observer)
        observer.add(number, [*view.readings, *row_check.look(view)], {LEARNING_RATE.name: view.lr})
    observer.read()
    trained = _copies(setup.state.model.state_dict().values())
    kept.put_back()
    gathered.add(step, checked(_round_trip(setup, stepper, trained, step)))


def _round_trip(setup: Setup, stepper: Stepper, trained: list[Tensor], step: int) -> dict[str, float]:
    """Saved after one step, loaded, and trained on: the weights must be those of the steps without that."""
    state = setup.state
    stepper.step(setup.inputs(step), step, observer=(observer := Observer(Gathered(), state.monitors)))
    snapshot = state.snapshot()
    live = _everything(setup)
    loaded = Loaded(snapshot.step, Path("memory"), snapshot.tensors, dict(snapshot.state), {})
    state.optimizer.state.clear()
    with torch.no_grad():
        for tensors in (*state.ema.shadows.values(), list(state.model.parameters())):
            for tensor in tensors:
                tensor.add_(1)  # what a snapshot does not hold must not be right by having been there before
    state.restore(loaded)
    found = {str(checks.CHECKPOINT[name]): _apart(own, live[name]) for name, own in _everything(setup).items()}
    for number in range(step + 1, step + STEPS):
        stepper.step(setup.inputs(number), number, observer=observer)
    return found | {str(checks.CHECKPOINT_STEP): _apart(list(state.model.state_dict().values()), trained)}


def _copies(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def _everything(setup: Setup) -> dict[str, list[Tensor]]:
    state = setup.state
    moments = [v for p in state.model.parameters() for v in state.optimizer.state.get(p, {}).values()]
    return {
        "model": _copies(state.model.state_dict().values()),
        "average": _copies(value for track in state.ema.shadows.values() for value in track),
        "optimizer": _copies(value for value in moments if isinstance(value, Tensor)),
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


def _overlap(setup: Setup) -> dict[str, float]:
    """Whether images that are held out are trained on."""
    _, held = hold_out(setup.images, setup.config.data.held_out)
    if not len(held):
        return {}
    return {checks.DATA_HELD_OUT_OVERLAP: float(np.isin(held, setup.loader.batches.drawn_from()).mean())}


class _Kept:
    """A copy of everything that a step changes, and the way back. Not a snapshot: that is what is being tested."""

    def __init__(self, setup: Setup) -> None:
        self._state = state = setup.state
        shadows = (value for track in state.ema.shadows.values() for value in track)
        self._tensors = [(v, v.detach().clone()) for v in (*state.model.parameters(), *state.model.buffers(), *shadows)]
        self._groups = [{k: v for k, v in group.items() if k != "params"} for group in state.optimizer.param_groups]
        scale, moments = state.loss_scale, state.optimizer.state.items()
        self._copied = deepcopy((state.clipper.running, scale.value, scale.good_steps, state.monitors.state()))
        self._moments = {parameter: deepcopy(kept) for parameter, kept in moments}
        self._counters, self._random = state.counters, torch.get_rng_state()
        self._modes = {module: module.training for module in state.model.modules()}

    @torch.no_grad()
    def put_back(self) -> None:
        state = self._state
        for value, before in self._tensors:
            value.copy_(before)
        state.optimizer.zero_grad(set_to_none=True)
        state.optimizer.state.clear()
        state.optimizer.state.update({parameter: deepcopy(kept) for parameter, kept in self._moments.items()})
        for group, before in zip(state.optimizer.param_groups, self._groups, strict=True):
            group.update(before)
        state.clipper.running, state.loss_scale.value, state.loss_scale.good_steps, monitors = deepcopy(self._copied)
        state.monitors.restore(monitors)
        state.counters = self._counters
        torch.set_rng_state(self._random)
        for module, training in self._modes.items():
            module.training = training
