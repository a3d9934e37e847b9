"""The account of a computation on tensors without content: every allocation it would make, in order."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from safelight.model.heap import Event, settled_peak

CHANNELS_LAST = torch.channels_last


class LiveBytes(TorchDispatchMode):
    """Follows every storage that an operation makes, until nothing refers to it any more.

    For a CPU also the memory that its kernels take for themselves, and what the heap holds beyond all that.
    """

    def __init__(self, *, on_cpu: bool) -> None:
        super().__init__()
        self.now = self._highest = 0
        self._on_cpu = on_cpu
        self._events: list[Event] = []
        self._begin = 0
        self._sizes: dict[int, int] = {}  # of living blocks, by number
        self._numbers: dict[int, int] = {}  # of living storages, by address
        self._last = 0

    @property
    def peak(self) -> int:
        """The most bytes since it was last set, if what happened since then is repeated.

        On a CPU this starts a process that measures the heap, which takes about a second.
        """
        before, since = self._events[: self._begin], self._events[self._begin :]
        return max(self._highest, (settled_peak(before, since) if self._on_cpu else None) or 0)

    @peak.setter
    def peak(self, count: int) -> None:
        self._highest, self._begin = count, len(self._events)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self._on_cpu and func in SCRATCH:
            SCRATCH[func](self, args, result)
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.follow(leaf)
        return result

    def follow(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self._numbers:
            self._numbers[address] = self.allocate(storage.nbytes())
            # A storage's Python object lives as long as the C++ one: autograd's saved tensors count.
            weakref.finalize(storage, lambda: self.free(self._numbers.pop(address)))

    @contextmanager
    def scratch(self, *sizes: int) -> Iterator[None]:
        """Memory that a kernel allocates for itself and frees before it returns."""
        numbers = [self.allocate(size) for size in sizes if size]
        yield
        for number in reversed(numbers):
            self.free(number)

    def allocate(self, size: int) -> int:
        """The number of a new block."""
        self._last += 1
        self._sizes[self._last] = size
        self._events.append((self._last, max(1, size)))  # 0 would mean: freed
        self.now += size
        self._highest = max(self._highest, self.now)
        return self._last

    def free(self, number: int) -> None:
        self.now -= self._sizes.pop(number)
        self._events.append((number, 0))


def _convolution(live: LiveBytes, args: Sequence[Any], output: Tensor) -> None:
    images, weight = args[:2]
    columns = _columns(images, weight, output) if _is_slow(args) else None
    _compute(live, images, weight, output, columns)


def _convolution_backward(live: LiveBytes, args: Sequence[Any], outputs: Sequence[Tensor | None]) -> None:
    gradient, images, weight = args[:3]
    columns = _columns(images, weight, gradient) if _is_slow((images, weight, None, *args[4:10])) else None
    dense = gradient.is_contiguous() or gradient.is_contiguous(memory_format=CHANNELS_LAST)
    with live.scratch(0 if dense else gradient.nbytes):
        for other, output in zip((weight, images), outputs, strict=False):
            if output is not None:
                _compute(live, gradient, other, output, columns)


def _upsample(live: LiveBytes, args: Sequence[Any], output: Tensor) -> None:
    # ATen's UpSampleKernel.cpp works on channels_last copies while height + width <= 128.
    images = args[0]
    live.follow(output)
    if not images.is_contiguous(memory_format=CHANNELS_LAST) and sum(output.shape[-2:]) <= 128:
        with live.scratch(images.nbytes, output.nbytes):
            pass


SCRATCH: dict[Any, Callable[[LiveBytes, Any, Any], None]] = {
    torch.ops.aten.convolution.default: _convolution,
    torch.ops.aten.convolution_backward.default: _convolution_backward,
    torch.ops.aten.upsample_nearest2d.default: _upsample,
}


def _compute(live: LiveBytes, left: Tensor, right: Tensor, output: Tensor, columns: int | None) -> None:
    if columns is not None:
        with live.scratch(columns):
            live.follow(output)
        return
    # oneDNN copies both inputs into blocks of channels, computes in blocks, and copies those to the output.
    inputs = [live.allocate(_blocked(tensor)) for tensor in (left, right)]
    blocks = live.allocate(_blocked(output))
    for number in reversed(inputs):
        live.free(number)
    live.follow(output)
    live.free(blocks)


def _blocked(tensor: Tensor) -> int:
    if tensor.is_contiguous(memory_format=CHANNELS_LAST) and not tensor.is_contiguous():
        return 0  # worked on as it is
    width = 16 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 8
    channels = max(1, tensor.shape[1])
    return tensor.nbytes // channels * -(-channels // width) * width


def _is_slow(arguments: Sequence[Any]) -> bool:
    """Whether ATen's own convolution is taken: for half precision, where oneDNN lacks the instructions."""
    return torch._C._select_conv_backend(*arguments, None).name == "Slow2d"


def _columns(images: Tensor, weight: Tensor, output: Tensor) -> int:
    kernel = weight.shape[-2] * weight.shape[-1]
    if kernel == 1:
        return 0
    pixels = images.shape[0] * output.shape[-2] * output.shape[-1]
    return pixels * images.shape[1] * kernel * images.element_size()
