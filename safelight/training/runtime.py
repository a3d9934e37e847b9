"""The one place that knows devices and processes: a thin shell around torch."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext

import psutil
import torch
from torch import Tensor

from safelight.config.tree import Precision
from safelight.errors import UsageError
from safelight.processes.group import ProcessGroup

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Runtime:
    """A device, and the group of processes."""

    def __init__(self, device: str, group: ProcessGroup | None = None) -> None:
        self.group = group or ProcessGroup()
        self.device: torch.device = choose_device(device)
        if self.device.type == "cuda" and self.group.size > 1:
            self.device = torch.device("cuda", torch.cuda.current_device())  # which joining chose

    def autocast(self, precision: Precision) -> AbstractContextManager[object]:
        """The precision of the forward pass; weights stay fp32."""
        if precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=DTYPES[precision])

    @property
    def has_native_bf16(self) -> bool:
        return has_native_bf16(self.device)

    def to_device(self, tensor: Tensor) -> Tensor:
        """To the device, without waiting for it."""
        if self.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def seed(self, value: int) -> None:
        """Seeds what the model itself draws (dropout), here and now."""
        torch.default_generator.manual_seed(value)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(value)
        elif self.device.type == "mps":
            torch.mps.manual_seed(value)

    def memory(self) -> float:
        """Bytes that are taken now: of the device, or of the process where that is the same."""
        if self.device.type == "cuda":
            return float(torch.cuda.memory_allocated(self.device))
        if self.device.type == "mps":
            return float(torch.mps.current_allocated_memory())
        return float(psutil.Process().memory_info().rss)

    def describe(self) -> str:
        if self.device.type == "cuda":
            return f"{self.device} ({torch.cuda.get_device_name(self.device)})"
        if self.device.type == "cpu":
            threads = torch.get_num_threads()
            return f"cpu ({threads} thread{'s' * (threads != 1)})"
        return str(self.device)


def has_native_bf16(device: torch.device) -> bool:
    """Whether the device has instructions for bf16, so that it may be faster than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    asked = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # which not every version of torch can answer
    return device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in asked)


def busy_machine(load: float, cores: int, threads: int) -> str | None:
    """Threads of one step wait for each other, so a step is as slow as the slowest of them; without a limit for their
    spinning, which the command line sets, up to 30 times slower. The load counts what waits, too: a little is none."""
    if threads < 2 or load < 1 + cores - threads:
        return None
    limited = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()
    spin = "" if limited else ", or start Python with GOMP_SPINCOUNT=10000 in the environment"
    return (
        f"Other programs use this machine too (load {load:.1f} on {cores} cores): steps take longer. If they take very "
        f"long, use fewer threads (--set train.threads={max(1, threads - 1)}){spin}."
    )


def choose_device(name: str) -> torch.device:
    """The requested device, or the best there is; a missing one is an error, never a silent CPU."""
    present = ["cpu"]
    if torch.backends.mps.is_available():
        present.insert(0, "mps")
    if torch.cuda.is_available():
        present.insert(0, "cuda")
    if name == "auto":
        return torch.device(present[0])
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(
            f"train.device is {name!r}, which is no device. Use one of: auto, {', '.join(present)}."
        ) from None
    if device.type not in present:
        raise UsageError(
            f"train.device is {name!r}, but this machine has no {device.type.upper()} that torch "
            f"{torch.__version__} can use. Use one of: auto, {', '.join(present)}."
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"train.device is {name!r}, but there are {torch.cuda.device_count()} CUDA devices, from 0.")
    return device
