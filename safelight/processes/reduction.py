"""How the gradients of a step become one: added over micro-batches and processes, in an order that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from safelight.processes.group import Pending, ProcessGroup

FIRST_BUCKET, BUCKET = 1 << 18, 25 << 18  # numbers (1 MB and 25 MB of fp32), as DDP has them
SEGMENT = 1 << 24  # numbers that are exchanged at a time in exact mode: bounds the memory it takes


class Reduction:
    """Called around every micro-batch of a step. After `finish`, `p.grad` is the sum over all, on every process. Here
    of one process: autograd adds micro-batch to micro-batch."""

    def begin(self) -> None: ...
    def before_micro_batch(self, *, last: bool) -> None: ...
    def after_micro_batch(self) -> None: ...
    def finish(self) -> None: ...


def make_reduction(parameters: Sequence[nn.Parameter], group: ProcessGroup, exact_parts: int | None) -> Reduction:
    if exact_parts is not None:
        return Tree(parameters, group, exact_parts)
    return Buckets(parameters, group) if group.size > 1 else Reduction()


class Bucket:
    """Gradients that are sent together, as one tensor."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters, self.ready = parameters, 0
        self.pending: Pending | None = None
        self.flat = torch.zeros(sum(p.numel() for p in parameters), device=parameters[0].device)
        self.views = _views(self.flat, parameters)


class Buckets(Reduction):
    """Sent while the backward pass is still at work on earlier layers, as DDP does it.

    Not DDP itself, for three reasons. Its buckets are laid out anew after the first step, so that a restart at three or
    more processes adds in another order; ours never change. It would also communicate in passes that one process makes
    for itself (a replay, a search for a bad sample) and wait for the others in vain. And it would wrap the module."""

    def __init__(self, parameters: Sequence[nn.Parameter], group: ProcessGroup) -> None:
        self._group, self._armed, self._next = group, False, 0
        self._buckets = [Bucket(bucket) for bucket in _groups(parameters)]
        self._place = {p: bucket for bucket in self._buckets for p in bucket.parameters}
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._mark_ready)

    def begin(self) -> None:
        self._armed, self._next = False, 0
        for bucket in self._buckets:
            bucket.ready, bucket.pending = 0, None

    def before_micro_batch(self, *, last: bool) -> None:
        self._armed = last

    def after_micro_batch(self) -> None:
        self._armed = False

    def finish(self) -> None:
        self._launch(complete=False)  # parameters that this batch did not use
        for bucket in self._buckets:
            assert bucket.pending is not None
            self._group.wait(bucket.pending)
            bucket.pending = None
            for parameter in bucket.parameters:
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter)
            torch._foreach_copy_([p.grad for p in bucket.parameters if p.grad is not None], bucket.views)

    def _mark_ready(self, parameter: Tensor) -> None:
        if self._armed:
            assert isinstance(parameter, nn.Parameter)
            self._place[parameter].ready += 1
            self._launch(complete=True)

    @torch.no_grad()
    def _launch(self, *, complete: bool) -> None:
        """One after the other, in the same order on every process, whichever became ready first."""
        while self._next < len(self._buckets):
            bucket = self._buckets[self._next]
            if complete and bucket.ready < len(bucket.parameters):
                return
            _gather_gradients(bucket.parameters, bucket.views)
            bucket.pending = self._group.start_all_reduce(bucket.flat)
            self._next += 1


