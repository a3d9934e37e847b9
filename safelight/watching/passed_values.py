"""What a loop passes to `watch.step`, as tensors to compute with: what is none is left out, with one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

Report = Callable[[str], None]


def usable_loss(loss: Any, report_once: Report) -> Tensor | None:
    """A scalar or one real number per sample; None where none was passed."""
    if loss is None:
        return None
    found = _tensor_of(loss, with_lists=True)
    if found is None or found.is_complex() or not found.numel():
        report_once(f"A loss is one number, or one per sample: {_kind(loss)} is left out.")
        return None
    return found


def usable_tensors(passed: Mapping[str, Any], report_once: Report) -> dict[str, Tensor | None]:
    found: dict[str, Tensor | None] = {}
    for name, value in passed.items():
        found[name] = None if value is None else _tensor_of(value)
        if value is not None and found[name] is None:
            report_once(f"{name} is a tensor or an array of numbers: {_kind(value)} is left out.")
    return found


def _tensor_of(value: Any, *, with_lists: bool = False) -> Tensor | None:
    """Detached; None of what holds no numbers, or none that can be read."""
    if isinstance(value, Tensor):
        is_plain = value.layout is torch.strided and not value.is_quantized and not value.is_nested
        return value.detach() if is_plain and value.device.type != "meta" else None
    is_list = isinstance(value, list | tuple)
    if not isinstance(value, int | float | np.ndarray | np.generic) and not (is_list and with_lists):
        return None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = math.inf if value > 0 else -math.inf
    try:
        return torch.as_tensor(value).detach()
    except Exception:  # arrays of objects, of words, and whatever else numpy holds
        return None


def _kind(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"a tensor of {value.dtype}, {value.layout}, on {value.device}, of shape {tuple(value.shape)}"
