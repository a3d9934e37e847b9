"""What a process holds of the weights that it trains: here all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from torch import Tensor, nn

from safelight.monitors.modules import trained
from safelight.processes.reduction import Reduction
from safelight.processes.slices import Shard


class LocalWeights(Protocol):
    """Plain tensors by the names of the model's, which optimizer, EMA, monitors and checkpoints work on."""

    named: list[tuple[str, nn.Parameter]]
    """Those that are trained. Their gradients are those of what is held."""
    shard: Shard | None
    """Which rows of the parameters are held; None: all."""
    total: Callable[[Tensor], Tensor] | None
    """Adds numbers over the processes, where each has but a part of what they are of. All of them have to call."""
    reduction: Reduction | None
    """How the gradients of a step become one, where these weights decide that."""

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint has of the model, sharing memory with it."""
        ...

    def load(self, tensors: Mapping[str, Tensor]) -> None: ...

    def lend(self, weights: Mapping[str, Tensor]) -> AbstractContextManager[Mapping[str, Tensor] | None]:
        """For passes with other weights than the model's: those to call it with, or None where they have taken the
        place of its own meanwhile."""
        ...


class WholeWeights:
    """Of a process alone, or of many that each have everything."""

    shard: Shard | None = None
    total: Callable[[Tensor], Tensor] | None = None
    reduction: Reduction | None = None

    def __init__(self, model: nn.Module) -> None:
        self._model, self.named, self._places = model, trained(model), _places(model)

    def tensors(self) -> dict[str, Tensor]:
        """As `state_dict` has them, in a tenth of its time: every save waits for it."""
        return {full: owner[name] for full, owner, name in self._places}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self._model.load_state_dict(dict(tensors))

    @contextmanager
    def lend(self, weights: Mapping[str, Tensor]) -> Iterator[Mapping[str, Tensor] | None]:
        yield weights


def _places(model: nn.Module) -> list[tuple[str, dict[str, Any], str]]:
    """Where the modules keep what belongs into a checkpoint: by full name the dictionary and the key."""
    known = model.state_dict(keep_vars=True)
    found: dict[str, tuple[dict[str, Any], str]] = {
        f"{prefix}{name}": (owner, name)
        for path, module in model.named_modules(remove_duplicate=False)
        for prefix in [f"{path}." if path else ""]
        for owner in (module._parameters, module._buffers)
        for name in owner
    }
    return [(full, *found[full]) for full in known]