def _groups(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """From the last layer to the first, as gradients come; a small bucket first, so that sending begins early."""
    groups: list[list[nn.Parameter]] = [[]]
    size, limit = 0, FIRST_BUCKET
    for parameter in reversed(parameters):
        if groups[-1] and (size + parameter.numel() > limit or groups[-1][0].device != parameter.device):
            groups.append([])
            size, limit = 0, BUCKET
        groups[-1].append(parameter)
        size += parameter.numel()
    return groups


def _views(flat: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    parts = flat.split([p.numel() for p in parameters])
    return [part.view(p.shape) for part, p in zip(parts, parameters, strict=True)]


@torch.no_grad()
def _gather_gradients(parameters: Sequence[nn.Parameter], views: Sequence[Tensor]) -> None:
    for parameter, view in zip(parameters, views, strict=True):
        if parameter.grad is None:
            view.zero_()
    pairs = [(view, p.grad) for p, view in zip(parameters, views, strict=True) if p.grad is not None]
    torch._foreach_copy_([view for view, _ in pairs], [gradient for _, gradient in pairs])


@dataclass(slots=True)
class Node:
    """The sum over exact parts `start` to `start + size`, where size is a power of two that divides start."""

    start: int
    size: int
    sum: Tensor


class Tree(Reduction):
    """Exact mode: the parts of the batch are the leaves of a binary tree that the number of processes does not change.

    A process adds up the subtrees that lie wholly in its own parts. Every process then gets one slice of all of these,
    adds them in the order of the tree, and sends the sum of its slice to all: as much traffic as a ring, where the
    number of processes is such that each holds one subtree. Costs up to log2(exact_parts) copies of the gradient."""

    def __init__(self, parameters: Sequence[nn.Parameter], group: ProcessGroup, exact_parts: int) -> None:
        self._parameters, self._group = list(parameters), group
        share = exact_parts // group.size
        self._spans = [(rank * share, (rank + 1) * share) for rank in range(group.size)]
        self._size = sum(p.numel() for p in parameters)
        self._nodes: list[Node] = []
        self._next = 0
        self._spare: list[Tensor] = []

    def begin(self) -> None:
        self._spare += [node.sum for node in self._nodes]  # of a step that was not finished
        self._nodes, self._next = [], self._spans[self._group.rank][0]

    def after_micro_batch(self) -> None:
        flat = self._spare.pop() if self._spare else torch.zeros(self._size, device=self._parameters[0].device)
        _gather_gradients(self._parameters, _views(flat, self._parameters))
        for parameter in self._parameters:
            parameter.grad = None
        self._spare += grow(self._nodes, Node(self._next, 1, flat))
        self._next += 1

    @torch.no_grad()
    def finish(self) -> None:
        nodes, self._nodes = self._nodes, []
        total = nodes[0].sum
        if self._group.size == 1:
            fold(nodes)
        else:
            for start in range(0, self._size, SEGMENT):
                stop = min(self._size, start + SEGMENT)
                total[start:stop] = self._exchange([node.sum[start:stop] for node in nodes])
        for parameter, view in zip(self._parameters, _views(total, self._parameters), strict=True):
            parameter.grad = torch.empty_like(parameter).copy_(view)
        self._spare += [node.sum for node in nodes]

    def _exchange(self, pieces: list[Tensor]) -> Tensor:
        """The sum over all processes of one segment, of which this process has these subtrees."""
        group, length = self._group, len(pieces[0])
        width = -(-length // group.size)
        padded = [torch.nn.functional.pad(piece, (0, width * group.size - length)) for piece in pieces]
        sent = torch.stack(padded).view(len(pieces), group.size, width).transpose(0, 1).reshape(-1)
        plan = [aligned(*span) for span in self._spans]
        got = sent.new_empty(sum(map(len, plan)) * width)
        mine = [len(pieces) * width] * group.size
        group.wait(group.start_all_to_all(sent, mine, got, [len(nodes) * width for nodes in plan]))
        nodes: list[Node] = []
        for (start, size), row in zip([each for nodes in plan for each in nodes], got.view(-1, width), strict=True):
            grow(nodes, Node(start, size, row))
        fold(nodes)
        return group.all_gather(nodes[0].sum).view(-1)[:length]


def aligned(start: int, stop: int) -> list[tuple[int, int]]:
    """(start, size) of the largest whole subtrees between two leaves."""
    found: list[tuple[int, int]] = []
    while start < stop:
        size = start & -start if start else 1 << (stop.bit_length())
        while size > stop - start:
            size >>= 1
        found.append((start, size))
        start += size
    return found


def grow(nodes: list[Node], leaf: Node) -> list[Tensor]:
    """Puts the next node in, and adds up what is whole by it; returns the memory that is free again."""
    nodes.append(leaf)
    free: list[Tensor] = []
    while len(nodes) > 1 and nodes[-1].size == nodes[-2].size and nodes[-2].start % (2 * nodes[-2].size) == 0:
        right = nodes.pop()
        nodes[-1].sum += right.sum
        nodes[-1].size *= 2
        free.append(right.sum)
    return free


def fold(nodes: list[Node]) -> None:
    """Into the first: what is left where the number of parts is not a power of two, from the smallest subtree on."""
    for left, right in zip(nodes[-2::-1], nodes[:0:-1], strict=True):
        left.sum += right.sum
