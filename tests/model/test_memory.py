"""Memory: the batch that fits, what a device has left, and running out."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from safelight.errors import OutOfMemory
from safelight.model import memory
from safelight.model.memory import Memory, available_memory, find_accumulation, is_out_of_memory, largest_batch

# --- what fits ------------------------------------------------------------------------------------------------


def of(peak: Callable[[int], float]) -> tuple[Callable[[int], Memory], list[int]]:
    asked: list[int] = []

    def trace(count: int) -> Memory:
        asked.append(count)
        return Memory(0, 0, 0, 0, 0, math.ceil(peak(count)))

    return trace, asked


@pytest.mark.parametrize("budget", [129, 130, 131, 999, 123_456])
def test_the_largest_batch_is_the_largest(budget: int) -> None:
    trace, asked = of(lambda count: 100 + 30 * count)
    found = largest_batch(budget, trace)
    assert found == (budget - 100) // 30
    assert len(asked) <= 3  # two for the line, one to verify


@pytest.mark.parametrize(
    "peak",
    [
        lambda count: 100 + 30 * count + 0.1 * count**2,
        lambda count: 100 + 30 * count - 5 * (count % 7),
        lambda count: 100 + 30 * count * (1.3 if count > 20 else 1),
        lambda count: 100 + 30 * count * (0.8 if count > 20 else 1),
    ],
)
def test_a_bent_line_never_gives_too_many_and_not_much_too_few(peak: Callable[[int], float]) -> None:
    trace, asked = of(peak)
    for budget in range(200, 6000, 137):
        found = largest_batch(budget, trace)
        assert peak(found) <= budget
        largest = max(count for count in range(300) if peak(count) <= budget)
        assert found >= 0.85 * largest - 1
    assert len(asked) / 43 < 7


def test_a_memory_that_does_not_grow_is_not_divided_by() -> None:
    assert largest_batch(1000, of(lambda _: 10)[0]) > 100


# --- what there is --------------------------------------------------------------------------------------------


def group(folder: Path, *, limit: object, used: int, cache: int, version: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    line = "inactive_file" if version == 2 else "total_inactive_file"
    (folder / "memory.stat").write_text(f"anon 5\n{line} {cache}\n")


@pytest.mark.parametrize(
    ("membership", "groups", "left"),
    [
        ("0::/a/b\n", {"a/b": ("max", 1, 0, 2), "a": (900, 500, 100, 2)}, [500]),
        ("0::/gone\n", {".": (900, 500, 0, 2)}, [400]),  # inside a container only the root is to be seen
        ("0::/a\n", {"a": (900, 500, 0, 2), ".": (700, 600, 50, 2)}, [400, 150]),
        ("5:cpu:/x\n4:memory:/x\n0::/\n", {"memory/x": (800, 300, 10, 1)}, [510]),
        ("0::/\n", {".": ("max", 500, 0, 2)}, []),
        ("0::/\n", {}, []),
    ],
)
def test_the_limit_of_a_container_counts(
    tmp_path: Path, membership: str, groups: dict[str, tuple[Any, int, int, int]], left: list[int]
) -> None:
    for name, (limit, used, cache, version) in groups.items():
        group(tmp_path / "groups" / name, limit=limit, used=used, cache=cache, version=version)
    (tmp_path / "cgroup").write_text(membership)
    assert list(memory._left_in_groups(tmp_path / "groups", tmp_path / "cgroup")) == left


def test_without_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert list(memory._left_in_groups(tmp_path, tmp_path / "none")) == []


def test_available_is_the_least_of_machine_and_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    for groups, wanted in (([], 1000), ([5000], 1000), ([300, 700], 300), ([-20], 0)):
        monkeypatch.setattr(memory, "_left_in_groups", lambda *_, found=groups: iter(found))
        assert available_memory(torch.device("cpu")) == wanted


# --- running out ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "out"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (MemoryError(), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_running_out_of_memory_is_recognised(error: BaseException, out: bool) -> None:
    assert is_out_of_memory(error) == out


def test_the_error_of_a_real_cpu_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert is_out_of_memory(caught.value)


def with_room_for(most: int, tried: list[int]) -> Callable[[int], None]:
    def attempt(size: int) -> None:
        tried.append(size)
        if size > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    return attempt


@pytest.mark.parametrize(
    ("room", "found", "sizes"),
    [(64, 1, [48]), (48, 1, [48]), (47, 2, [48, 24]), (15, 4, [48, 24, 16, 12]), (1, 48, None)],
)
def test_the_smallest_number_of_micro_batches_that_fits_is_found(
    room: int, found: int, sizes: list[int] | None
) -> None:
    tried: list[int] = []
    assert find_accumulation(with_room_for(room, tried), 48) == found
    assert sizes is None or tried == sizes


def test_when_not_even_one_image_fits_it_is_told_in_words() -> None:
    with pytest.raises(OutOfMemory, match=r"Not even one image.*gradient_checkpointing"):
        find_accumulation(with_room_for(0, []), 8)


@pytest.mark.parametrize("error", [RuntimeError("shapes"), ValueError("bad"), KeyboardInterrupt()], ids=repr)
def test_other_errors_pass_through(error: BaseException) -> None:
    tried: list[int] = []

    def attempt(size: int) -> None:
        tried.append(size)
        raise error

    with pytest.raises(type(error)):
        find_accumulation(attempt, 8)
    assert tried == [8]


def test_a_failed_attempt_leaves_nothing_behind() -> None:
    """The traceback of the error would keep its tensors alive through the next attempt."""
    left: list[int] = []

    class Held:
        alive = 0

        def __init__(self) -> None:
            Held.alive += 1

        def __del__(self) -> None:
            Held.alive -= 1

    def attempt(size: int) -> None:
        left.append(Held.alive)
        held = Held()
        if size > 2:
            raise torch.OutOfMemoryError(f"CUDA out of memory with {held}")

    assert find_accumulation(attempt, 8) == 4
    assert left == [0, 0, 0]
