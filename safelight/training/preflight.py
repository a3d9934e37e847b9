"""Before the first step: a few real steps with every probe, and everything restored as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from safelight import checks
from safelight.checkpoints.snapshot import Loaded
from safelight.checks import ProbeReading
from safelight.config.tree import Config, Diffusion, Optimizer
from safelight.diagnosis import Diagnosis, Finding, diagnose_trial
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory, name_of
from safelight.diffusion.sampling import Denoiser
from safelight.diffusion.schedule import make_process, make_schedule
from safelight.generate import Request, draw_from, make_denoiser
from safelight.healing.rates import find_rate
from safelight.observing.batch_check import BatchCheck
from safelight.observing.memory_record import MemoryRecord
from safelight.observing.observer import Observer
from safelight.probes.forward_pass import ProcessSpec
from safelight.probes.probe_runner import ProbeRunner, with_check_prefix
from safelight.probes.runner.inspected_loop import InspectedLoop
from safelight.probes.sampler import measure_guidance
from safelight.training.build import Setup
from safelight.training.state import State
from safelight.vocabulary import CHECK, LEARNING_RATE

STEPS = 3
TRIED_STEPS = 20  # of the sampler
# The first steps of a run are those of its preflight, and need not be measured again.
ON_COPIES = tuple(f"{CHECK.name}/{name}" for name in checks.MEASURED_ON_COPIES)
STATIC = tuple(f"{CHECK.name}/{name}/" for name in ("network", "sampler", "checkpoint", "trial"))


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found, and the readings that it was found by."""

    diagnosis: Diagnosis
    constants: Mapping[str, float]
    """What does not change with the steps: for the record of the run."""
    readings: Mapping[int, Mapping[str, float]]
    """Those of the trial steps."""
    untrained_parameters: Mapping[str, list[str]]
    """Names of those that are frozen or missing in the optimizer."""

    def first(self, check: ProbeReading) -> float | None:
        """A reading at its earliest step; None if it was not taken."""
        name = name_of(check)
        steps = (self.constants, *(self.readings[step] for step in sorted(self.readings)))
        return next((readings[name] for readings in steps if name in readings), None)

    @property
    def findings(self) -> list[Finding]:
        return self.diagnosis.findings

    def replayed(self, step: int) -> list[Mapping[str, float]]:
        """What was measured on copies at each of the trial steps, of which the first was `step`; none if none was
        made."""
        found = [
            {name: number for name, number in self.readings.get(each, {}).items() if name.startswith(ON_COPIES)}
            for each in range(step, step + STEPS)
        ]
        return [*found] if all(found) else []

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]


def make_probe_runner(
    setup: Setup,
    say: Callable[[str], None],
    *,
    after_preflight: bool = False,
    replayed: Sequence[Mapping[str, float]] = (),
) -> ProbeRunner:
    """The probes on safelight's own step; the same that `safelight.watch` puts on anyone's."""
    config, state, batches = setup.config, setup.state, setup.batches
    steps = max(TRIED_STEPS, config.sample.steps)  # what is tested is the formula, which few steps blur
    request = Request(0, 0, config.sample.sampler, steps, config.sample.guidance)
    subject = InspectedLoop(
        state.model,
        None if setup.is_sharded else state.optimizer,  # which then holds other tensors than the model
        lambda: list(state.ema.tensors().values()),
        lambda model, noise: draw_from(model, noise, config, request),
        # As the network is given them, each at most once.
        None if after_preflight else batches.rows(0, 0, min(batches.count, config.train.batch_size)).images,
        scaled=state.loss_scale.active,
    )
    return ProbeRunner(
        subject,
        declare(config.diffusion),
        say,
        after_preflight=after_preflight,
        alone=setup.stepper.group.size == 1,
        share=config.train.probe_budget,
        replayed=replayed,
    )


def declare(settings: Diffusion) -> ProcessSpec:
    """What the settings say about the process, for the probes."""
    if settings.process == "vp":
        return ProcessSpec(make_schedule(settings).alphas_cumprod, settings.prediction, sigma_data=settings.sigma_data)
    return ProcessSpec(None, settings.prediction, make_process(settings), settings.sigma_data)


def preflight(setup: Setup, say: Callable[[str], None]) -> Preflight:
    """State, gradients and randomness are the same as before afterwards, to the last bit. Among several processes one
    alone takes the steps, on its share of the batch; with sharded weights none does: every pass would take all of
    them."""
    step, record = setup.state.counters.step, MemoryRecord()
    before = None if setup.is_sharded else _StateCopy(setup.state)
    names: dict[str, list[str]] = {}
    probe_runner = make_probe_runner(setup, say)
    try:
        static = _check_static(setup, probe_runner)
        record.add(step, static)
        if before is not None:
            _take_trial_steps(setup, probe_runner, record, step, before)
            static = static | {name: n for name, n in record.steps[step].items() if name.startswith(STATIC)}
            names = probe_runner.names()
    finally:
        probe_runner.close()
        if before is not None:
            before.restore()
    events = [] if before is None else [(step, "parameters", names)]
    case = RunHistory(InMemoryReadings(record.series(), events), setup.config)
    return Preflight(diagnose_trial(case), static, record.steps, names)


def _check_static(setup: Setup, probe_runner: ProbeRunner) -> dict[str, float]:
    """What is known without a step."""
    static = probe_runner.at_start() | check_guidance(setup.config) | with_check_prefix(_check_held_out(setup))
    if setup.config.data.balance:  # the same image may be drawn twice, and rightly
        static = {name: value for name, value in static.items() if "duplicates" not in name}
    return static


