"""Loggers: what the record gets, given on to TensorBoard, Weights & Biases or a file of JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from safelight.errors import UsageError
from safelight.record.sinks.jsonl import JsonLines
from safelight.record.sinks.logger_threads import LoggerThreads, Opener
from safelight.record.sinks.tensorboard import TensorBoard
from safelight.record.sinks.wandb import WeightsAndBiases

LOGGERS = ("tensorboard", "wandb", "jsonl")


def chosen_loggers(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """By their names, as a list or separated by commas."""
    names = given.split(",") if isinstance(given, str) else () if given is None else given
    names = tuple(names) if isinstance(names, Iterable) else (names,)
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f"loggers is {given!r:.60}. Use {', '.join(LOGGERS)}, in a list or with commas between.")
    found = tuple(name.strip() for name in names if name.strip())
    if strangers := set(found) - set(LOGGERS):
        raise UsageError(f"There is no logger {min(strangers)!r}. Use {', '.join(LOGGERS)}.")
    return found


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
