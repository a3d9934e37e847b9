"""Gradients that travel together, as one tensor: how they are packed, sent and handed out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from safelight.processes.group import AsyncResult, ProcessGroup

EDGE, MIDDLE = 1 << 18, 25 << 18  # numbers (1 MB and 25 MB of fp32), as DDP has them
PARTS = 8  # at least, of a model that is larger than so many edges


class Bucket:
    """Of some parameters; all processes have the same buckets and call their methods in the same order."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters, self.ready = parameters, 0

    def begin(self) -> None:
        self.ready = 0

    def add(self) -> None:
        """The gradients of a micro-batch are there."""

    def send(self) -> None:
        """Begins to add over the processes; nothing is added to this process's part any more."""

    def advance(self) -> None:
        """What can only be sent when what was sent has arrived."""

    def finish(self) -> None:
        """Waits for the sum, which is `p.grad` from now on."""


class SumBucket(Bucket):
    """Added in whatever order the library has for a tensor of this size: the same in every step and after a restart."""

    def __init__(self, parameters: list[nn.Parameter], group: ProcessGroup) -> None:
        super().__init__(parameters)
        self._group = group
        self._flat = torch.zeros(sum(p.numel() for p in parameters), device=parameters[0].device)
        self._views = gradient_views(self._flat, parameters)
        self._pending: AsyncResult | None = None

    @torch.no_grad()
    def send(self) -> None:
        pack(self.parameters, self._views)
        self._pending = self._group.start_all_reduce(self._flat)

    def finish(self) -> None:
        assert self._pending is not None, "a bucket that was never sent"
        self._group.wait(self._pending)
        self._pending = None
        hand_out(self.parameters, self._views)


def cut(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """In the order in which gradients come. A small bucket first, so that sending begins early, and a small one last,
    which nothing is left to hide; between them at least a few, also of small models."""
    groups: list[list[nn.Parameter]] = [[]]
    middle = min(MIDDLE, max(EDGE, sum(p.numel() for p in parameters) // PARTS))
    size, limit = 0, EDGE
    for parameter in parameters:
        if groups[-1] and (size + parameter.numel() > limit or groups[-1][0].device != parameter.device):
            groups.append([])
            size, limit = 0, middle
        groups[-1].append(parameter)
        size += parameter.numel()
    last, size = groups.pop(), 0
    place = len(last)
    while place > 1 and size + last[place - 1].numel() <= EDGE:
        place -= 1
        size += last[place].numel()
    return [*groups, *(group for group in (last[:place], last[place:]) if group)]


def gradient_views(flat: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Parts of a tensor that lie in memory as the parameters do; it may be longer than they are."""
    sizes = [p.numel() for p in parameters]
    parts = flat[: sum(sizes)].split(sizes)
    return [
        part.as_strided(p.shape, p.stride(), part.storage_offset()) if _is_dense(p) else part.view(p.shape)
        for part, p in zip(parts, parameters, strict=True)
    ]


def _is_dense(parameter: Tensor) -> bool:
    """Whether its strides may be those of its gradient."""
    return parameter.is_contiguous() or (
        parameter.dim() == 4 and parameter.is_contiguous(memory_format=torch.channels_last)
    )


@torch.no_grad()
def pack(parameters: Sequence[nn.Parameter], views: Sequence[Tensor], *, add: bool = False) -> None:
    """Gradients into their places, or added to what is there; zeros where a batch did not use a parameter."""
    pairs = [(view, p.grad) for p, view in zip(parameters, views, strict=True) if p.grad is not None]
    if unused := [view for p, view in zip(parameters, views, strict=True) if p.grad is None]:
        torch._foreach_add_(unused, 0.0) if add else torch._foreach_zero_(unused)  # -0 becomes 0 either way
    if pairs:
        put = torch._foreach_add_ if add else torch._foreach_copy_
        put([view for view, _ in pairs], [gradient for _, gradient in pairs])


@torch.no_grad()
def hand_out(parameters: Sequence[nn.Parameter], views: Sequence[Tensor]) -> None:
    """The places themselves become the gradients, where they fit."""
    for parameter, view in zip(parameters, views, strict=True):
        fits = view.dtype == parameter.dtype and view.stride() == parameter.stride()
        parameter.grad = view if fits else torch.empty_like(parameter).copy_(view)
