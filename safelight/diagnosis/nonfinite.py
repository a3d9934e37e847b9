"""Where values began not to be finite: what came from finite ones, in a network that no update had broken."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from safelight import checks
from safelight.diagnosis.run_history import RunHistory


def first_steps(run: RunHistory, name: str) -> list[int]:
    """Steps at which `name` of `checks.NONFINITE` was not finite though what stands before it there was, and the
    weights were not what an earlier step had left."""
    names = list(checks.NONFINITE)
    sources = _steps(run, names[: names.index(name)])
    broken = sources | _steps(run, names) | {note.step for note in run.events("nonfinite")}
    return sorted(step for step in _steps(run, [name]) - sources if not _is_spoilt(run, step, broken))


def _steps(run: RunHistory, names: Iterable[str]) -> set[int]:
    return {int(step) for name in names for step in run.steps(checks.NONFINITE[name])}


def _is_spoilt(run: RunHistory, step: int, broken: set[int]) -> bool:
    """Whether something was not finite earlier, and no finite error came since: a scaler or a guard that refuses an
    update leaves healthy weights."""
    last = max((each for each in broken if each < step), default=None)
    if last is None:
        return False
    errors = zip(*run.series(checks.LOSS_MSE), strict=True)
    return not any(last < at < step and np.isfinite(error) for at, error in errors)
