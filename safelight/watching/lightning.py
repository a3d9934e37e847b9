"""Safelight as a callback of Lightning: `Trainer(callbacks=[WatchCallback()])`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from safelight.errors import UsageError
from safelight.watching.loop import SilentWatch, Watch, watch

try:
    from pytorch_lightning.callbacks import Callback  # pyright: ignore[reportMissingImports]
except ImportError:
    try:
        from lightning.pytorch.callbacks import Callback  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UsageError("Lightning is not installed: pip install lightning") from error

PASSED_ON = ("t", "pred", "target", "x0", "noise", "x_t", "labels")
GIVEN = ("ema", "schedule", "prediction", "sampler", "data")


class WatchCallback(Callback):  # pyright: ignore[reportGeneralTypeIssues]
    """Watches the whole module, or the network in it that is named. What `training_step` returns beside its loss under
    the names of `Watch.step` (t, pred, target, …) is passed on: with t, pred and target the loss is told by noise
    level."""

    def __init__(self, run: str | Path | None = None, *, network: str | None = None, **given: Any) -> None:
        """`network`: the attribute that the module keeps its network in, such as "unet" or "model.unet": only then is
        it seen how the network is called. `given`: what `safelight.watch` takes beside (ema, schedule, prediction,
        sampler, data)."""
        super().__init__()
        if strangers := given.keys() - GIVEN:
            raise UsageError(f"WatchCallback does not know {min(strangers)!r}. It takes: network, {', '.join(GIVEN)}.")
        self._run, self._network, self._given = run, network, given
        self.watch: Watch | SilentWatch | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.watch = watch(
            pl_module if self._network is None else _network_of(pl_module, self._network),
            trainer.optimizers[0] if trainer.optimizers else None,
            **self._given,
            run=self._run,
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            step=trainer.global_step,
        )

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        told = outputs if isinstance(outputs, Mapping) else {"loss": outputs}
        if self.watch is None or not isinstance(told.get("loss"), Tensor):
            return  # the step was left out
        # Lightning divides by the number of micro-batches, where it takes the optimizer's steps itself.
        loss = told["loss"] * (trainer.accumulate_grad_batches if pl_module.automatic_optimization else 1)
        self.watch.step(loss, **{name: told[name] for name in PASSED_ON if isinstance(told.get(name), Tensor)})

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.watch is not None:
            self.watch.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.watch is not None:
            self.watch.close(status="crashed", error=f"{type(exception).__name__}: {exception}")


def _network_of(module: nn.Module, name: str) -> nn.Module:
    try:
        return module.get_submodule(name)
    except AttributeError:
        there = ", ".join(child for child, _ in module.named_children()) or "none"
        raise UsageError(f"The module has no network {name!r}. It has: {there}.") from None
