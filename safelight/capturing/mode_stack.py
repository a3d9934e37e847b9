"""Function modes of this thread: ours goes in below those of others, which stay in their order."""

from __future__ import annotations

from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils._device import DeviceContext


def push_below(mode: TorchFunctionMode) -> None:
    """Whoever leaves a `with` afterwards pops his own mode, as the last that came in. A default device has to stay
    lowest: torch asserts it."""
    if is_pushed(mode):
        return
    above = [_pop_mode() for _ in _get_current_function_mode_stack()][::-1]
    devices = [each for each in above if isinstance(each, DeviceContext)]
    for each in (*devices, mode, *(each for each in above if not isinstance(each, DeviceContext))):
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
