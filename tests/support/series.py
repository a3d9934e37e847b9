"""Series of readings, and what is true of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from safelight.record.store import RecordWriter
from safelight.record.zoom import Zoom


def write(path: Path, parts: Iterable[tuple[np.ndarray, np.ndarray]], *, from_step: int = 0, signal: str = "a") -> None:
    """Parts of one signal, each stored before the next one comes."""
    record = RecordWriter(path, from_step=from_step, say=pytest.fail)
    for steps, numbers in parts:
        record.add_window(steps, (signal,), numbers.astype(np.float32)[:, None])
        record.flush(wait=True)
    record.close()


def check(spans: Zoom, steps: np.ndarray, numbers: np.ndarray) -> None:
    """Every reading lies in exactly one span, and each span says of its readings what is true."""
    assert (spans.first[1:] > spans.last[:-1]).all()
    assert spans.count.sum() == len(steps)
    for place in range(len(spans)):
        inside = numbers[(steps >= spans.first[place]) & (steps <= spans.last[place])].astype(np.float64)
        finite = inside[np.isfinite(inside)]
        assert spans.count[place] == len(inside) > 0
        assert spans.nonfinite[place] == len(inside) - len(finite)
        wanted = (finite.min(), finite.max(), finite.mean()) if len(finite) else (np.nan,) * 3
        assert (spans.low[place], spans.high[place]) == pytest.approx(wanted[:2], abs=0, nan_ok=True)
        assert spans.mean[place] == pytest.approx(wanted[2], rel=1e-9, abs=1e-9, nan_ok=True)
        latest = inside[-1] if np.isfinite(inside[-1]) else np.nan
        assert spans.latest[place] == pytest.approx(latest, nan_ok=True)
