"""The memory of a training step of any nn.Module, counted on tensors without content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from safelight.errors import UsageError
from safelight.model.calls import call_model, takes_time
from safelight.model.copies import copy_without_hooks
from safelight.model.memory import Memory, available_memory, largest_batch, trace_second_step, traced
from safelight.words import first_line, in_bytes

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "radam": torch.optim.RAdam, "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop, "sgd": torch.optim.SGD,
}  # fmt: skip
PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class ModelEstimate:
    """What a step with this batch takes; `str` of it is a table."""

    parameters: int  # numbers, not bytes
    batch: int
    memory: Memory  # bytes
    available: int  # bytes, on the device of the model
    largest_batch: int | None = None

    @property
    def fits(self) -> bool:
        return self.memory.peak <= self.available

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"fits": self.fits}

    def __str__(self) -> str:
        most = "" if self.largest_batch is None else f", up to {self.largest_batch:,} images at a time"
        rows = [
            ("parameters", f"{self.parameters / 1e6:,.2f} M"),
            *self.memory.rows(self.batch),
            ("fits", f"{'yes' if self.fits else 'no'}: {in_bytes(self.available)} are available{most}"),
        ]
        return "\n".join(f"  {name:<11}{value}" for name, value in rows)


def estimate(
    model: nn.Module,
    shape: Sequence[int],
    optimizer: str | torch.optim.Optimizer | type[torch.optim.Optimizer] = "adamw",
    *,
    labels: bool = False,
    ema: int = 0,
    precision: str = "fp32",
    largest: bool = False,
) -> ModelEstimate:
    """The memory of one training step: a real step of a copy of the model, on tensors that have shapes and no content.

    `shape`: of a batch, such as (64, 3, 64, 64). `optimizer`: a name, a class, or an optimizer, whose kind is taken.
    `labels`: the model is called with class labels too. `ema`: copies of the weights beside the model. `precision`:
    fp32, bf16 or fp16, by autocast. `largest`: search the largest batch that fits as well, which takes seconds.
    Nothing is computed or allocated, and the model is left as it is.
    """
    if not isinstance(shape, Sequence):  # estimate_memory(model, batch, size) of others
        raise UsageError(f"shape is {shape!r}. Give that of a batch, such as (64, 3, 64, 64).")
    if len(shape) < 2 or any(not isinstance(side, int) or side < 1 for side in shape):
        raise UsageError(f"shape is {tuple(shape)}. Give that of a batch, such as (64, 3, 64, 64).")
    if precision not in PRECISIONS:
        raise UsageError(f"precision is {precision!r}. Use {', '.join(PRECISIONS)}.")
    make, half = _kind(optimizer), PRECISIONS[precision]
    device = next((p.device for p in model.parameters()), torch.device("cpu"))

    def trace(count: int) -> Memory:
        return _trace(model, (count, *shape[1:]), make, labels, ema, half, device)

    memory, available = trace(shape[0]), available_memory(device)
    most = largest_batch(available, trace) if largest else None
    return ModelEstimate(sum(p.numel() for p in model.parameters()), shape[0], memory, available, most)


def _kind(optimizer: str | torch.optim.Optimizer | type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    if isinstance(optimizer, str):
        if optimizer.lower() not in OPTIMIZERS:
            raise UsageError(
                f"optimizer is {optimizer!r}. Use {', '.join(OPTIMIZERS)}, or give the class of another one."
            )
        return OPTIMIZERS[optimizer.lower()]
    return type(optimizer) if isinstance(optimizer, torch.optim.Optimizer) else optimizer


def _make(kind: type[torch.optim.Optimizer], weights: list[nn.Parameter]) -> torch.optim.Optimizer:
    """With momentum, as SGD is used."""
    settings: dict[str, Any] = {"lr": 1e-3} | ({"momentum": 0.9} if kind is torch.optim.SGD else {})
    return kind(weights, **settings)


def _trace(
    model: nn.Module,
    shape: tuple[int, ...],
    make: type[torch.optim.Optimizer],
    labels: bool,
    ema: int,
    half: torch.dtype | None,
    device: torch.device,
) -> Memory:
    try:
        with traced(device) as live:
            network = copy_without_hooks(model).train()
            weights = list(network.parameters())
            trainable = [each for each in weights if each.requires_grad]
            if not trainable:
                raise UsageError("The model has no parameter that requires a gradient: there is no training step.")
            shadows = [[each.detach().clone() for each in weights] for _ in range(ema)]
            moved = _make(make, trainable)
            x = torch.empty(shape, device=device)
            places = torch.zeros(shape[0], dtype=torch.long, device=device)

            def forward() -> Tensor:
                with torch.autocast(device.type, dtype=half, enabled=half is not None):
                    t = places if takes_time(model) else None
                    return call_model(network, x, t, places if labels else None).float().square().mean()

            def step(_: int) -> None:
                moved.zero_grad(set_to_none=True)
                forward().backward()
                moved.step()

            activations, peak = trace_second_step(live, step, forward)
            moments = sum(_bytes(entry) for entry in moved.state.values())
            gradients = sum(each.nbytes for each in trainable)
            return Memory(_bytes(weights), gradients, moments, sum(map(_bytes, shadows)), activations, peak)
    except UsageError:
        raise
    except Exception as error:  # whatever a foreign network does with tensors that have no content
        reason = first_line(error, 300)
        raise UsageError(
            f"A step of {type(model).__name__} on images of shape {shape} cannot be traced "
            f"({type(error).__name__}: {reason}). It is called as model(x, t) with floats and whole numbers; "
            "the shape must be one that it accepts, and its forward pass must not read the numbers of a tensor."
        ) from error


def _bytes(tensors: Any) -> int:
    values = tensors.values() if isinstance(tensors, dict) else tensors
    return sum(each.nbytes for each in values if isinstance(each, Tensor))
