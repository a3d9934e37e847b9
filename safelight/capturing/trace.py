"""What a step was seen to be made of, with the lineage of its tensors; held until the step is explained."""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

MOST_TENSORS, MOST_VECTORS, MOST_PAIRS, MOST_CALLS, MOST_LOOKUPS = 256, 256, 32, 16, 32
LARGEST_VECTOR = 16_384


@dataclass(slots=True)
class Made:
    """One tensor that does not depend on trained weights."""

    tensor: Tensor
    order: int
    draws: frozenset[int] = frozenset()
    """Normal draws that it is made of, by their order."""
    is_pure: bool = False
    """Whether nothing else of its size is in it."""
    is_draw: bool = False
    """Whether it is a draw as it came."""
    frozen: nn.Module | None = None
    """The frozen network that it, or what it is made of, came out of."""
    is_other_draw: bool = False
    """Whether it is a draw as it came, and not a normal one."""
    parts: tuple[int, ...] = ()
    """Ids of the tensors whose values it holds, in another order, shape or precision."""
    is_clamped: bool = False
    """Whether those values were cut off at a limit."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Two tensors whose difference was taken, of which one depends on trained weights."""

    pred: Tensor
    target: Tensor
    order: int
    is_loss: bool
    """Whether by a loss function, and not by a minus sign."""
    is_sum: bool = False
    """Whether it was added, and squared then: the target is its opposite."""

    @property
    def wanted(self) -> Tensor:
        return -self.target if self.is_sum else self.target


@dataclass(frozen=True, slots=True)
class Lookup:
    """Entries of a vector that were read at places, one for each sample."""

    table: Tensor
    places: Tensor
    order: int


@dataclass(slots=True)
class SeenCall:
    """One call of a module with gradients."""

    module: nn.Module
    order: int
    depth: int
    trained: int
    """Numbers that it trains."""
    random: Tensor | None = None
    training: bool = True
    half: torch.dtype | None = None
    inputs: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    answer: Tensor | None = None
    """The tensor in what it returned."""
    ended: int = -1


class Trace:
    """Bounded, and emptied when its micro-batch is explained: nothing lives longer for it."""

    def __init__(self) -> None:
        self._orders = itertools.count()
        self.tensors: OrderedDict[int, Made] = OrderedDict()
        self.vectors: OrderedDict[int, Made] = OrderedDict()
        """With at most one number for each sample: times, labels, coefficients."""
        self.compared: deque[Compared] = deque(maxlen=MOST_PAIRS)
        self.calls: deque[SeenCall] = deque(maxlen=MOST_CALLS)
        self.lookups: deque[Lookup] = deque(maxlen=MOST_LOOKUPS)
        self._scaled: dict[int, tuple[Tensor, Tensor, float]] = {}
        self._sums: dict[int, tuple[Tensor, Compared]] = {}

    def clear(self) -> None:
        for held in (self.tensors, self.vectors, self.compared, self.calls, self.lookups, self._scaled, self._sums):
            held.clear()

    def next_order(self) -> int:
        return next(self._orders)

    def find(self, tensor: Tensor) -> Made | None:
        found = self.tensors.get(id(tensor)) or self.vectors.get(id(tensor))
        return found if found is not None and found.tensor is tensor else None

    def note(self, tensor: Tensor, **facts: Any) -> Made | None:
        """Remembers a tensor, or what is new about it; None if it can be no part of a step."""
        if tensor.requires_grad and (not tensor.is_leaf or isinstance(tensor, nn.Parameter)):
            return None
        if tensor.layout != torch.strided:
            return None
        home, most = self._home(tensor)
        if home is None:
            return None
        made = home[id(tensor)] = Made(tensor, self.next_order(), **facts)
        while len(home) > most:
            home.popitem(last=False)
        return made

    def enter(self, tensor: Tensor) -> Made | None:
        """A tensor that a function is given: whoever made it, it is there."""
        return self.find(tensor) or self.note(tensor)

    def _home(self, tensor: Tensor) -> tuple[OrderedDict[int, Made] | None, int]:
        numel, dim = tensor.numel(), tensor.dim()
        if 0 < numel <= LARGEST_VECTOR and (dim <= 1 or numel == tensor.shape[0]):
            return self.vectors, MOST_VECTORS
        return (self.tensors, MOST_TENSORS) if numel > 1 and dim > 1 and tensor.is_floating_point() else (None, 0)

    def note_lookup(self, table: Tensor, places: Tensor) -> None:
        if table.numel() == table.shape[0] and not table.requires_grad and places.numel() > 1:
            self.lookups.append(Lookup(table.detach(), places.detach(), self.next_order()))

    def note_sum(self, result: Tensor, pair: Compared) -> None:
        self._sums = {id(result): (result, pair)}  # the last one only: what is squared is squared at once

    def note_square(self, squared: Tensor) -> None:
        """A sum that is squared is a difference of two."""
        found = self._sums.get(id(squared))
        if found is not None and found[0] is squared:
            self.compared.append(found[1])
            self._sums.clear()

    def note_scaled(self, result: Tensor, parent: Tensor, factor: float) -> None:
        self._scaled[id(result)] = result, parent, factor

    def unscaled(self, loss: Tensor) -> tuple[Tensor, float]:
        """The loss before it was divided by the number of micro-batches, and all factors since."""
        factor = 1.0
        for _ in range(len(self._scaled)):
            found = self._scaled.get(id(loss))
            if found is None or found[0] is not loss:
                break
            _, loss, by = found
            factor *= by
        return loss, factor

    def forms(self, tensor: Tensor, *, before_clamps: bool = False) -> Iterator[Tensor]:
        """The tensor, and those whose values it holds: before a cast, a packing, a concatenation; and before they were
        cut off at a limit."""
        waiting, seen = deque([tensor]), set[int]()
        while waiting:
            form = waiting.popleft()
            if id(form) in seen:
                continue
            seen.add(id(form))
            yield form
            made = self.find(form)
            for part in () if made is None or (made.is_clamped and not before_clamps) else made.parts:
                if (entered := self.tensors.get(part)) is not None:
                    waiting.append(entered.tensor)


def tensors_in(value: Any, depth: int = 3) -> Iterator[Tensor]:
    """The tensors of a batch or of arguments, also inside of mappings and sequences."""
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_in(part, depth - 1)
    elif depth and isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part, depth - 1)
