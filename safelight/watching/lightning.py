"""Safelight as a callback of Lightning: `Trainer(callbacks=[WatchCallback()])`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from safelight.errors import UsageError
from safelight.watching.loop import Watch
from safelight.watching.opening import watch
from safelight.watching.silent_watch import NullWatch
from safelight.watching.watched_run import crashed

try:
    from pytorch_lightning.callbacks import Callback  # pyright: ignore[reportMissingImports]
except ImportError:
    try:
        from lightning.pytorch.callbacks import Callback  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UsageError("Lightning is not installed: pip install lightning") from error

STEP_ARGUMENTS = ("t", "pred", "target", "x0", "noise", "x_t", "labels")
WATCH_ARGUMENTS = (
    "ema", "process", "schedule", "prediction", "sampler", "data", "steps", "loggers", "sample_every",
    "evaluate_every", "features", "target_distance", "say", "on_finding",
)  # fmt: skip


class WatchCallback(Callback):  # pyright: ignore[reportGeneralTypeIssues]
    """Watches the whole module, or the network in it that is named. What `training_step` returns beside its loss under
    the names of `Watch.step` (t, pred, target, …) is passed on: with t, pred and target the loss is recorded by
    noise level."""

    def __init__(self, run: str | Path | None = None, *, network: str | None = None, **arguments: Any) -> None:
        """`network`: the attribute that the module keeps its network in, such as "unet" or "model.unet": only then is
        it seen how the network is called. `arguments`: what `safelight.watch` takes beside (ema, process, prediction,
        sampler, data, steps, loggers, sample_every, evaluate_every, features, target_distance, say, on_finding)."""
        super().__init__()
        if unknown := arguments.keys() - WATCH_ARGUMENTS:
            raise UsageError(
                f"WatchCallback does not know {min(unknown)!r}. It takes: network, {', '.join(WATCH_ARGUMENTS)}."
            )
        self._run, self._network, self._arguments = run, network, arguments
        self.watch: Watch | NullWatch | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        arguments: dict[str, Any] = {"steps": _planned(trainer)} | self._arguments
        self.watch = watch(
            pl_module if self._network is None else _network_of(pl_module, self._network),
            trainer.optimizers[0] if trainer.optimizers else None,
            **arguments,
            run=self._run,
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            step=trainer.global_step,
        )

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        returned = outputs if isinstance(outputs, Mapping) else {"loss": outputs}
        if self.watch is None or not isinstance(returned.get("loss"), Tensor):
            return  # the step was left out
        # Lightning divides by the number of micro-batches, where it takes the optimizer's steps itself.
        loss = returned["loss"] * (trainer.accumulate_grad_batches if pl_module.automatic_optimization else 1)
        tensors = {name: returned[name] for name in STEP_ARGUMENTS if isinstance(returned.get(name), Tensor)}
        self.watch.step(loss, **tensors)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.watch is not None:
            self.watch.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.watch is not None:
            self.watch.close(**crashed(exception))


def _network_of(module: nn.Module, name: str) -> nn.Module:
    try:
        return module.get_submodule(name)
    except AttributeError:
        there = ", ".join(child for child, _ in module.named_children()) or "none"
        raise UsageError(f"The module has no network {name!r}. It has: {there}.") from None


def _planned(trainer: Any) -> int | None:
    """Updates in all, as far as the trainer knows."""
    steps = trainer.estimated_stepping_batches
    return int(steps) if steps != float("inf") and steps > 0 else None
