"""Illnesses that are put into a run from outside: each one is a function of the step or of the data, never of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from safelight.diffusion.micro_batch import MicroBatch
from safelight.training import step as step_module
from safelight.training.batch_loader import BatchLoader
from safelight.training.step import Stepper


def spoil_images(monkeypatch: pytest.MonkeyPatch, ids: Iterable[int]) -> list[int]:
    """These images are NaN wherever training draws them. Returns a list that fills with the steps that drew one."""
    original, bad, drawn = BatchLoader._micro_batch, list(ids), list[int]()

    def spoilt(self: BatchLoader, *given: Any) -> MicroBatch:
        step, micro = given[0], original(self, *given)
        for row, sample in enumerate(micro.ids):
            if int(sample) in bad:
                micro.x0[row] = torch.nan
                drawn.append(step)
        return micro

    monkeypatch.setattr(BatchLoader, "_micro_batch", spoilt)
    return drawn


def disturb_gradient(
    monkeypatch: pytest.MonkeyPatch, steps: Iterable[int], factor: float, *, once: bool = True
) -> list[int]:
    """Multiplies one number of a gradient, as a flipped bit of its exponent does: at the first pass of a step only, or
    at each. Returns a list that fills with the steps that it happened at."""
    original, take, wanted, done = Stepper.accumulate, Stepper.step, set(steps), list[int]()
    judged = False

    def taking(
        self: Stepper,
        inputs: Any,
        step: int,
        how: Any = None,
        seen: Any = None,
        on_gradients: Any = None,
        *more: Any,
    ) -> Any:
        nonlocal judged
        judged = on_gradients is not None
        try:
            return take(self, inputs, step, how, seen, on_gradients, *more)
        finally:
            judged = False

    def disturbed(self: Stepper, micro: MicroBatch, step: int, *more: Any) -> torch.Tensor:
        loss = original(self, micro, step, *more)
        if step in wanted and judged and not (once and step in done):
            done.append(step)
            gradient = self.state.model.conv_out.bias.grad  # type: ignore[union-attr]
            gradient.view(-1)[0] = (gradient.view(-1)[0].abs() + 1e-3) * factor  # type: ignore[union-attr]
        return loss

    monkeypatch.setattr(Stepper, "step", taking)
    monkeypatch.setattr(Stepper, "accumulate", disturbed)
    return done


def raise_rate(monkeypatch: pytest.MonkeyPatch, factor: float, from_step: int = 0) -> None:
    original = step_module.learning_rate

    def raised(settings: Any, step: int, steps: int) -> float:
        return original(settings, step, steps) * (factor if step >= from_step else 1.0)

    monkeypatch.setattr(step_module, "learning_rate", raised)


def limit_memory(monkeypatch: pytest.MonkeyPatch, images: int, from_step: int = 0) -> None:
    """More images than that at a time do not fit."""
    original = Stepper.accumulate

    def limited(self: Stepper, micro: MicroBatch, step: int, *more: Any) -> torch.Tensor:
        if step >= from_step and len(micro.x0) > images:
            original(self, micro, step, *more)  # gradients and buffers have moved by the time it happens
            raise torch.OutOfMemoryError("CUDA out of memory (not really).")
        return original(self, micro, step, *more)

    monkeypatch.setattr(Stepper, "accumulate", limited)


def overflow(monkeypatch: pytest.MonkeyPatch, steps: range) -> None:
    """Inside fp16, some activation is beyond 65,504 in the backward pass, whatever the scale."""
    original = Stepper.accumulate

    def overflowing(self: Stepper, micro: MicroBatch, step: int, *more: Any) -> torch.Tensor:
        loss = original(self, micro, step, *more)
        if step in steps and self.state.loss_scale.active:
            self.state.model.conv_out.bias.grad.fill_(torch.inf)  # type: ignore[union-attr]
        return loss

    monkeypatch.setattr(Stepper, "accumulate", overflowing)


def leave_train_mode(monkeypatch: pytest.MonkeyPatch, when: Callable[[int], bool]) -> None:
    original = BatchLoader.load

    def taking(self: BatchLoader, step: int, *more: Any) -> list[MicroBatch]:
        for model in _models:
            if when(step):
                model.eval()
        return original(self, step, *more)

    _models: list[Any] = []
    build = Stepper.__init__

    def remember(self: Stepper, *args: Any, **more: Any) -> None:
        build(self, *args, **more)
        _models.append(self.state.model)

    monkeypatch.setattr(Stepper, "__init__", remember)
    monkeypatch.setattr(BatchLoader, "load", taking)
