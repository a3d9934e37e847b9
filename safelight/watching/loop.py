"""Three lines around a loop that is not ours: `watch`, `watch.step`, `watch.close`."""

from __future__ import annotations

import atexit
import sys
import time
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
from safelight.errors import SafelightError, UsageError
from safelight.monitors.modules import trained
from safelight.monitors.monitors import Monitors
from safelight.monitors.pool import Piece, Pool
from safelight.vocabulary import LEARNING_RATE, LOSS, LOSS_SCALE, NONFINITE_PARAMETERS, REFUSED, SPEED
from safelight.watching.foreign import average_of, bare_optimizer, is_first_process, log_snr_of, per_sample, unwrapped
from safelight.watching.hooks import Sight
from safelight.watching.journal import Journal

NAMED_PARAMETERS = 16  # that an event about gradients which are not finite names


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
            bare_optimizer(self.optimizer)


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
        self._sight: Sight | None = Sight(
            given.model,
            [parameter for _, parameter in self._named],
            given.optimizer,
            given.scaler,
            before_update=lambda gradients: self._monitors.before_update(self._updates, gradients),
            safely=self._safely,
        )
        self._pool = Pool(self._record, self._named[0][1].device)
        self._losses: list[Tensor] = []
        self._times: list[Tensor] = []
        self._window: list[tuple[int, Tensor | None]] = []  # steps since the last look, with their gradients' norms
        self._last = time.perf_counter()
        atexit.register(self.close)

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
        if self._sight is None:
            return
        self._safely(self._drain)
        self._sight.close()
        self._sight, self._on = None, False
        self._journal.close(step=self._updates, **facts)
        atexit.unregister(self.close)

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
        losses = per_sample(torch.as_tensor(loss), pred, target)
        self._losses.append(losses)
        t, sight.t = sight.t if t is None else t, None
        if t is not None and t.reshape(-1).shape == losses.shape and not t.is_floating_point():
            self._times.append(t.detach().reshape(-1))
        if sight.norms is None and sight.follows_updates and not sight.skipped:
            return  # the optimizer has not moved yet: a micro-batch of a larger step
        self._finish_step(sight)
        if self._pool.is_due:
            self._drain()

    def _finish_step(self, sight: Sight) -> None:
        losses = torch.cat(self._losses)
        times = torch.cat(self._times) if len(self._times) == len(self._losses) else None
        self._losses, self._times = [], []
        seconds, self._last = time.perf_counter() - self._last, time.perf_counter()
        told = {SPEED.name: len(losses) / seconds} | ({} if sight.lr is None else {LEARNING_RATE.name: sight.lr})
        if sight.norms is None:
            pieces = [Piece((losses,), lambda losses: {LOSS.name: float(losses.mean())})]
            if sight.skipped:
                pieces.append(_tell_skipped(sight.scale))
        else:
            pieces = self._look_at_update(sight.norms, losses, times, sight.scale)
        self._pool.add(self._updates, pieces, told)
        self._window.append((self._updates, sight.norms))
        self._updates += 1
        sight.clear()

    def _look_at_update(
        self, norms: Tensor, losses: Tensor, times: Tensor | None, scale: Tensor | None
    ) -> Sequence[Piece]:
        norm = torch.linalg.vector_norm(norms)
        zero = torch.zeros_like(norm)
        return self._monitors.after_update(
            self._updates,
            loss=losses.to(norm.device),
            t=None if times is None else times.to(norm.device),
            norms=norms,
            norm=norm,
            limit=torch.full_like(norm, torch.inf),
            scale=zero + 1 if scale is None else scale,
            refused=zero,
            small=None,
            average=None if self._ema is None else average_of(self._ema, self._named),
        )

    def _drain(self) -> None:
        """Brings what was measured to the host; names the parameters whose gradients were not finite."""
        window, self._window = self._window, []
        for (step, norms), readings in zip(window, self._pool.flush(), strict=True):
            if norms is not None and readings.get(NONFINITE_PARAMETERS.name):
                names = self._monitors.parts.nonfinite(norms)
                self._record.event(step, "nonfinite", parameters=names[:NAMED_PARAMETERS], count=len(names))
        self._journal.beat(self._updates)

    def _safely(self, act: Callable[[], None]) -> None:
        """The watched loop goes on, whatever happens here."""
        if not self._on:
            return
        try:
            act()
        except SafelightError:
            raise
        except Exception as error:
            self._on = False
            self._say(f"Safelight's watch stopped ({type(error).__name__}: {error}); your training goes on without it.")


def _tell_skipped(scale: Tensor | None) -> Piece:
    if scale is None:
        return Piece((), lambda: {REFUSED.name: 1.0})
    return Piece((scale.reshape(1),), lambda scale: {REFUSED.name: 1.0, LOSS_SCALE.name: float(scale[0])})


def tell_aloud(text: str) -> None:
    print(text, file=sys.stderr)
