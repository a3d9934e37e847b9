"""Function modes of others stay in their order, whatever comes and goes below them."""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from safelight.capturing.mode_stack import is_pushed, push_below, remove


class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_ours_goes_in_below_and_others_leave_as_they_came() -> None:
    ours = Mode()
    with Mode() as theirs:
        push_below(ours)
        push_below(ours)
        assert _get_current_function_mode_stack() == [ours, theirs]
    assert _get_current_function_mode_stack() == [ours]
    with Mode() as theirs:
        remove(ours)
        assert _get_current_function_mode_stack() == [theirs]
    assert not is_pushed(ours)


def test_a_device_is_left_as_it_was_entered() -> None:
    ours = Mode()
    with torch.device("cpu"):
        push_below(ours)
    assert _get_current_function_mode_stack() == [ours]
    remove(ours)


def test_a_default_device_stays_lowest() -> None:
    ours = Mode()
    torch.set_default_device("cpu")
    try:
        push_below(ours)
        assert _get_current_function_mode_stack()[1] is ours
    finally:
        torch.set_default_device(None)
    assert _get_current_function_mode_stack() == [ours]
    remove(ours)
