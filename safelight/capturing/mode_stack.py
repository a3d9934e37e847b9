"""Function modes of this thread: ours goes in below those of others, which stay in their order."""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode


def push_below(mode: TorchFunctionMode) -> None:
    """Whoever leaves a `with` afterwards pops his own mode, as the last that came in. Only a default device has to stay
    lowest: torch asserts it."""
    if is_pushed(mode):
        return
    default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    stack = [_pop_mode() for _ in _get_current_function_mode_stack()][::-1]
    lowest = [each for each in stack if each is default]
    for each in (*lowest, mode, *(each for each in stack if each is not default)):
        _push_mode(each)


def remove(mode: TorchFunctionMode) -> None:
    if not is_pushed(mode):
        return
    stack = [_pop_mode() for _ in _get_current_function_mode_stack()][::-1]
    for each in stack:
        if each is not mode:
            _push_mode(each)


def is_pushed(mode: TorchFunctionMode) -> bool:
    return any(each is mode for each in _get_current_function_mode_stack())
