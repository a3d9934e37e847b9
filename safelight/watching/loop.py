"""Three lines around a loop that is not ours: `watch`, `watch.step`, `watch.close`."""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from safelight import __version__
from safelight.config.tree import Prediction
from safelight.errors import SafelightError, UsageError
from safelight.monitors.modules import trained
from safelight.monitors.monitors import Monitors
from safelight.monitors.pool import Piece, Pool
from safelight.record.store import Record
from safelight.run import RunFolder, free_name, point_latest
from safelight.vocabulary import LEARNING_RATE, SPEED
from safelight.watching.foreign import average_of, bare_optimizer, log_snr_of, per_sample, unwrapped

DEVICE_WINDOW = 16  # steps between looks at a device: a copy waits for all that is queued before it
HEARTBEAT_SECONDS = 2.0


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
    step: int = 0,
    say: Callable[[str], None] | None = None,
) -> Watch:
    """Puts a training loop under watch; nothing but the model is needed, and nothing that is given is touched.

    `run`: the folder of the record; without it runs/watch-1, runs/watch-2, … `schedule`: a diffusers scheduler or a
    tensor of alphas_cumprod, which the loss by noise level needs. `step`: updates that were made before, when a loop is
    carried on: what was recorded from there on is replaced. `prediction` (epsilon, sample, v_prediction), `sampler` and
    `data` are for the diagnosis, which does not look at them yet.
    """
    return Watch(model, optimizer, run=run, ema=ema, schedule=schedule, step=step, say=say or _print)


class Watch:
    """Sees gradients and updates through hooks on the optimizer. A fault of its own switches it off, and is told."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any,
        *,
        run: str | Path | None,
        ema: Any,
        schedule: Any,
        step: int,
        say: Callable[[str], None],
    ) -> None:
        self._model, self._ema, self._say = unwrapped(model), ema, say
        self._named = trained(self._model)
        if not self._named:
            raise UsageError("The model has no parameter that requires a gradient: there is nothing to watch.")
        self.folder = _open_folder(run, step)
        self._updates = step
        self._monitors = Monitors(self._model, log_snr_of(schedule))
        self._record = Record(self.folder.record, from_step=step, say=say)
        self._pool = Pool(self._record)
        self._window = 1 if self._named[0][1].device.type == "cpu" else DEVICE_WINDOW
        self._losses: list[Tensor] = []
        self._times: list[Tensor] = []
        self._norms: Tensor | None = None
        self._lr = float("nan")
        self._waiting, self._beat, self._last = 0, 0.0, time.perf_counter()
        self._hooks = self._attach(optimizer)
        self._on = True
        self.folder.report(status="training", step=step, kind="watched", versions={"safelight": __version__})
        atexit.register(self.close)

    @property
    def findings(self) -> list[Any]:
        """What is wrong with the run. Nothing is judged yet: rules come with the diagnosis."""
        return []

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
        sample, unscaled. With `t`, and a loss for each sample or `pred` and `target`, the loss is told by noise level.
        `x0`, `noise`, `x_t` and `labels` are for the diagnosis, which does not look at them yet."""
        self._safely(lambda: self._take(loss, t, pred, target))

    def close(self) -> None:
        """Writes what is left, and takes the hooks off."""
        if self._hooks is None:
            return
        self._safely(lambda: self._drain(0))
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._on = None, False
        self._record.close()
        self.folder.report(status="finished", step=self._updates)
        atexit.unregister(self.close)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if error is not None:
            self.folder.report(status="crashed", error=f"{type(error).__name__}: {error}")

    def _attach(self, optimizer: Any) -> list[Any] | None:
        if optimizer is None:
            return []
        bare = bare_optimizer(optimizer)
        return [bare.register_step_pre_hook(lambda *_: self._safely(lambda: self._before(bare)))]

    @torch.no_grad()
    def _before(self, optimizer: torch.optim.Optimizer) -> None:
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for _, p in self._named]
        norms = torch.stack(torch._foreach_norm(gradients)).float()
        scale = getattr(optimizer, "grad_scale", None)  # fused optimizers unscale by themselves, later
        self._norms = norms / scale if isinstance(scale, Tensor) else norms
        self._lr = float(optimizer.param_groups[0]["lr"])
        self._monitors.before_update(self._updates, gradients)

    @torch.no_grad()
    def _take(self, loss: Tensor | float, t: Tensor | None, pred: Tensor | None, target: Tensor | None) -> None:
        losses = per_sample(torch.as_tensor(loss), pred, target)
        self._losses.append(losses)
        if t is not None and t.reshape(-1).shape == losses.shape and not t.is_floating_point():
            self._times.append(t.detach().reshape(-1))
        if self._norms is None and self._hooks:
            return  # the optimizer has not moved yet: a micro-batch of a larger step
        self._finish_step()

    def _finish_step(self) -> None:
        losses = torch.cat(self._losses)
        times = torch.cat(self._times) if len(self._times) == len(self._losses) else None
        self._losses, self._times = [], []
        pieces: list[Piece] = []
        if self._norms is not None:
            norm = torch.linalg.vector_norm(self._norms)
            zero, none = torch.zeros_like(norm), torch.full_like(norm, torch.inf)
            pieces = self._monitors.after_update(
                self._updates,
                loss=losses.to(norm.device),
                t=None if times is None else times.to(norm.device),
                norms=self._norms,
                norm=norm,
                limit=none,
                scale=zero + 1,
                refused=zero,
                small=None,
                average=None if self._ema is None else average_of(self._ema, self._named),
            )
            self._norms = None
        seconds, self._last = time.perf_counter() - self._last, time.perf_counter()
        self._pool.add(self._updates, pieces, {LEARNING_RATE.name: self._lr, SPEED.name: len(losses) / seconds})
        self._updates += 1
        self._waiting += 1
        self._drain(self._window)

    def _drain(self, at_least: int) -> None:
        if self._waiting < at_least:
            return
        self._waiting = 0
        self._pool.flush()
        if time.monotonic() - self._beat > HEARTBEAT_SECONDS:
            self._beat = time.monotonic()
            self.folder.report(step=self._updates)

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


def _open_folder(run: str | Path | None, step: int) -> RunFolder:
    folder = RunFolder(Path(run) if run is not None else free_name(Path("runs"), "watch"))
    if step == 0 and folder.record.exists():
        raise UsageError(
            f"{folder.path} already holds a record. To carry it on, say from where: watch(…, step=N). Or choose "
            "another run."
        )
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"The run folder {folder.path} cannot be made: {error.strerror}. Choose another run."
        ) from error
    point_latest(folder)
    return folder


def _print(text: str) -> None:
    print(text, file=sys.stderr)
