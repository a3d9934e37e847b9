"""How the gradients of a step become one: added over micro-batches and processes, in an order that is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from safelight.processes.buckets import Bucket, SumBucket, cut
from safelight.processes.exact_sum import TreeBucket
from safelight.processes.group import ProcessGroup

LAG = 2  # buckets between what is sent and what is waited for, where a sum takes two messages


class Reduction:
    """Called around every micro-batch of a step. After `finish`, `p.grad` is the sum over all, on every process. Here
    of one process: autograd adds micro-batch to micro-batch."""

    def begin(self) -> None: ...
    def before_micro_batch(self, *, last: bool) -> None: ...
    def after_micro_batch(self) -> None: ...
    def finish(self) -> None: ...


def make_reduction(
    parameters: Sequence[nn.Parameter], group: ProcessGroup, exact_parts: int | None, order: list[int]
) -> Reduction:
    """`order`: see `Overlapped`; the bytes of exact mode do not depend on it, so there it is not kept."""
    if exact_parts is not None and group.size == 1:
        return ExactAlone(parameters, group, exact_parts)
    if exact_parts is not None:
        return ExactOverlapped(parameters, group, [], lambda each: TreeBucket(each, group, exact_parts))
    return Overlapped(parameters, group, order, lambda each: SumBucket(each, group)) if group.size > 1 else Reduction()


class Overlapped(Reduction):
    """Sent while the backward pass is still at work on other layers, as DDP does it.

    Buckets are filled in the order in which gradients came in the very first pass, of the first process: a U-Net
    registers its middle after its upper half, so the reverse order of its parameters would hold most of them back.
    That order is kept in checkpoints, so that a restart adds as the run did before.

    Not DDP itself, for three reasons. It lays its buckets out anew after the first step, so that a restart at three or
    more processes adds in another order. It would also communicate in passes that one process makes for itself (a
    replay, a search for a bad sample) and wait for the others in vain. And it would wrap the module."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        group: ProcessGroup,
        order: list[int],
        make: Callable[[list[nn.Parameter]], Bucket],
    ) -> None:
        """`order`: places of the parameters as their gradients come; filled in if it is not known yet."""
        self._parameters, self._group, self._order, self._make = list(parameters), group, order, make
        self._buckets: list[Bucket] = []
        self._bucket_of: dict[nn.Parameter, Bucket] = {}
        self._arrived: dict[nn.Parameter, None] = {}
        self._armed, self._last, self._next = False, False, 0
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._note_arrival)

    def begin(self) -> None:
        self._armed, self._next = False, 0
        self._arrived.clear()  # also passes that a process makes for itself are seen
        if not self._buckets and sorted(self._order) == list(range(len(self._parameters))):
            self._lay_out()
        for bucket in self._buckets:
            bucket.begin()

    def before_micro_batch(self, *, last: bool) -> None:
        self._last, self._armed = last, last and bool(self._buckets)

    def after_micro_batch(self) -> None:
        self._armed = False
        if not self._buckets:
            self._order[:] = self._group.broadcast(self._order_of_arrival)
            self._lay_out()
            for bucket in self._buckets:
                bucket.begin()
        for bucket in self._buckets[self._next :]:
            bucket.add()
        while self._last and self._next < len(self._buckets):  # those with parameters that this batch did not use
            self._send()

    def finish(self) -> None:
        for bucket in self._buckets:
            bucket.advance()
        for bucket in self._buckets:
            bucket.finish()

    def _order_of_arrival(self) -> list[int]:
        places = {parameter: place for place, parameter in enumerate(self._parameters)}
        unused = [place for parameter, place in reversed(places.items()) if parameter not in self._arrived]
        return [places[parameter] for parameter in self._arrived] + unused

    def _lay_out(self) -> None:
        self._buckets = [self._make(each) for each in cut([self._parameters[place] for place in self._order])]
        self._bucket_of = {parameter: bucket for bucket in self._buckets for parameter in bucket.parameters}

    def _note_arrival(self, parameter: Tensor) -> None:
        assert isinstance(parameter, nn.Parameter)
        if not self._buckets:
            self._arrived[parameter] = None
        if not self._armed:
            return
        self._bucket_of[parameter].ready += 1
        while self._next < len(self._buckets) and self._is_complete(self._buckets[self._next]):
            self._buckets[self._next].add()
            self._send()

    def _is_complete(self, bucket: Bucket) -> bool:
        return bucket.ready == len(bucket.parameters)

    def _send(self) -> None:
        """One after the other, in the same order on every process, whichever became ready first."""
        self._buckets[self._next].send()
        if self._next >= LAG:
            self._buckets[self._next - LAG].advance()
        self._next += 1


class ExactOverlapped(Overlapped):
    """Every micro-batch is a leaf of the tree, so its gradients do not stay."""

    def after_micro_batch(self) -> None:
        super().after_micro_batch()
        for parameter in self._parameters:
            parameter.grad = None


class ExactAlone(Reduction):
    """The same tree on one process."""

    def __init__(self, parameters: Sequence[nn.Parameter], group: ProcessGroup, exact_parts: int) -> None:
        self._bucket = TreeBucket(list(parameters), group, exact_parts)

    def begin(self) -> None:
        self._bucket.begin()

    def after_micro_batch(self) -> None:
        self._bucket.add()
        for parameter in self._bucket.parameters:
            parameter.grad = None

    def finish(self) -> None:
        self._bucket.send()
        self._bucket.finish()
