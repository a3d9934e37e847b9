"""What other people's loops are made of: schedules, EMAs, optimizers, wrappers, taken for what they are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from safelight.errors import UsageError
from safelight.monitors.parameters import named_without_wrappers, unwrapped
from safelight.monitors.shards import is_sharded, local_of


def log_snr_of(alphas: Tensor) -> np.ndarray:
    kept = alphas.numpy()
    return np.log(np.clip(kept, 1e-12, None)) - np.log(np.clip(1 - kept, 1e-12, None))


def is_compiled(model: nn.Module) -> bool:
    marks = ("_orig_mod", "_compiled_call_impl")
    return any(getattr(module, mark, None) is not None for module in model.modules() for mark in marks)


def is_first_process() -> bool:
    """Whether this is the first process of those that train together, by whatever they were launched."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank() == 0
    return os.environ.get("RANK", "0") in ("0", "")


def bare_optimizer(optimizer: Any) -> torch.optim.Optimizer:
    """The torch optimizer inside a wrapper, such as accelerate's."""
    for _ in range(5):  # wrappers in wrappers
        # accelerate's is an optimizer too, and so is one that is made from it.
        is_wrapper = any(kind.__name__ == "AcceleratedOptimizer" for kind in type(optimizer).__mro__)
        if isinstance(optimizer, torch.optim.Optimizer) and not is_wrapper:
            return optimizer
        optimizer = getattr(optimizer, "optimizer", None)
    raise UsageError("optimizer should be a torch optimizer, or a wrapper that has one as .optimizer.")


def refuse_partitioned(model: nn.Module) -> None:
    """DeepSpeed's engine makes the updates itself: no hook of torch sees a gradient, and with ZeRO nobody has them."""
    is_engine = any(type(module).__name__ == "DeepSpeedEngine" for module in model.modules())
    if is_engine or any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        raise UsageError(
            "This model is trained by DeepSpeed, whose engine partitions gradients and makes the updates itself: the "
            "watch cannot look at it. It works with one process, DDP, FSDP1 and FSDP2."
        )


def refuse_sharded(model: nn.Module) -> None:
    """For what needs the whole model on one process."""
    refuse_partitioned(model)
    if is_sharded(model):
        raise UsageError(
            "The weights of this model are sharded over processes (FSDP), and the check needs all of them on one. "
            "Check the model before it is sharded."
        )


def is_function(ema: Any) -> bool:
    """Whether it returns an EMA, or None while none is known, and is none itself."""
    return callable(ema) and not isinstance(ema, nn.Module) and not hasattr(ema, "shadow_params")


def ema_of(ema: Any, named_parameters: Sequence[tuple[str, nn.Parameter]]) -> list[Tensor] | None:
    """The EMA weights in the order of `named_parameters`, as they are now; None if they cannot be matched. Of sharded
    ones, the pieces of this process.

    Known: a module with the same parameters, one inside as .ema_model, .module or .model, diffusers' EMAModel
    (.shadow_params), a mapping by name, a list in the same order, and a function that returns one of these, or None
    while none is known.
    """
    ema = ema() if is_function(ema) else ema
    shadows = getattr(ema, "shadow_params", None) or (ema if isinstance(ema, list | tuple) else None)
    if shadows is not None:
        return _matching(list(shadows), named_parameters)
    if isinstance(ema, Mapping):
        return _matching([ema.get(name) for name, _ in named_parameters], named_parameters)
    for inner in (ema, *(getattr(ema, name, None) for name in ("ema_model", "module", "model"))):
        if isinstance(inner, nn.Module):
            weights = dict(named_without_wrappers(unwrapped(inner)))
            if found := _matching([weights.get(name) for name, _ in named_parameters], named_parameters):
                return found
    return None


def _matching(tensors: list[Any], named_parameters: Sequence[tuple[str, nn.Parameter]]) -> list[Tensor] | None:
    if len(tensors) != len(named_parameters):
        return None
    if not all(map(torch.is_tensor, tensors)):
        return None
    held = [local_of(t.detach()) for t in tensors]  # as far as this process does
    same = all(t.shape == local_of(p).shape for t, (_, p) in zip(held, named_parameters, strict=True))
    return held if same else None


def ema_of_trained(
    ema: Any, everything: Sequence[tuple[str, nn.Parameter]], named_parameters: Sequence[tuple[str, nn.Parameter]]
) -> list[Tensor] | None:
    """As `ema_of`, also for an EMA of all parameters of which only `named_parameters` are trained."""
    if (found := ema_of(ema, named_parameters)) is not None:
        return found
    if (whole := ema_of(ema, everything)) is None:
        return None
    wanted = {name for name, _ in named_parameters}
    return [shadow for shadow, (name, _) in zip(whole, everything, strict=True) if name in wanted]


def per_sample(loss: Tensor, prediction: Tensor | None, target: Tensor | None) -> Tensor:
    """One loss for each sample where it can be had: as given, or the mean square of prediction minus target."""
    loss = loss.detach()
    if loss.dim() == 0 and prediction is not None and target is not None and prediction.shape == target.shape:
        errors = (prediction.detach().float() - target.detach().float()).square()
        return errors.reshape(len(errors), -1).mean(1) if errors.dim() else loss.reshape(-1)
    return loss.reshape(-1) if loss.dim() <= 1 else loss.flatten(1).mean(1)
