"""Where each piece goes in the project's own trainer; each is looked up at every call, so it can be taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

import safelight.training.step as stepping
from safelight.data.batches import ImageBatch
from safelight.diffusion.micro_batch import MicroBatch
from safelight.diffusion.objective import NoisedBatch
from safelight.healing.step_settings import StepSettings
from safelight.training.build import Setup

if TYPE_CHECKING:
    from gauntlet.bases.own import Own

Hang = Callable[["Own", Setup, dict[str, Any]], None]


def _batches(own: Own, parts: Setup, _: dict[str, Any]) -> None:
    rows = parts.loader.batches.rows

    def drawn(step: int, start: int, stop: int, quarantined: frozenset[int] = frozenset()) -> ImageBatch:
        own.step, own._rows = step, rows(step, start, stop, quarantined)
        images, labels = own.draw_batch()
        return ImageBatch(images, labels, own._rows.ids)

    parts.loader.batches.rows = drawn


def _labels(own: Own, parts: Setup, original: dict[str, Any]) -> None:
    inner = parts.loader._labels

    def dropped(labels: Tensor, step: int, start: int, stop: int) -> Tensor:
        original["labels"] = lambda given: inner(given, step, start, stop)
        return own.drop_labels(labels)

    parts.loader._labels = dropped  # pyright: ignore[reportAttributeAccessIssue]


def _draws(own: Own, parts: Setup, original: dict[str, Any]) -> None:
    if "draws" in original:
        return
    inner = original["draws"] = parts.loader.prepare

    def prepared(step: int, how: StepSettings | None = None) -> list[MicroBatch]:
        found: list[MicroBatch] = []
        for micro in inner(step, how):
            own.step, own._micro = step, micro
            found.append(replace(micro, t=own.draw_t(micro.x0), noise=own.draw_noise(micro.x0)))
        return found

    parts.loader.prepare = prepared


def _corruption(own: Own, parts: Setup, _: dict[str, Any]) -> None:
    def add_noise(x0: Tensor, noise: Tensor, t: Tensor) -> NoisedBatch:
        return NoisedBatch(own.add_noise(x0, noise, t), own.target_of(x0, noise, t), t)

    parts.stepper.objective.add_noise = add_noise


class _Called(nn.Module):
    """Stands where the model stood, and asks the piece."""

    def __init__(self, own: Own) -> None:
        super().__init__()
        self.ask = lambda *given: own.call_model(*given, *[None] * (3 - len(given)))

    def forward(self, *given: Tensor) -> Tensor:
        return self.ask(*given)


def _network(own: Own, parts: Setup, _: dict[str, Any]) -> None:
    parts.stepper.network = _Called(own)


def _loss(own: Own, parts: Setup, original: dict[str, Any]) -> None:
    original["loss"] = parts.stepper.objective.loss

    def judged(answer: Tensor, noised: NoisedBatch) -> tuple[Tensor, Tensor]:
        each = own.loss_of(answer, noised.target, noised.t)
        return each, each

    parts.stepper.objective.loss = judged


def _clip(own: Own, parts: Setup, original: dict[str, Any]) -> None:
    clip = parts.state.clipper.clip

    def clipped(gradients: list[Tensor], norm: Tensor) -> Tensor:
        original["clip"] = partial(clip, gradients, norm)
        own.clip()
        return parts.state.clipper.limit()

    parts.state.clipper.clip = clipped


def _update(own: Own, parts: Setup, original: dict[str, Any]) -> None:
    if "step" in original:
        return
    original["step"] = parts.state.optimizer.step

    parts.state.optimizer.step = lambda *_, **__: own.update()


def _rate(own: Own, _: Setup, __: dict[str, Any]) -> None:
    """Where the trainer asks for it: a rate that came into the optimizer behind its back would be another disease."""
    stepping.learning_rate = lambda settings, number, steps: own.rate(number)


def _zero(own: Own, parts: Setup, original: dict[str, Any]) -> None:
    original["zero_grad"] = parts.state.optimizer.zero_grad
    parts.state.optimizer.zero_grad = lambda set_to_none=True: own.zero_grad()


def _average(own: Own, parts: Setup, original: dict[str, Any]) -> None:
    original["average"] = parts.state.ema.update
    parts.state.ema.update = lambda step: own.average()


HANG: dict[str, Hang] = {
    "draw_batch": _batches,
    "drop_labels": _labels,
    "draw_t": _draws,
    "draw_noise": _draws,
    "add_noise": _corruption,
    "target_of": _corruption,
    "call_model": _network,
    "loss_of": _loss,
    "clip": _clip,
    "rate": _rate,
    "update": _update,
    "zero_grad": _zero,
    "average": _average,
}
