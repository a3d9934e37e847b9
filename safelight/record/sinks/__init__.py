"""Loggers: what the record gets, given on to TensorBoard, Weights & Biases or a file of JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from safelight.record.sinks.jsonl import JsonLines
from safelight.record.sinks.logger_threads import LoggerThreads, Opener
from safelight.record.sinks.tensorboard import TensorBoard
from safelight.record.sinks.wandb import WeightsAndBiases

LOGGERS = ("tensorboard", "wandb", "jsonl")


def open_sinks(
    names: Iterable[str],
    folder: Path,
    *,
    config: dict[str, Any],
    run_name: str,
    from_step: int,
    say: Callable[[str], None],
) -> LoggerThreads:
    """Returns at once; the loggers open on threads of their own. Steps from `from_step` on are trained (again)."""
    openers: dict[str, Opener] = {
        "tensorboard": lambda: TensorBoard(folder, config=config, from_step=from_step),
        "wandb": lambda: WeightsAndBiases(folder, config=config, run_name=run_name, from_step=from_step, say=say),
        "jsonl": lambda: JsonLines(folder, from_step=from_step),
    }
    return LoggerThreads({name: openers[name] for name in names}, say)
