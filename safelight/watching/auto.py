"""A training script that knows nothing of Safelight, under watch: `auto`, `captured`."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from safelight import checks
from safelight.capturing.capture import Capture
from safelight.capturing.evidence import CaptureEvidence, describe_loop, describe_network
from safelight.capturing.explanation import ExplainedMicroBatch
from safelight.capturing.living import prediction_of_schedulers, scaler_in_use
from safelight.diagnosis import Diagnosis
from safelight.monitors.parameters import unwrapped
from safelight.observing.live_diagnosis import OnFinding
from safelight.probes.forward_pass import Call
from safelight.vocabulary import CHECK
from safelight.watching.arguments import WatchArguments
from safelight.watching.loop import Watch
from safelight.watching.opening import open_watch
from safelight.watching.ranks.joining import Members
from safelight.watching.silent_watch import NullWatch
from safelight.watching.watched_run import WatchedRun
from safelight.words import print_to_stderr

UPDATES_BEFORE_NOTICE = 3  # updates after which most of a loop has been seen: its EMA, accumulation, clipping
PREDICTIONS = {"epsilon": "epsilon", "sample": "sample", "v": "v_prediction"}


class StopAfter(SystemExit):
    """Raised out of the step of the optimizer, after as many updates as were asked for. It passes `except Exception`,
    and python leaves on it without a traceback."""


class Captured:
    """What is seen of whatever trains in this process, from `start` until `finish`, or inside of a `with`; it opens a
    watch as soon as a network and its optimizer are known. With `stop_after` the loop ends after so many updates."""

    def __init__(
        self,
        *,
        run: str | Path | None = None,
        steps: int | None = None,
        say: Callable[[str], None] | None = None,
        on_finding: OnFinding | None = None,
        stop_after: int | None = None,
        loggers: str | Sequence[str] = (),
    ) -> None:
        self._say = say = say or print_to_stderr
        self._open_run = partial(WatchedRun, run, 0, say, steps=steps, loggers=loggers, is_captured=True)
        self._on_finding, self._stop_after = on_finding, stop_after
        self.watch: Watch | NullWatch | None = None
        self.updates = 0
        self._evidence = CaptureEvidence()
        self._capture = Capture(self, say)
        self._members = Members()
        self._network = ""
        self._loop: list[str] = []
        self._is_finished = False
        self.announces = False
        """Whether it says by itself, after a few updates, what it recognised."""

    @property
    def folder(self) -> Path | None:
        """The folder of the record; None before the watch is open."""
        return self.watch.folder.path if isinstance(self.watch, Watch) else None

    def recognised(self) -> list[str]:
        """What is known of the loop, one sentence each; what is not known is named as such."""
        if not self._network:
            return ["No training was seen: no network was called with gradients and then updated by an optimizer."]
        return [self._network, *self._evidence.sentences(), *(self._loop or self._describe_loop())]

    @property
    def is_known(self) -> bool:
        """Whether process and target are recognised."""
        return self._evidence.recognised().is_known

    def diagnosis(self) -> Diagnosis | None:
        if isinstance(self.watch, Watch):
            return self.watch.diagnosis
        return None

    def start(self) -> Captured:
        self._capture.start()
        return self

    def finish(self, **facts: Any) -> None:
        """Takes every hook off and prints the verdict; once. `facts` go into run.json."""
        if self._is_finished:
            return
        self._is_finished = True
        self._loop = self._describe_loop()
        self._announce()
        self._members.close()
        self._capture.finish()
        if self.watch is not None:
            self.watch.close(**facts)

    def __enter__(self) -> Captured:
        self.announces = True
        return self.start()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        self.finish()
        return isinstance(error, StopAfter)

    # --- what the capture tells -----------------------------------------------------------------------------------

    def found(self, network: nn.Module, optimizer: torch.optim.Optimizer, first: ExplainedMicroBatch | None) -> None:
        self._network = describe_network(unwrapped(network), optimizer)
        self.watch = open_watch(
            self._arguments(network, optimizer, first), self._open_run, 0, self._say, self._on_finding,
            is_captured=True, calls=self._members.calls,
        )  # fmt: skip
        self._compare_with_schedulers(first)

    def _compare_with_schedulers(self, first: ExplainedMicroBatch | None) -> None:
        alphas = None if first is None else first.alphas
        declared = None if alphas is None else prediction_of_schedulers(alphas)
        if declared in checks.PREDICTIONS and isinstance(self.watch, Watch):
            place = float(checks.PREDICTIONS.index(declared))
            self.watch.log({f"{CHECK.name}/{checks.TARGET_OF_SCHEDULER}": place})

    def _arguments(
        self, network: nn.Module, optimizer: torch.optim.Optimizer, first: ExplainedMicroBatch | None
    ) -> WatchArguments:
        """With what the first micro-batch proves."""
        search, alphas = self._capture.ema, None if first is None else first.alphas
        prediction = None
        if first is not None and alphas is not None:
            evidence = CaptureEvidence()
            evidence.add(first)
            prediction = PREDICTIONS.get(evidence.recognised().target or "")
        return WatchArguments(
            network,
            optimizer,
            ema=None if search is None else lambda: search.ema,
            schedule=alphas,
            scaler=scaler_in_use(),
            prediction=prediction,
        )

    def last_call(self) -> Call | None:
        return self.watch.last_call() if isinstance(self.watch, Watch) else None

    def micro_batch(self, explained: ExplainedMicroBatch) -> None:
        if explained.network is not None:  # it was looked at
            self._evidence.add(explained)
        if isinstance(self.watch, Watch):
            if explained.inner_error is not None:
                self.watch.log({f"{CHECK.name}/{checks.FORWARD_INNER_SCALE}": explained.inner_error})
            self.watch.step_captured(explained.passed)

    def updated(self) -> None:
        self.updates += 1
        search = self._capture.ema
        if search is not None and (news := search.pop_news()) and isinstance(self.watch, Watch):
            self.watch.log(news)
        if self.updates == UPDATES_BEFORE_NOTICE:
            self._announce()
        if self._stop_after is not None and self.updates >= self._stop_after:
            raise StopAfter

    def _announce(self) -> None:
        announces, self.announces = self.announces, False
        if announces and self._network:
            for line in self.recognised():
                self._say(f"Safelight: {line}")

    def _describe_loop(self) -> list[str]:
        seen = self._capture
        return describe_loop(seen.accumulates, seen.clips, self._evidence.half, seen.ema)


captured = Captured  # what trains inside of the `with` is watched


def auto(
    *,
    run: str | Path | None = None,
    steps: int | None = None,
    say: Callable[[str], None] | None = None,
    on_finding: OnFinding | None = None,
    stop_after: int | None = None,
    loggers: str | Sequence[str] = (),
) -> Captured:
    """One line at the top of a script or a notebook: what trains below it is watched until the process ends."""
    found = Captured(run=run, steps=steps, say=say, on_finding=on_finding, stop_after=stop_after, loggers=loggers)
    found.announces = True
    atexit.register(found.finish)
    return found.start()
