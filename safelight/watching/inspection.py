"""What a watch measures of its loop: monitors, probes, the skill of the network, and what they recognise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from safelight.capturing.living import held_by_others
from safelight.monitors.loss import noise_binning_of_draws, noise_binning_of_table
from safelight.monitors.parameters import named_without_wrappers, unwrapped
from safelight.monitors.shards import is_sharded
from safelight.monitors.suite import Monitors
from safelight.observing.noise_levels import LEVELS_EVENT, describe_levels
from safelight.observing.recorder import Recorder
from safelight.probes.dataset import take_images
from safelight.probes.probe_runner import ProbeRunner
from safelight.probes.runner.inspected_loop import InspectedLoop
from safelight.probes.skill import HeldOutImages, SkillProbe, SkillSubject
from safelight.vocabulary import CHECK, DRIFT
from safelight.watching.arguments import WatchArguments
from safelight.watching.foreign import bare_optimizer, is_compiled, log_snr_of
from safelight.watching.ranks.rank_channel import place_here

SHARDED = "the weights are sharded, and a pass of the model takes all processes"
JOINT = "the gradient is that of several processes, and cannot be computed again by one of them"
NO_COPIES = "no two processes were seen to hold the same piece of the weights"
# What is not measured then: by the beginning of the names in the record.
OF_GRADIENTS = (f"{CHECK.name}/replay/",)
OF_WHOLE_MODELS = (
    *(f"{CHECK.name}/{area}/" for area in ("network", "replay", "search", "labels", "response", "update")),
    f"{CHECK.name}/conditions/gain",
    *("skill/", "quality/", "diversity/", "copies/"),
)


def drawable(given: WatchArguments, say_once: Callable[[str], None]) -> WatchArguments:
    """Without the sampler where the model cannot be copied: its weights are sharded."""
    if given.sampler is None or not is_sharded(given.model):
        return given
    say_once(f"No samples are drawn and evaluated: {SHARDED}.")
    return replace(given, sampler=None)


class Inspection:
    """Of one loop, into its record."""

    def __init__(
        self,
        given: WatchArguments,
        find_ema: Callable[[], list[Tensor] | None],
        record: Recorder,
        step: int,
        say: Callable[[str], None],
        report_no_skill: Callable[[str], None],
        *,
        is_captured: bool,
    ) -> None:
        optimizer = None if given.optimizer is None else bare_optimizer(given.optimizer)
        scaled = given.scaler is not None or getattr(given.optimizer, "scaler", None) is not None
        model, alphas = unwrapped(given.model), given.declared.alphas
        sharded, is_joint = is_sharded(model), place_here() is not None
        named = [(name, parameter) for name, parameter in named_without_wrappers(model) if parameter.requires_grad]
        binning = None if alphas is None else noise_binning_of_table(log_snr_of(alphas))
        self.monitors = Monitors(model, binning, named, is_sharded=sharded)
        also_held = held_by_others(optimizer) if is_captured and optimizer is not None else frozenset[int]()
        subject = InspectedLoop(
            model, optimizer, find_ema, given.sampler, given.data,
            scaled=scaled, space=given.space, also_held=also_held, sharded=sharded,
        )  # fmt: skip
        # Among several processes the gradient is not that of the own samples, and cannot be computed again from them.
        self.probes = ProbeRunner(subject, given.declared, say, from_step=step, alone=not is_joint)
        held_out = (
            None
            if given.held_out is None
            else HeldOutImages(
                lambda: take_images(given.held_out), lambda reason: say(f"held_out is not used: {reason}.")
            )
        )
        measured = SkillSubject(model, find_ema, self.probes.pop_images, is_compiled(given.model), held_out)
        self.skill = SkillProbe(measured, given.declared, report_no_skill)
        self._is_sharded, self._is_joint = sharded, is_joint
        self._record, self._say, self._is_captured, self._alphas = record, say, is_captured, alphas
        self._has_said = False

    def start(self, step: int) -> None:
        """The part of the preflight that needs no batch; the rest comes with the first one."""
        self._record.add(step, self.probes.at_start())
        if self._alphas is not None:
            self._note_levels(step, np.arange(len(self._alphas)), log_snr_of(self._alphas))
        if self._is_sharded:
            self.skill.leave_out(SHARDED)
            self._record.event(step, "left_out", reason=SHARDED, readings=list(OF_WHOLE_MODELS))
            self._record.event(step, "left_out", reason=NO_COPIES, readings=[DRIFT.name])
        elif self._is_joint:
            self._record.event(step, "left_out", reason=JOINT, readings=list(OF_GRADIENTS))
        if names := self.probes.names():
            self._record.event(step, "parameters", **names)

    def settle(self, step: int) -> None:
        """Once it is known what is trained: as if all of it had been declared. `step`: the one that is being made."""
        if (settled := self.probes.settle()) is None:
            return
        declared, readings = settled
        self.skill.declare(declared)
        process = declared.process
        if process is not None and declared.draws is not None:
            self.monitors.set_noise_binning(noise_binning_of_draws(process.log_snr, declared.draws))
            drawn = torch.as_tensor(declared.draws, dtype=torch.float64)
            self._note_levels(step, drawn.numpy(), process.log_snr(drawn).double().numpy())
        self._record.add(step - 1, readings)

    def _note_levels(self, step: int, times: np.ndarray, log_snr: np.ndarray) -> None:
        self._record.event(step, LEVELS_EVENT, **describe_levels(times, log_snr))

    def report_recognised(self, step: int) -> None:
        """Once: what the loop was seen to train."""
        found = self.probes.mixtures.recognised
        if found is None or not found.is_known or self._has_said:
            return
        self._has_said = True
        self._record.event(step, "recognised", process=found.process, target=found.target, words=found.words())
        declared = self.probes.declared
        if not self._is_captured and (declared.is_seen or declared.process is None):
            self._say(f"Safelight recognised {found.words()}.")
