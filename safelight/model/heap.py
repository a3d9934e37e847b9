"""What the C library's heap holds for a sequence of allocations: also freed memory that no longer fits anything."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence

# glibc maps large blocks one by one and gives them back when they are freed, but only above a threshold that
# rises with every block freed, up to 32 MiB. Smaller tensors live on the heap and leave holes there. Small
# objects settle in the holes, and the next tensor of the same size no longer fits: a fifth to two thirds of a
# small model's memory is lost that way. No formula gives the number, so the allocator itself is measured: a child
# process repeats the calls and never touches what it is given. It inherits MALLOC_ and GLIBC_TUNABLES settings.
# A low, fixed threshold would leave no holes, but costs half of a step's time again in page faults (measured).

Event = tuple[int, int]  # a block's number and its bytes when it is allocated, 0 when it is freed

TENSOR_OBJECTS = (184, 104)  # bytes of TensorImpl and StorageImpl in torch 2.13, which come and go with every tensor
# Bytes of the small objects that an operation makes and drops, in about the proportion that was counted.
TEMPORARY_OBJECTS = (*(24, 40) * 4, 56, 72, 88, 104, 184, 776, 824)
ALIGNMENT = 64  # of torch's CPU tensors; glibc takes a larger block and cuts it: that, too, leaves holes
REPEATS = 5  # steps after which the heap hardly grows any more


class _Usage(ctypes.Structure):
    """struct mallinfo2. Field 0 is arena, what the heap holds; field 4 is hblkhd, what is mapped block by block."""

    _fields_ = tuple((f"field{i}", ctypes.c_size_t) for i in range(10))


class _Heap:
    """The allocator of this process, and the most it ever held beyond what it held at the start."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.mallinfo2.restype = _Usage
        self._library.malloc.restype = ctypes.c_void_p
        self._library.malloc.argtypes = [ctypes.c_size_t]
        self._library.free.argtypes = [ctypes.c_void_p]
        self._library.posix_memalign.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
        self._blocks: dict[int, list[int | None]] = {}
        self._refused: dict[int, int] = {}
        self._start = self._held()
        self.peak = 0

    def replay(self, events: Iterable[Event]) -> None:
        for number, size in events:
            if size:
                self._allocate(number, size)
            else:
                self.free(number)

    def rename(self, old: int, new: int) -> None:
        self._blocks[new] = self._blocks.pop(old)

    def free(self, number: int) -> None:
        self._refused.pop(number, None)
        for block in self._blocks.pop(number, []):
            self._library.free(block)

    def _allocate(self, number: int, size: int) -> None:
        temporary = [self._library.malloc(count) for count in TEMPORARY_OBJECTS]
        objects = [self._library.malloc(count) for count in TENSOR_OBJECTS]
        block = ctypes.c_void_p()
        if self._library.posix_memalign(ctypes.byref(block), ALIGNMENT, size):
            self._refused[number] = size  # more than the machine has: it would have been a mapping of its own
        self._blocks[number] = [*objects, block.value]
        self.peak = max(self.peak, self._held() - self._start)
        for small in temporary:
            self._library.free(small)

    def _held(self) -> int:
        usage = self._library.mallinfo2()
        return usage.field0 + usage.field4 + sum(self._refused.values())


def settled_peak(before: Sequence[Event], step: Sequence[Event]) -> int | None:
    """The most bytes that are held while `step` repeats; None if the C library is not glibc 2.33 or newer."""
    if not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "mallinfo2") or not sys.executable:
        return None
    # Isolated: the child must not see this folder as a place to import from, nor load anything else.
    child = [sys.executable, "-I", __file__]
    done = subprocess.run(child, input=json.dumps([before, step]), capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else None


def _survivors(before: Sequence[Event], step: Sequence[Event]) -> tuple[dict[int, int], list[int]]:
    """Blocks that a step leaves to the next, each with the number under which that one frees it; and the others."""
    sizes = {number: size for number, size in [*before, *step] if size}
    allocated = {number for number, size in step if size}
    freed = [number for number, size in step if not size]
    left = sorted(allocated.difference(freed))
    successors: dict[int, int] = {}
    for replaced in (number for number in freed if number not in allocated):
        successor = next((number for number in left if sizes[number] == sizes[replaced]), None)
        if successor is not None:
            left.remove(successor)
            successors[successor] = replaced
    return successors, left


def _main() -> None:
    before, step = json.load(sys.stdin)
    heap = _Heap()
    heap.replay(before)
    successors, others = _survivors(before, step)
    for _ in range(REPEATS):
        heap.replay(step)
        for old, new in successors.items():
            heap.rename(old, new)
        for number in others:
            heap.free(number)
    print(heap.peak)


if __name__ == "__main__":
    _main()
