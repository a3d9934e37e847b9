"""How a denoiser is called, and where in what it returns the prediction is."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

from safelight.errors import UsageError


def call_model(model: nn.Module, x: Tensor, t: Tensor | None, labels: Tensor | None = None) -> Tensor:
    """The prediction of a UNet2DModel or any nn.Module of (x, t[, label]); of (x) where `t` is None."""
    # By position: the third argument of UNet2DModel is class_labels, and a wrapper
    # (DDP, torch.compile) hides the signature that has the name.
    given = [x, *(each for each in (t, labels) if each is not None)]
    output = model(*given)
    if (found := answer_of(output)) is None:
        raise UsageError(
            f"The model {type(model).__name__} returned a {type(output).__name__}. "
            "Expected a tensor, or an object whose `.sample` is one."
        )
    return found


def answer_of(output: Any) -> Tensor | None:
    """The tensor in what a network returned: itself, `.sample` of diffusers, or the first of a tuple."""
    output = getattr(output, "sample", output)
    if isinstance(output, tuple | list) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None


def takes_time(model: nn.Module) -> bool:
    """Whether it can be called as model(x, t); a signature that cannot be read is believed to."""
    try:
        inspect.signature(model.forward).bind(None, None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def parameter_names(model: nn.Module) -> tuple[str, ...]:
    """What `forward` calls the inputs that may be passed by position; none where it takes any."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(each.name for each in parameters if each.kind in by_place)
