"""Three lines around a loop that is not ours: `watch`, `watch.step`, `watch.close`."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from safelight.config.tree import Prediction
from safelight.diagnosis import Finding, diagnose
from safelight.errors import UsageError
from safelight.monitors.modules import NAMED, trained
from safelight.monitors.monitors import Monitors
from safelight.monitors.pool import Piece, Pool
from safelight.vocabulary import LEARNING_RATE, LOSS, LOSS_SCALE, NONFINITE_PARAMETERS, REFUSED, SPEED
from safelight.watching.foreign import (
    bare_optimizer,
    is_first_process,
    log_snr_of,
    per_sample,
    refuse_sharded,
    trained_among,
    unwrapped,
)
from safelight.watching.hooks import Sight
from safelight.watching.journal import Journal

LONGEST_STEP = 1000  # micro-batches in one step


def watch(
    model: nn.Module,
    optimizer: Any = None,
    *,
    run: str | Path | None = None,
    ema: Any = None,
    schedule: Any = None,
    prediction: Prediction | None = None,
    sampler: Callable[..., Tensor] | None = None,
    data: Any = None,
    scaler: Any = None,
    step: int = 0,
    say: Callable[[str], None] | None = None,
) -> Watch | Bystander:
    """Puts a training loop under watch; nothing but the model is needed, and nothing that is given is touched.

    `run`: the folder of the record; without it runs/watch-1, runs/watch-2, … `schedule`: a diffusers scheduler or a
    tensor of alphas_cumprod, which the loss by noise level needs. `scaler`: a torch.amp.GradScaler, so that updates it
    skips are counted; accelerate's is found by itself. `step`: updates that were made before, when a loop is carried
    on: what was recorded from there on is replaced. `prediction` (epsilon, sample, v_prediction), `sampler` and `data`
    are for the diagnosis, which does not look at them yet.

    With several processes the first one is watched; the others get a bystander, which does nothing. Gradients are the
    same on all of them; the losses are those of the first one's share of the batch.
    """
    refuse_sharded(model)  # on every process: one that goes on alone would wait for the others
    if not is_first_process():
        return Bystander()
    say = say or tell_aloud
    given = Given(model, optimizer, ema=ema, schedule=log_snr_of(schedule), scaler=scaler)
    return Watch(given, Journal(run, step, say), step, say)


@dataclass(frozen=True, slots=True)
class Given:
    """What a loop shows of itself."""

    model: nn.Module
    optimizer: Any
    ema: Any = None
    schedule: np.ndarray | None = None
    """log SNR of each timestep."""
    scaler: Any = None

    def __post_init__(self) -> None:
        if not trained(unwrapped(self.model)):
            raise UsageError("The model has no parameter that requires a gradient: there is nothing to watch.")
        if self.optimizer is not None:
            bare_optimizer(self.optimizer)  # before a folder is made


class Bystander:
    """What a process gets that is not the first: the same calls, and nothing happens."""

    findings: Sequence[Finding] = ()

    def step(self, loss: Tensor | float, **_: Tensor | None) -> None: ...

    def log(self, values: Mapping[str, float], step: int | None = None) -> None: ...

    def close(self, **_: Any) -> None: ...

    def __enter__(self) -> Bystander:
        return self

    def __exit__(self, *_: object) -> None: ...


class Watch:
    """Sees gradients and updates through hooks. A fault of its own switches it off, and is told."""

    def __init__(self, given: Given, journal: Journal, step: int, say: Callable[[str], None]) -> None:
        self._journal, self._ema, self._say = journal, given.ema, say
        self.folder, self._record = journal.folder, journal.record
        self._named = trained(unwrapped(given.model))
        self._updates, self._on = step, True
        self._monitors = Monitors(unwrapped(given.model), given.schedule)
        self._sight: Sight | None = None
        try:
            self._sight = Sight(
                given.model,
                [parameter for _, parameter in self._named],
                given.optimizer,
                given.scaler,
                before_update=self._before_update,
                safely=self._safely,
            )
        except Exception as error:
            journal.close(status="crashed", error=str(error))
            raise
        self._pool = Pool(self._record)
        self._everything = list(unwrapped(given.model).named_parameters())
        self._means: list[Tensor] = []
        self._losses: list[Tensor] = []
        self._times: list[Tensor] = []
        self._window: list[tuple[int, Tensor | None]] = []  # steps since the last look, with their gradients' norms
        self._last, self._process = time.perf_counter(), os.getpid()
        self._told: set[str] = set()
        self._at_exit = functools.partial(_close_at_exit, weakref.ref(self))  # must not keep the model alive
        atexit.register(self._at_exit)

    @property
    def updates(self) -> int:
        """Updates that were seen; the next reading has this number."""
        return self._updates

    @property
    def findings(self) -> list[Finding]:
        """What is wrong with the run, as far as it went: the rules are asked now, on what was recorded."""
        if self._sight is not None:
            self._safely(self._drain)
            self._record.flush(wait=True)
        return diagnose(self.folder.path)

    def step(
        self,
        loss: Tensor | float,
        *,
        t: Tensor | None = None,
        pred: Tensor | None = None,
        target: Tensor | None = None,
        x0: Tensor | None = None,
        noise: Tensor | None = None,
        x_t: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> None:
        """Once per micro-batch; the last one of a window after `optimizer.step()`. `loss`: a scalar or one value per
        sample, unscaled. With a loss for each sample, or `pred` and `target`, the loss is told by noise level; `t` is
        then what the model was called with, unless it is given. `x0`, `noise`, `x_t` and `labels` are for the
        diagnosis, which does not look at them yet."""
        self._safely(lambda: self._take(loss, t, pred, target))

    def log(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Numbers of your own, beside ours in the same record; without `step`, those of the step that is next."""
        self._record.add(self._updates if step is None else step, values)

    def close(self, **facts: Any) -> None:
        """Writes what is left, and takes the hooks off. `facts` go into run.json."""
        if self._sight is None or os.getpid() != self._process:  # a fork has a copy of this, and no business with it
            return
        self._safely(self._drain)
        sight, self._sight, self._on = self._sight, None, False
        try:
            sight.close()
        finally:
            self._journal.close(step=self._updates, **facts)
            atexit.unregister(self._at_exit)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(**{} if error is None else {"status": "crashed", "error": f"{type(error).__name__}: {error}"})

    @torch.no_grad()
    def _take(self, loss: Tensor | float, t: Tensor | None, pred: Tensor | None, target: Tensor | None) -> None:
        sight = self._sight
        assert sight is not None
        given = torch.as_tensor(loss).detach()
        losses = per_sample(given, pred, target)
        self._losses.append(losses)
        self._means.append(given.float().mean().reshape(1))
        t, sight.t = sight.t if t is None else t, None
        if t is not None and t.reshape(-1).shape == losses.shape and not t.is_floating_point():
            self._times.append(t.detach().reshape(-1))
        if sight.norms is None and sight.follows_updates and not sight.skipped:
            self._wait_for_update()
            return  # the optimizer has not moved yet: a micro-batch of a larger step
        self._finish_step(sight)
        if self._pool.is_due:
            self._drain()

    def _wait_for_update(self) -> None:
        """An optimizer that was made anew, or is never called, is told of, and nothing is kept for it without end."""
        if len(self._losses) < LONGEST_STEP:
            return
        self._losses, self._times, self._means = self._losses[-1:], self._times[-1:], self._means[-1:]
        self._tell_once(
            f"{LONGEST_STEP} losses came without a step of the optimizer that is watched. Is it the one that trains?"
        )

    def _before_update(self, gradients: Callable[[], list[Tensor]]) -> None:
        if self._monitors.is_deep(self._updates):
            self._monitors.before_update(self._updates, gradients())
            if sum(p.requires_grad for _, p in self._everything) > len(self._named):
                self._tell_once("Parameters were unfrozen since the watch began: it does not see those.")

    def _finish_step(self, sight: Sight) -> None:
        losses, means = torch.cat(self._losses), torch.cat(self._means)
        times = torch.cat(self._times) if len(self._times) == len(self._losses) else None
        self._losses, self._times, self._means = [], [], []
        seconds, self._last = time.perf_counter() - self._last, time.perf_counter()
        told = {SPEED.name: len(losses) / seconds}
        pieces: list[Piece] = []
        if sight.norms is not None:
            pieces += self._look_at_update(sight, sight.norms, losses, times)
        elif sight.skipped:
            pieces.append(_tell_skipped(sight.scale))
        # Last, over what was computed for the levels: the loss is what the loop says it is.
        pieces.append(Piece((means,), lambda means: {LOSS.name: float(means.mean())}))
        if isinstance(sight.lr, Tensor):
            pieces.append(Piece((sight.lr.reshape(1),), lambda rate: {LEARNING_RATE.name: float(rate[0])}))
        elif sight.lr is not None:
            told[LEARNING_RATE.name] = sight.lr
        self._pool.add(self._updates, pieces, told)
        self._window.append((self._updates, sight.norms))
        self._updates += 1
        sight.clear()

    def _look_at_update(self, sight: Sight, norms: Tensor, losses: Tensor, times: Tensor | None) -> Sequence[Piece]:
        norm = torch.linalg.vector_norm(norms)
        zero = torch.zeros_like(norm)
        average = None
        if self._ema is not None and self._monitors.is_deep(self._updates):
            average = trained_among(self._ema, self._everything, self._named)
            if average is None:
                self._tell_once("The average could not be matched with the model: its distance is not recorded.")
        return self._monitors.after_update(
            self._updates,
            loss=losses.to(norm.device),
            t=None if times is None else times.to(norm.device),
            norms=norms,
            norm=norm,
            limit=torch.full_like(norm, torch.inf),
            scale=zero + 1 if sight.scale is None else sight.scale.to(norm.device),
            refused=zero if sight.refused is None else sight.refused.to(norm.device),
            small=None,
            average=average,
        )

    def _drain(self) -> None:
        """Brings what was measured to the host; names the parameters whose gradients were not finite."""
        window, self._window = self._window, []
        for (step, norms), readings in zip(window, self._pool.flush(), strict=True):
            if norms is not None and readings.get(NONFINITE_PARAMETERS.name):
                names = self._monitors.parts.nonfinite(norms)
                self._record.event(step, "nonfinite", parameters=names[:NAMED], count=len(names))
        self._journal.beat(self._updates)

    def _safely(self, act: Callable[[], None]) -> None:
        """The watched loop goes on, whatever happens here."""
        if not self._on:
            return
        try:
            act()
        except Exception as error:
            self._on = False
            reason = (str(error).strip().splitlines() or [""])[0][:200]
            self._say(
                f"Safelight's watch stopped ({type(error).__name__}: {reason}); your training goes on without it."
            )

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._say(f"Safelight's watch: {text}")


def _close_at_exit(watch: weakref.ref[Watch]) -> None:
    """Of a loop that never said that it ended: it crashed, or was left."""
    if (left := watch()) is not None:
        error = getattr(sys, "last_value", None)
        facts = (
            {"status": "ended"} if error is None else {"status": "crashed", "error": f"{type(error).__name__}: {error}"}
        )
        left.close(**facts)


def _tell_skipped(scale: Tensor | None) -> Piece:
    if scale is None:
        return Piece((), lambda: {REFUSED.name: 1.0})
    return Piece((scale.reshape(1),), lambda scale: {REFUSED.name: 1.0, LOSS_SCALE.name: float(scale[0])})


def tell_aloud(text: str) -> None:
    print(text, file=sys.stderr)
