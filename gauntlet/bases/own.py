"""Base `own`: the project's own trainer on digits of 8 px, with pieces that are put in only where a fault asks."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gauntlet.loop_parts import PIECES, Batch, noised, target
from gauntlet.options import Base, Options
from safelight.config.resolve import resolve
from safelight.data.batches import ImageBatch
from safelight.data.prepare import open_images
from safelight.diffusion.micro_batch import MicroBatch
from safelight.diffusion.objective import NoisedBatch
from safelight.observing.observer import Observer
from safelight.record.store import NullRecordWriter
from safelight.training.build import Setup, build, infer_data_settings
from safelight.training.ema import MAIN_EMA
from safelight.training.optimizer import learning_rate

TINY: dict[str, Any] = {
    "model.widths": (16, 32),
    "model.norm_groups": 8,
    "model.attention": (),
    "model.layers": 1,
    "train.threads": 1,
    "sample.count": 16,
    "sample.steps": 8,
    "evaluate.every": 0,
    "ema.snapshots": 0,
    "ema.kind": "exponential",
    "optimizer.lr": 2e-3,
}


class Own:
    """Parts of a run of ours; `install` hangs pieces that were replaced into them."""

    def __init__(self, options: Options, seed: int) -> None:
        settings = TINY | {
            "train.steps": options.steps,
            "train.batch_size": options.batch,
            "train.seed": seed,
            "train.accumulate": options.micro_batches,
            "train.precision": options.precision,
            "sample.every": options.steps // 2,
            "sample.guidance": options.guidance,
            "checkpoint.every": options.steps // 4,
            "diffusion.prediction": options.prediction,
            "diffusion.schedule": options.schedule,
            "diffusion.loss": options.loss,
            "diffusion.weighting": options.weighting,
            "diffusion.timestep_sampling": "stratified" if options.sampling == "stratified" else "uniform",
            "model.conditional": options.conditional,
            "model.label_drop": options.label_drop,
            "model.dropout": options.dropout,
            "model.zero_output": options.zero_init,
            "optimizer.warmup": options.warmup,
            "optimizer.weight_decay": options.weight_decay,
            "optimizer.lr": options.lr,
            "clipping.kind": "none" if options.clip is None else "fixed",
            "clipping.limit": options.clip or 1.0,
        }
        os.environ.setdefault("SAFELIGHT_CACHE", str(Path(tempfile.gettempdir()) / "gauntlet-cache"))
        config = resolve(preset="digits", settings=settings)
        images = open_images(config.data, lambda *_: None, lambda _: None)
        self.parts: Setup = build(infer_data_settings(config, images), images, lambda _: None)
        self.base: Base = "own"
        self.options, self.seed, self.step = options, seed, 0
        state = self.parts.state
        self.model, self.optimizer, self.ema, self.scaler = state.model, state.optimizer, state.ema, state.loss_scale
        self.null = self.parts.config.data.classes if options.conditional else None
        self.images: Tensor = torch.empty(0)  # the trainer has its own, in a cache
        self.labels: Tensor | None = None
        self._weights = [p for p in self.model.parameters() if p.requires_grad]  # now: a fault may freeze some
        self._micro: MicroBatch | None = None
        self._rows: ImageBatch | None = None
        self._original: dict[str, Any] = {}

    @property
    def table(self) -> Tensor:
        return self.parts.stepper.objective.signal_scale.square()

    def declare(self, table: Tensor) -> None:
        objective = self.parts.stepper.objective
        objective.signal_scale, objective.noise_scale = table.sqrt(), (1 - table).sqrt()

    @property
    def network(self) -> Any:
        return self.parts.state.model

    def weights(self) -> list[nn.Parameter]:
        return self._weights

    def shadows(self) -> list[Tensor]:
        return self.parts.state.ema.shadows[MAIN_EMA]

    # What a piece does where nobody replaced it.
    def begin(self) -> None: ...

    def rate(self, step: int) -> float:
        return learning_rate(self.parts.config.optimizer, step, self.parts.config.train.steps)

    def draw_batch(self) -> Batch:
        assert self._rows is not None
        return self._rows.images, self._rows.labels

    def drop_labels(self, labels: Tensor) -> Tensor:
        return self._original["labels"](labels)

    def draw_t(self, x0: Tensor) -> Tensor:
        assert self._micro is not None
        return self._micro.t

    def draw_noise(self, x0: Tensor) -> Tensor:
        assert self._micro is not None
        return self._micro.noise

    def add_noise(self, x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return noised(self.table, x0, noise, t)

    def target_of(self, x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return target(self.options.prediction, self.table, x0, noise, t)

    def call_model(self, x_t: Tensor, t: Tensor, labels: Tensor | None) -> Tensor:
        answer = self.model(x_t, t) if labels is None else self.model(x_t, t, labels)
        return getattr(answer, "sample", answer)

    def loss_of(self, pred: Tensor, target: Tensor, t: Tensor) -> Tensor:
        return self._original["loss"](pred, NoisedBatch(target, target, t))[1]

    def backward(self, loss: Tensor) -> None:
        raise NotImplementedError("the trainer's backward pass cannot be replaced")

    def clip(self) -> None:
        self._original["clip"]()

    def update(self) -> None:
        self._original["step"]()

    def zero_grad(self) -> None:
        self._original["zero_grad"](set_to_none=True)

    def average(self) -> None:
        self._original["average"](self.step + 1)

    def sample(self, model: nn.Module, noise: Tensor) -> Tensor:
        raise NotImplementedError("the trainer's sampler is replaced in safelight.generate")

    def install(self) -> None:
        """Hangs the pieces that were replaced into the parts."""
        from gauntlet.bases.hanging import HANG

        for piece in PIECES:
            if piece in vars(self) and piece not in self._original.setdefault("hung", set()):
                self._original["hung"].add(piece)
                if piece in HANG:
                    HANG[piece](self, self.parts, self._original)

    def follow(self, on_step: Any) -> None:
        """Calls `on_step(step)` before the inputs of each step are taken, which also keeps the count."""
        take = self.parts.loader.load

        def counted(step: int, how: Any = None) -> Any:
            self.step = step
            on_step(step)
            self.begin()
            return take(step, how)

        self.parts.loader.load = counted

    def train_bare(self) -> None:
        """All steps without trainer, record and watch: what a fault does when nobody looks."""
        observer = Observer(NullRecordWriter(), self.parts.state.monitors)
        for step in range(self.options.steps):
            inputs = [micro.moved(self.parts.runtime.to_device) for micro in self.parts.loader.load(step)]
            self.parts.stepper.step(inputs, step, observer=observer)
            self.parts.state.counters.step += 1


def build_own(options: Options, seed: int) -> Own:
    return Own(replace(options), seed)
