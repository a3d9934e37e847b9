"""What a watch sees of its loop beside what it is passed, and whether both are the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from safelight.capturing.capture import Capture
from safelight.capturing.explanation import ExplainedMicroBatch
from safelight.capturing.mixing import sample_numbers
from safelight.watching.foreign import bare_optimizer, is_compiled, is_first_process

NAMES = ("t", "x0", "noise", "x_t", "target", "pred")  # with these, nothing is left to be seen
COMPARED_ARGUMENTS = {
    "x0": "step(x0=…) is not what the input of the network was made of",
    "noise": "step(noise=…) is not the noise in the input of the network",
    "x_t": "step(x_t=…) is not what the network was called with",
    "target": "step(target=…) is not what the loss compares the output with",
}
TIME = "step(t=…) does not follow the time that the network was called with"
MIN_DIFFERENCE = 0.05  # of the length, after the best factor for each sample: half precision leaves 0.004


class StepCapture:
    """A capture of a loop whose model and optimizer are known. It ends when the loop is seen to pass everything."""

    def __init__(self, model: nn.Module, optimizer: Any, say: Callable[[str], None]) -> None:
        self._seen: list[ExplainedMicroBatch] = []
        self._capture: Capture | None = None
        if optimizer is None or is_compiled(model) or not is_first_process():
            return
        capture = Capture(self, say, network=model, optimizer=bare_optimizer(optimizer))
        self._capture = capture if capture.start() else None

    def ema(self) -> Any:
        """As far as one was seen."""
        search = None if self._capture is None else self._capture.ema
        return None if search is None else search.ema

    def take(self) -> ExplainedMicroBatch | None:
        """The micro-batch that went backward last, once."""
        if self._capture is None:
            return None
        self._capture.feed()
        seen, self._seen = self._seen, []
        return seen[-1] if seen else None

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext() if self._capture is None else self._capture.aside()

    def compare(self, seen: ExplainedMicroBatch | None, passed: Mapping[str, Tensor | None]) -> list[str]:
        """What is passed and differs from what was seen, in words. A loop that passes everything is left alone then:
        looking costs time."""
        found = [] if seen is None or seen.mixing is None else differences(seen, passed)
        if self._capture is not None and all(passed.get(name) is not None for name in NAMES):
            self.finish()
        return found

    def finish(self) -> None:
        if self._capture is not None:
            self._capture.finish()
            self._capture = None

    # --- what the capture tells -----------------------------------------------------------------------------------

    def found(
        self, network: nn.Module, optimizer: torch.optim.Optimizer, first: ExplainedMicroBatch | None
    ) -> None: ...

    def last_call(self) -> None: ...

    def micro_batch(self, explained: ExplainedMicroBatch) -> None:
        self._seen = [explained]

    def updated(self) -> None: ...


def differences(seen: ExplainedMicroBatch, passed: Mapping[str, Tensor | None]) -> list[str]:
    lines = []
    for name, words in COMPARED_ARGUMENTS.items():
        given, expected = passed.get(name), getattr(seen.passed, name)
        if given is None or expected is None or given.shape != expected.shape or not given.is_floating_point():
            continue
        y, x = sample_numbers(given), sample_numbers(expected)
        scale = (x * y).sum(1) / x.square().sum(1).clamp(min=1e-12)
        left = (y - scale[:, None] * x).norm(dim=1) / y.norm(dim=1).clamp(min=1e-12)
        if float(left.median()) > MIN_DIFFERENCE:
            lines.append(words)
    t, shown = passed.get("t"), seen.shown_t
    if t is not None and shown is not None and t.numel() == shown.numel() > 3 and not _are_ordered_alike(t, shown):
        lines.append(TIME)
    return lines


def _are_ordered_alike(t: Tensor, shown: Tensor) -> bool:
    """Whether one is a monotone function of the other: a time may be told in another unit, and turned round."""
    t, shown = t.detach().reshape(-1).cpu().double(), shown.detach().reshape(-1).cpu().double()
    steps = shown[t.argsort(stable=True)].diff()
    return bool((steps >= 0).all() or (steps <= 0).all()) or bool((shown == shown[0]).all() and (t == t[0]).all())
