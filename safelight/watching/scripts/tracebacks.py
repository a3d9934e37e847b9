"""Tracebacks of a watched script without the frames of the watch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

PACKAGE = str(Path(__file__).parents[2])
OVERRIDES = str(Path("torch", "overrides.py"))


def hide_frames() -> None:
    """From what python prints of an exception that ends the script; a hook of the script's own is left alone."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = without_ours(sys.__excepthook__)


def without_ours(hook: Callable[..., Any]) -> Callable[..., Any]:
    def excepthook(kind: Any, error: BaseException, trace: TracebackType | None) -> None:
        for each in connected(error):
            each.__traceback__ = stripped(each.__traceback__)
        hook(kind, error, error.__traceback__)

    return excepthook


def connected(error: BaseException) -> list[BaseException]:
    """An exception with all that it came from and all that it holds."""
    found: list[BaseException] = []
    ahead: list[BaseException | None] = [error]
    while ahead:
        each = ahead.pop()
        if each is None or any(each is other for other in found):
            continue
        found.append(each)
        ahead += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            ahead += each.exceptions
    return found


def stripped(trace: TracebackType | None) -> TracebackType | None:
    """Without our frames, and those by which torch came to them: a function that it calls again below is shown once."""
    frames: list[TracebackType] = []
    is_after_ours, whole = False, trace
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(PACKAGE):
            is_after_ours = True
        else:
            if is_after_ours and frames and is_handler(frames[-1]):
                del frames[-1]
                if frames and frames[-1].tb_frame.f_code is trace.tb_frame.f_code:
                    del frames[-1]
            is_after_ours = False
            frames.append(trace)
        trace = trace.tb_next
    if not frames:
        return whole
    for each, following in zip(frames, (*frames[1:], None), strict=True):
        each.tb_next = following
    return frames[0]


def is_handler(trace: TracebackType) -> bool:
    code = trace.tb_frame.f_code
    return code.co_name == "handle_torch_function" and code.co_filename.endswith(OVERRIDES)
