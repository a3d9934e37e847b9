"""What a process holds of the weights that it trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from safelight.monitors.parameters import trainable_parameters
from safelight.processes.reduction import Reduction
from safelight.processes.slices import Shard


class LocalWeights:
    """Plain tensors by the names of the model's, which optimizer, EMA, monitors and checkpoints work on. Here all of
    them: of a process alone, or of many that each have everything."""

    shard: Shard | None = None
    """Which rows of the parameters are held; None: all."""
    sum_over_processes: Callable[[Tensor], Tensor] | None = None
    """Adds numbers over the processes, where each has but a part of what they are of. All of them have to call."""
    reduction: Reduction | None = None
    """How the gradients of a step become one, where these weights decide that."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._places = model, _places(model)
        self.named_parameters = trainable_parameters(model)  # their gradients are those of what is held

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint has of the model, sharing memory with it: as `state_dict` has them, in a tenth of its
        time, for which every save waits."""
        return {full: owner[name] for full, owner, name in self._places}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self._model.load_state_dict(dict(tensors))

    @contextmanager
    def swapped_in(self, weights: Mapping[str, Tensor]) -> Iterator[Mapping[str, Tensor] | None]:
        """For passes with other weights than the model's: those to call it with, or None if they have taken the
        place of its own meanwhile."""
        yield weights


def _places(model: nn.Module) -> list[tuple[str, dict[str, Any], str]]:
    """Where the modules keep what belongs into a checkpoint: by full name the dictionary and the key."""
    state = model.state_dict(keep_vars=True)
    found: dict[str, tuple[dict[str, Any], str]] = {
        f"{prefix}{name}": (owner, name)
        for path, module in model.named_modules(remove_duplicate=False)
        for prefix in [f"{path}." if path else ""]
        for owner in (module._parameters, module._buffers)
        for name in owner
    }
    return [(full, *found[full]) for full in state]
