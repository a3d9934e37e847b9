"""What a training step needs in memory (placeholder: the whole module is being written and will replace this file)."""

from __future__ import annotations

from collections.abc import Callable

import torch


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def find_accumulation(attempt: Callable[[int], None], batch_size: int) -> int:
    attempt(batch_size)
    return 1
