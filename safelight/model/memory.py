"""Memory: how many bytes a computation keeps alive, what a device has left, and what to do when it runs out."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil
import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from safelight.errors import OutOfMemory
from safelight.model.tracing import LiveBytes
from safelight.words import in_bytes

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
# Limit, use, and the line of memory.stat with file cache that is given up when memory is needed.
CGROUP_2 = ("memory.max", "memory.current", "inactive_file")
CGROUP_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")

WORDS = ("can't allocate memory", "out of memory", "not enough memory", "alloc_failed")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one optimizer step."""

    parameters: int
    gradients: int
    optimizer: int
    ema: int
    activations: int  # kept from the forward pass for the backward pass
    peak: int  # of everything together

    def rows(self, images: int) -> list[tuple[str, str]]:
        """For a page of words: (name, value), of a step with so many images at a time."""
        return [
            ("memory", f"{in_bytes(self.peak)} at the peak of a step with {images} images at a time"),
            ("", f"{in_bytes(self.parameters)} parameters, {in_bytes(self.gradients)} gradients"),
            ("", f"{in_bytes(self.optimizer)} optimizer, {in_bytes(self.ema)} EMA"),
            ("", f"{in_bytes(self.activations)} activations"),
        ]


@contextmanager
def traced(device: torch.device | None = None) -> Iterator[LiveBytes]:
    """Inside, tensors have shapes but no content: nothing is computed or allocated, everything is counted.

    `device`: where it would really run; unset: the best there is. Only a CPU's kernels and heap are known well
    enough to be counted too; a GPU's workspaces come on top.
    """
    on_cpu = device.type == "cpu" if device is not None else not torch.accelerator.is_available()
    with FakeTensorMode(allow_non_fake_inputs=True), LiveBytes(on_cpu=on_cpu) as live:
        yield live
    gc.collect()


def trace_second_step(live: LiveBytes, step: Callable[[int], object], forward: Callable[[], object]) -> tuple[int, int]:
    """(activations, peak) in bytes. The second step is counted: it has the optimizer's moments."""
    step(0)
    before = live.now
    held = forward()
    activations = live.now - before
    del held
    live.peak = live.now
    step(1)
    return activations, live.peak


outside_fake_mode = unset_fake_temporarily
"""Inside of `traced`, for small tensors whose numbers matter: they are real. Elsewhere nothing changes."""


def largest_batch(budget: int, trace: Callable[[int], Memory]) -> int:
    """The most images at a time whose step stays within the budget, 0 if not even one does.

    Memory is a straight line in their number, but for the bends that the heap puts into it: the line's answer
    is traced too, and the line drawn anew through it until both agree within 3 %, since a trace takes seconds.
    What is returned was traced and fits.
    """
    base = trace(1).peak
    if base > budget:
        return 0
    fits, too_many = 1, math.inf
    slope = (trace(5).peak - base) / 4
    for _ in range(6):
        guess = int(min(1 + int((budget - base) / max(slope, 1.0)), too_many - 1))
        if guess <= fits + fits // 32:
            break
        peak = trace(guess).peak
        slope = (peak - base) / (guess - 1)
        if peak <= budget:
            fits = guess
        else:
            too_many = guess
    return fits


def available_memory(device: torch.device) -> int:
    """Bytes that a run could still take."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return max(0, min([psutil.virtual_memory().available, *_left_in_groups(CGROUPS, MEMBERSHIP)]))


def _left_in_groups(root: Path, membership: Path) -> Iterator[int]:
    """What a container leaves, which the machine's own figures do not show."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:  # 0::/path in version 2, 4:memory:/path in version 1
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _left_up_from(root, path, CGROUP_2)
        elif "memory" in controllers.split(","):
            yield from _left_up_from(root / "memory", path, CGROUP_1)


def _left_up_from(root: Path, path: str, files: tuple[str, str, str]) -> Iterator[int]:
    """What is left of the group and of all groups around it: each may have a limit. Inside a container only the root is
    there."""
    group = PurePosixPath(path.lstrip("/"))
    for place in (root / group, *(root / parent for parent in group.parents)):
        try:
            limit, used = (int((place / name).read_text()) for name in files[:2])
            cache = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
            yield limit - used + int(cache.get(files[2], 0))
        except (OSError, ValueError):  # not there, or "max": no limit
            continue


def is_out_of_memory(error: BaseException) -> bool:
    """Running out has a type of its own on CUDA only."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error).lower() for word in WORDS)
    )


def find_accumulation(attempt: Callable[[int], None], batch_size: int) -> int:
    """The smallest number of equal micro-batches for which `attempt(size)` does not run out of memory.

    Trap: on a CPU, Linux promises more memory than it has and kills the process that uses it. Only a single
    allocation larger than all of the machine's memory is refused, so call `largest_batch` before.
    """
    for count in (n for n in range(1, batch_size + 1) if batch_size % n == 0):
        try:
            attempt(batch_size // count)
            return count
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        gc.collect()  # outside the handler: the traceback would keep the failed pass alive
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        elif torch.backends.mps.is_available():
            torch.mps.empty_cache()
    raise OutOfMemory(
        "Not even one image at a time fits into memory. Use a smaller data.image_size, narrower model.widths, "
        "--set model.gradient_checkpointing=true, or --precision bf16."
    )
