"""Exact mode: the parts of a batch are the leaves of a binary tree that the number of processes does not change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from safelight.processes.buckets import Bucket, gradient_views, hand_out, pack
from safelight.processes.group import AsyncResult, ProcessGroup

DIRECT = 1 << 21  # numbers (8 MB) that a process may get of a bucket, to save a message


@dataclass(slots=True)
class Node:
    """The sum over exact parts `start` to `start + size`, where size is a power of two that divides start."""

    start: int
    size: int
    sum: Tensor


class TreeBucket(Bucket):
    """A process adds up the subtrees that lie wholly in its own parts. Every process then gets one slice of all of
    these, adds them in the order of the tree, and sends the sum of its slice to all: as much traffic as a ring, where
    the number of processes is such that each holds one subtree. What is small is sent to all as it is: more traffic,
    but one message in place of two. Costs up to log2(exact_parts) copies of the gradient."""

    def __init__(self, parameters: list[nn.Parameter], group: ProcessGroup, exact_parts: int) -> None:
        super().__init__(parameters)
        self._group, share = group, exact_parts // group.size
        self._spans = [(rank * share, (rank + 1) * share) for rank in range(group.size)]
        self._plan = [aligned(*span) for span in self._spans]
        self._depth = max(map(len, self._plan))
        self._width = -(-sum(p.numel() for p in parameters) // group.size)  # of a slice
        copies = self._depth * group.size  # that a process gets; of slices, twice the bucket at most
        self._is_direct = copies <= 2 or copies * self._width * group.size <= DIRECT
        self._nodes: list[Node] = []
        self._next = 0
        self._spare: list[Tensor] = []
        self._pending: AsyncResult | None = None
        self._advanced = False

    def begin(self) -> None:
        super().begin()
        self._spare += [node.sum for node in self._nodes]
        self._nodes, self._next = [], self._spans[self._group.rank][0]
        self._pending, self._advanced = None, False

    @torch.no_grad()
    def add(self) -> None:
        if self._nodes and self._nodes[-1].size == 1 and self._next % 2:  # its sibling: no copy is needed
            pack(self.parameters, gradient_views(self._nodes[-1].sum, self.parameters), add=True)
            self._nodes[-1].size = 2
            self._spare += merge(self._nodes)
        else:
            flat = self._spare.pop() if self._spare else self._make_flat()
            pack(self.parameters, gradient_views(flat, self.parameters))
            self._nodes.append(Node(self._next, 1, flat))
        self._next += 1

    def _make_flat(self) -> Tensor:
        return torch.zeros(self._width * self._group.size, device=self.parameters[0].device)

    @torch.no_grad()
    def send(self) -> None:
        if self._group.size == 1:
            fold(self._nodes)
            return
        sums = [node.sum for node in self._nodes]
        if self._is_direct:
            sums += sums[:1] * (self._depth - len(sums))  # which nobody reads
            self._pending = self._group.start_all_gather(torch.stack(sums))
            return
        sent = sums[0] if len(sums) == 1 else torch.stack(sums).view(len(sums), -1, self._width).transpose(0, 1)
        got_sizes = [len(nodes) * self._width for nodes in self._plan]
        got = sums[0].new_empty(sum(got_sizes))
        own_sizes = [len(sums) * self._width] * self._group.size
        self._pending = self._group.start_all_to_all(sent.reshape(-1), own_sizes, got, got_sizes)

    @torch.no_grad()
    def advance(self) -> None:
        if self._pending is None or self._advanced or self._is_direct:
            return
        parts = self._group.wait(self._pending).split([len(nodes) * self._width for nodes in self._plan])
        total = self._add_up(part.view(-1, self._width) for part in parts)
        self._pending = self._group.start_all_gather_into(self._nodes[0].sum, total)
        self._advanced = True

    @torch.no_grad()
    def finish(self) -> None:
        total = self._nodes[0].sum
        if self._pending is not None:
            found = self._group.wait(self._pending)
            total = self._add_up(found) if self._is_direct else total
        hand_out(self.parameters, gradient_views(total, self.parameters))

    def _add_up(self, parts: Iterable[Tensor]) -> Tensor:
        """The sum over all `parts`: the subtrees of each process, [subtree, number], in their order."""
        whole = list[Node]()
        for nodes, rows in zip(self._plan, parts, strict=True):
            for (start, size), row in zip(nodes, rows, strict=False):  # beyond them is filling
                whole.append(Node(start, size, row))
                merge(whole)
        fold(whole)
        return whole[0].sum


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


def merge(nodes: list[Node]) -> list[Tensor]:
    """Adds up what is whole by the last node; returns the memory that is free again."""
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
