"""A training loop as people write it, in named pieces that a fault can replace one by one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gauntlet.data_order import DataOrder
from gauntlet.hyperparameters import draw_timesteps, learning_rate, loss_weights
from gauntlet.loop_parts import Batch, noised, target
from gauntlet.options import Base, Options, Shown

Sampler = Callable[["Loop", nn.Module, Tensor], Tensor]


class Loop:
    """The two foreign bases. Randomness is torch's global one, as in most loops."""

    def __init__(
        self,
        base: Base,
        options: Options,
        seed: int,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        ema: Any,
        schedule: Any,
        data: tuple[Tensor, Tensor],
        held: tuple[Tensor, Tensor],
        null: int,
        sampler: Sampler,
    ) -> None:
        self.base: Base = base
        self.options, self.seed, self.step = options, seed, 0
        self.model, self.optimizer, self.ema, self.schedule = model, optimizer, ema, schedule
        self.images: Tensor = data[0]
        self.labels: Tensor | None = data[1] if options.conditional else None
        self.classes, self.held = data[1], held
        self.null: int | None = null if options.conditional else None
        scaled = options.scaler or options.precision == "fp16"
        self.scaler: Any = torch.amp.GradScaler("cpu", init_scale=2.0**12) if scaled else None
        self.data_order = DataOrder(options.batch // options.micro_batches)
        self._sampler = sampler
        self.losses: list[float] = []
        self.norms: list[float] = []

    @property
    def table(self) -> Tensor:
        return self.schedule if isinstance(self.schedule, Tensor) else self.schedule.alphas_cumprod

    def declare(self, table: Tensor) -> None:
        if isinstance(self.schedule, Tensor):
            self.schedule = table
        else:
            self.schedule.alphas_cumprod = table

    @property
    def network(self) -> Any:
        return getattr(self.model, "unet", self.model)

    def weights(self) -> list[nn.Parameter]:
        return list(self.model.parameters())

    def shadows(self) -> list[Tensor]:
        return list(getattr(self.ema, "shadow_params", None) or self.ema.module.parameters())

    def take(self, watch: Any, shown: Shown) -> None:
        """One step: all micro-batches, the update, and what the watch is told."""
        self.begin()
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.step)
        self.zero_grad()
        total = 0.0
        for micro in range(self.options.micro_batches):
            x0, labels = self.draw_batch()
            labels = None if labels is None else self.drop_labels(labels)
            t, noise = self.draw_t(x0), self.draw_noise(x0)
            x_t = self.add_noise(x0, noise, t)
            wanted = self.target_of(x0, noise, t)
            with self.autocast():
                pred = self.call_model(x_t, t, labels)
            loss = self.loss_of(pred, wanted, t)
            self.backward(loss)
            if micro == self.options.micro_batches - 1:
                self.clip()
                self.update()
                self.average()
            total += float(loss.detach().mean())
            if watch is not None:
                told = {"t": t, "x0": x0, "noise": noise, "x_t": x_t, "target": wanted, "pred": pred, "labels": labels}
                kept = {"all": set(told), "loss": set(), "loss and t": {"t"}}[shown]
                watch.step(loss.detach(), **{name: value for name, value in told.items() if name in kept})
        self.losses.append(total / self.options.micro_batches)
        self.step += 1

    def begin(self) -> None: ...

    def rate(self, step: int) -> float:
        return learning_rate(self.options, step)

    def draw_batch(self) -> Batch:
        rows = self.data_order.draw(len(self.images), self.classes if self.options.imbalance else None)
        return self.images[rows], None if self.labels is None else self.labels[rows]

    def drop_labels(self, labels: Tensor) -> Tensor:
        assert self.null is not None
        return labels.masked_fill(torch.rand(len(labels)) < self.options.label_drop, self.null)

    def draw_t(self, x0: Tensor) -> Tensor:
        return draw_timesteps(self.options, len(x0))

    def draw_noise(self, x0: Tensor) -> Tensor:
        noise = torch.randn_like(x0)
        if self.options.offset_noise:
            noise = noise + self.options.offset_noise * torch.randn(*x0.shape[:2], *[1] * (x0.dim() - 2))
        return noise

    def add_noise(self, x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        if isinstance(self.schedule, Tensor):
            return noised(self.schedule, x0, noise, t)
        return self.schedule.add_noise(x0, noise, t)

    def target_of(self, x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return target(self.options.prediction, self.table, x0, noise, t)

    def autocast(self) -> AbstractContextManager[object]:
        kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
        if self.options.precision == "fp32":
            return nullcontext()
        return torch.autocast("cpu", dtype=kinds[self.options.precision])

    def call_model(self, x_t: Tensor, t: Tensor, labels: Tensor | None) -> Tensor:
        answer = self.model(x_t, t) if labels is None else self.model(x_t, t, labels)
        return getattr(answer, "sample", answer).float()

    def loss_of(self, pred: Tensor, target: Tensor, t: Tensor) -> Tensor:
        """A scalar, or one value per sample."""
        kinds = {"l2": functional.mse_loss, "l1": functional.l1_loss, "huber": functional.huber_loss}
        each = kinds[self.options.loss](pred, target, reduction="none").flatten(1).mean(1)
        each = each * loss_weights(self.options, self.table, t)
        return each if self.options.told == "per sample" else each.mean()

    def backward(self, loss: Tensor) -> None:
        loss = loss.mean() / self.options.micro_batches
        if self.options.reduction == "sum":
            loss = loss * self.options.batch
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def clip(self) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        limit = float("inf") if self.options.clip is None else self.options.clip
        self.norms.append(float(nn.utils.clip_grad_norm_(self.model.parameters(), limit)))

    def update(self) -> None:
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def average(self) -> None:
        if self.ema is not None:
            self.ema.step(self.model.parameters())

    def sample(self, model: nn.Module, noise: Tensor) -> Tensor:
        return self._sampler(self, model, noise)
