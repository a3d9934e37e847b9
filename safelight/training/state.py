"""Everything that changes while training: what a checkpoint holds, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from safelight.checkpoints.compatibility import check_moments, check_numbers, check_order, check_scalars, check_tensors
from safelight.checkpoints.ema_profiles import PREFIX, profile_name
from safelight.checkpoints.host_copy import HostCopy
from safelight.checkpoints.snapshot import Loaded, Snapshot, environment
from safelight.config import Config
from safelight.config.continuation import settings_affecting_result
from safelight.healing.alarms import DivergenceDetector
from safelight.healing.journal import Journal, read_journal
from safelight.healing.step_settings import configured_precision
from safelight.monitors.loss import NoiseBinning
from safelight.monitors.suite import Monitors
from safelight.processes.local_weights import LocalWeights
from safelight.training.clipping import Clipper
from safelight.training.ema import MAIN_EMA, EmaWeights
from safelight.training.optimizer import load_optimizer, make_optimizer, optimizer_tensors
from safelight.training.scaling import LossScale

COUNTER_KEYS = {"lowest_fixed_set_loss": "lowest_probe"}  # in state.json, for those that are not called as here


@dataclass(slots=True)
class Counters:
    """The small numbers of a run."""

    step: int = 0  # completed optimizer steps
    refused: int = 0  # updates that were refused because something was not finite
    refused_in_row: int = 0
    best_step: int | None = None  # by evaluation; before there was one, by the loss of the fixed set
    best_loss: float = float("inf")  # of the fixed set, under the EMA
    best_evaluated: bool = False
    epoch: float = 0.0  # passes over the images that are done
    epoch_loss: float = 0.0  # sum over the steps of the epoch that is under way, and their number
    epoch_steps: int = 0
    seconds: float = 0.0  # spent training, before and after all resumes
    evaluation_seconds: float = 0.0
    lowest_fixed_set_loss: float = float("inf")  # loss of the fixed training images under the raw weights
    planned_loss: float = float("inf")  # the lowest `best_loss` at planned steps, which train.patience counts from
    planned_step: int | None = None  # the step of `planned_loss`
    good_step: int | None = None  # the newest checkpoint that is good enough to go back to

    def to_json(self) -> dict[str, Any]:
        """The counters by their keys in state.json."""
        return {COUNTER_KEYS.get(name, name): getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Counters:
        """Those that an older version did not save keep their default; what a newer one added is left out."""
        keys = {name: COUNTER_KEYS.get(name, name) for name in cls.__slots__}
        return cls(**{name: state[key] for name, key in keys.items() if key in state})


@dataclass(slots=True)
class State:
    """The live objects of a run."""

    model: nn.Module
    weights: LocalWeights  # of its weights, by this process
    optimizer: torch.optim.AdamW
    ema: EmaWeights
    clipper: Clipper
    loss_scale: LossScale
    monitors: Monitors
    counters: Counters = field(default_factory=Counters)
    journal: Journal = field(default_factory=Journal)
    watch: DivergenceDetector = field(default_factory=DivergenceDetector)
    host_copy: HostCopy = field(default_factory=HostCopy)
    origin: dict[str, Any] = field(default_factory=dict)
    """What a checkpoint says about the settings and the images that it was trained with."""
    gradient_order: list[int] = field(default_factory=list)
    """Places of the parameters as their gradients come, by which several processes send them; empty for one."""

    def note_origin(self, config: Config, images: str) -> None:
        """`images`: their fingerprint."""
        self.origin = {"settings": settings_affecting_result(config), "images": images}

    def snapshot(self, *, reuse_buffer: bool = False) -> Snapshot:
        """A copy of everything in host memory: the one pause that a checkpoint costs the training. `reuse_buffer`: the
        last copy is no longer needed, and its memory is used for this one."""
        tensors = {
            "model": self.weights.tensors(),
            "ema": self.ema.tensors(),
            "optimizer": optimizer_tensors(self.optimizer, self.weights.named_parameters),
            "monitors": self.monitors.state(),
        }
        if profiles := self._profiles():
            tensors["profiles"] = profiles
        scalars = {
            "clip_running": float(self.clipper.running),
            "loss_scale": float(self.loss_scale.value),
            "good_steps": float(self.loss_scale.good_steps),
        }
        return Snapshot(
            step=self.counters.step,
            tensors=self.host_copy.copy_from(tensors, reuse_buffer=reuse_buffer),
            state=self.counters.to_json() | scalars | self._words(),
            environment=environment(),
            shard=self.weights.shard,
        )

    def _words(self) -> dict[str, Any]:
        words = {"journal": self.journal.to_json(), "watch": self.watch.to_json(), "origin": self.origin}
        return words | ({"gradient_order": [*self.gradient_order]} if self.gradient_order else {})

    def snapshot_profiles(self) -> Snapshot:
        """Both EMA profiles at this step, cloned; written atomically, as a checkpoint is."""
        tensors = {
            PREFIX + profile_name(width): {
                name: value.detach().to("cpu", copy=True) for name, value in self.ema.profile(width).items()
            }
            for width in self.ema.settings.profiles
        }
        return Snapshot(self.counters.step, tensors, {}, environment(), self.weights.shard)

    def _profiles(self) -> dict[str, Tensor]:
        return {
            f"{ema_name}/{name}": value
            for ema_name in self.ema.shadows
            if ema_name != MAIN_EMA
            for name, value in self.ema.tensors(ema_name).items()
        }

    def check(self, loaded: Loaded) -> None:
        """Refuses a checkpoint that does not fit, before anything is touched: half a restore is worse than none."""
        check_tensors("model", self.weights.tensors(), loaded)
        check_tensors("ema", self.ema.tensors(), loaded)
        check_moments(self.weights.named_parameters, loaded)
        if profiles := self._profiles():
            check_tensors("profiles", profiles, loaded)
        if "monitors" in loaded.tensors:  # older runs have none
            check_tensors("monitors", self.monitors.state(), loaded)
        check_numbers(Counters, loaded.state, f"The state of {loaded.path}", COUNTER_KEYS)
        check_numbers(DivergenceDetector, loaded.state.get("watch", {}), f"The watch of {loaded.path}")
        check_scalars(("clip_running", "loss_scale", "good_steps"), loaded)
        check_order(loaded, len(self.weights.named_parameters))
        read_journal(loaded.state.get("journal"))

    @torch.no_grad()
    def restore(self, loaded: Loaded) -> None:
        """The exact inverse of `snapshot`."""
        self.check(loaded)
        self.weights.load(loaded.contents("model"))
        self.ema.load(MAIN_EMA, loaded.contents("ema"))
        for ema_name in self.ema.shadows:
            if ema_name != MAIN_EMA:
                prefix, profiles = f"{ema_name}/", loaded.contents("profiles")
                names = [name for name in profiles if name.startswith(prefix)]
                self.ema.load(ema_name, {name.removeprefix(prefix): profiles[name] for name in names})
        load_optimizer(self.optimizer, self.weights.named_parameters, loaded.contents("optimizer"))
        self.monitors.restore(dict(loaded.contents("monitors")))
        self.clipper.running.fill_(loaded.state["clip_running"])
        if self.loss_scale.active:  # a run that left fp16 may go back to where it had a scale
            self.loss_scale.value.fill_(loaded.state["loss_scale"])
            self.loss_scale.good_steps.fill_(loaded.state["good_steps"])
        watch = loaded.state.get("watch", {})
        self.counters = Counters.from_json(loaded.state)
        self.watch = DivergenceDetector(**{name: watch[name] for name in DivergenceDetector.__slots__ if name in watch})
        self.journal = read_journal(loaded.state.get("journal"))
        if order := loaded.state.get("gradient_order"):
            self.gradient_order[:] = order


def make_state(
    config: Config, model: nn.Module, weights: LocalWeights, noise_binning: NoiseBinning, device: torch.device
) -> State:
    """The state at step 0."""
    return State(
        model=model,
        weights=weights,
        optimizer=make_optimizer(config.optimizer, model, weights.named_parameters),
        ema=EmaWeights(config.ema, model, weights.named_parameters),
        clipper=Clipper(config.clipping, device),
        loss_scale=LossScale(configured_precision(config), device),
        monitors=Monitors(model, noise_binning, weights.named_parameters, weights.sum_over_processes),
    )