def _take_trial_steps(
    setup: Setup, probe_runner: ProbeRunner, record: MemoryRecord, step: int, before: _StateCopy
) -> None:
    """A few real steps, and the same with a save and a load among them."""
    stepper, observer = setup.stepper.single_process(), Observer(record, setup.state.monitors, probe_runner)
    batch_check = BatchCheck(setup.config, setup.images, setup.held_out_ids, setup.runtime.to_device)
    probe_runner.attach()
    for number in range(step, step + STEPS):
        view = stepper.step(setup.inputs(number), number, observer=observer)
        observer.add(number, [*view.readings, *batch_check.check(view)], {LEARNING_RATE.name: view.lr})
    observer.read()
    trained = _copies(setup.state.model.state_dict().values())
    before.restore()
    record.add(step, with_check_prefix(_check_checkpoint(setup, trained, step)))
    if step == 0 and not setup.state.loss_scale.active:  # fp16 refuses its first updates
        before.restore()
        record.add(step, with_check_prefix(find_rate(setup.config.optimizer, partial(_worst_error, setup, before))))


def _worst_error(setup: Setup, before: _StateCopy, optimizer: Optimizer, updates: int, limit: float) -> float:
    """The largest error after one of the first updates of a run, over that of a network that always predicts 0, or over
    its own at first where that is larger. Ends with the first one above the limit; everything is restored."""
    stepper, worst = setup.stepper.single_process(), 0.0
    first = max(1.0, stepper.trial_step(setup.inputs(0), 0, optimizer))
    for number in range(1, updates + 1):
        worst = max(worst, stepper.trial_step(setup.inputs(number), number, optimizer) / first)
        if worst > limit:
            break
    before.restore()
    return worst


def _check_checkpoint(setup: Setup, trained: list[Tensor], step: int) -> dict[str, float]:
    """Saves after one step, loads, and trains on: the weights have to be those of the same steps without a save."""
    state, stepper = setup.state, setup.stepper.single_process()
    stepper.step(setup.inputs(step), step, observer=(observer := Observer(MemoryRecord(), state.monitors)))
    snapshot, saved = state.snapshot(), {name: _copies(tensors) for name, tensors in _tensors(state).items()}
    state.optimizer.state.clear()
    with torch.no_grad():
        for tensor in (*_shadows(state), *state.model.parameters()):
            tensor.add_(1)  # otherwise what the snapshot lacks would still be there, and look restored
    state.restore(Loaded(snapshot.step, Path("memory"), snapshot.tensors, dict(snapshot.state), {}))
    found = {str(checks.CHECKPOINT[name]): _different(own, saved[name]) for name, own in _tensors(state).items()}
    for number in range(step + 1, step + STEPS):
        stepper.step(setup.inputs(number), number, observer=observer)
    return found | {str(checks.CHECKPOINT_STEP): _different(_tensors(state)["model"], trained)}


def _shadows(state: State) -> list[Tensor]:
    return [shadow for shadows in state.ema.shadows.values() for shadow in shadows]


def _tensors(state: State) -> dict[str, list[Tensor]]:
    """All that a checkpoint has to hold."""
    moments = [v for p in state.model.parameters() for v in state.optimizer.state.get(p, {}).values()]
    return {
        "model": list(state.model.state_dict().values()),
        "average": _shadows(state),
        "optimizer": [value for value in moments if isinstance(value, Tensor)],
    }


def _copies(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def _different(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The share of tensors that are not the same, to the last bit."""
    if len(ours) != len(theirs):
        return 1.0
    return sum(not torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)) / max(1, len(ours))


def check_guidance(config: Config) -> dict[str, float]:
    if not config.model.conditional or (config.data.classes or 0) < 2:
        return {}
    shape = (2, config.data.channels or 3, config.data.image_size, config.data.image_size)
    request = Request(0, 0, config.sample.sampler, config.sample.steps)

    def denoiser(model: nn.Module, scale: float) -> Denoiser:
        return make_denoiser(model, None, config, replace(request, guidance=scale), torch.arange(2))

    at = 0 if config.diffusion.process == "vp" else 0.5
    return with_check_prefix(measure_guidance(denoiser, shape, at))


def _check_held_out(setup: Setup) -> dict[str, float]:
    """The share of the held-out images that are trained on."""
    if not len(setup.held_out_ids):
        return {}
    return {checks.DATA_HELD_OUT_OVERLAP: float(np.isin(setup.held_out_ids, setup.loader.batches.drawn_from()).mean())}


class _StateCopy:
    """A copy of everything that a step changes, and the way back. Not a snapshot: that is what is being tested."""

    def __init__(self, state: State) -> None:
        self._state, scale = state, state.loss_scale
        changed = (*state.model.parameters(), *state.model.buffers(), *_shadows(state))
        self._tensors = list(zip(changed, _copies(changed), strict=True))
        self._groups = [{k: v for k, v in group.items() if k != "params"} for group in state.optimizer.param_groups]
        self._copied = deepcopy((state.clipper.running, scale.value, scale.good_steps, state.monitors.state()))
        self._moments = {parameter: deepcopy(kept) for parameter, kept in state.optimizer.state.items()}
        self._counters, self._random = state.counters, torch.get_rng_state()
        self._modes = {module: module.training for module in state.model.modules()}

    @torch.no_grad()
    def restore(self) -> None:
        state = self._state
        for tensor, before in self._tensors:
            tensor.copy_(before)
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
