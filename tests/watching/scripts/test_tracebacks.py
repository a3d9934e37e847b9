"""What python prints of a script that failed under watch reads as without it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from safelight.watching.scripts import tracebacks
from safelight.watching.scripts.tracebacks import connected, hide_frames, stripped, without_ours

HANDLER = "handle_torch_function"
TORCH = "/site-packages/torch/overrides.py"
Frame = tuple[str, str]


def code(file: str, name: str) -> Callable[..., Any]:
    """A function that calls the next one, and claims to come from another file."""

    def call(following: list[Callable[..., Any]]) -> None:
        if following:
            following[0](following[1:])
        else:
            raise ValueError("deep")

    call.__code__ = call.__code__.replace(co_filename=file, co_name=name)
    return call


def trace_of(*frames: Frame) -> TracebackType:
    made: dict[Frame, Callable[..., Any]] = {}
    functions = [made.setdefault(frame, code(*frame)) for frame in frames]
    with pytest.raises(ValueError, match="deep") as caught:
        functions[0](functions[1:])
    trace = caught.value.__traceback__
    assert trace is not None
    while trace.tb_frame.f_code is not functions[0].__code__:
        assert trace.tb_next is not None
        trace = trace.tb_next
    return trace


def names(trace: TracebackType | None) -> list[Frame]:
    return [(frame.filename, frame.name) for frame in traceback.extract_tb(trace)]


OURS = str(Path(tracebacks.PACKAGE, "capturing", "mode.py"))


@pytest.mark.parametrize(
    ("frames", "left"),
    [
        ([("a.py", "main"), ("b.py", "f")], [0, 1]),
        ([("a.py", "main"), (OURS, "look"), (OURS, "call")], [0]),
        ([("a.py", "main"), (OURS, "look"), ("b.py", "f"), (OURS, "call"), ("c.py", "g")], [0, 2, 4]),
        # torch's mse_loss asks the mode, which calls mse_loss
        ([("a.py", "main"), ("f.py", "mse"), (TORCH, HANDLER), (OURS, "look"), ("f.py", "mse")], [0, 4]),
        ([("a.py", "main"), ("f.py", "mse"), (TORCH, HANDLER), (OURS, "look"), ("c.py", "g")], [0, 1, 4]),
        # a mode of the script's own is shown
        ([("a.py", "main"), ("f.py", "mse"), (TORCH, HANDLER), ("c.py", "g")], [0, 1, 2, 3]),
    ],
)  # fmt: skip
def test_our_frames_are_left_out(frames: list[Frame], left: list[int]) -> None:
    assert names(stripped(trace_of(*frames))) == [frames[place] for place in left]


def test_all_that_an_exception_came_from_is_stripped() -> None:
    error, cause, inside = KeyError(1), ValueError(2), TypeError(3)
    error.__cause__, error.__context__ = cause, cause
    cause.__context__ = ExceptionGroup("all", [inside, error])
    assert {type(each) for each in connected(error)} == {KeyError, ValueError, ExceptionGroup, TypeError}
    shown: list[TracebackType | None] = []
    inside.__traceback__ = error.__traceback__ = trace_of(("a.py", "main"), (OURS, "look"))
    without_ours(lambda kind, error, trace: shown.append(trace))(KeyError, error, error.__traceback__)
    assert names(inside.__traceback__) == [("a.py", "main")]
    assert names(shown[0]) == [("a.py", "main")]


def test_a_hook_of_the_script_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    own = lambda *_: None  # noqa: E731
    monkeypatch.setattr(sys, "excepthook", own)
    hide_frames()
    assert sys.excepthook is own
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    hide_frames()
    assert sys.excepthook is not sys.__excepthook__
