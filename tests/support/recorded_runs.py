"""Two runs with a few signals, as a trainer leaves them, without their weights."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from safelight.config.resolve import resolve, to_yaml
from safelight.record.store import RecordWriter

STEPS = 300


def make_run(path: Path, *, seed: int = 0, offset: float = 0.0, sick: bool = True) -> Path:
    """The folder of a run as a trainer leaves it, without its weights."""
    state = path / "checkpoints" / "step_00000300" / "state.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"seconds": 75.0 + seed}))
    (path / "config.yaml").write_text(to_yaml(resolve(settings={"train.seed": seed, "train.steps": STEPS})))
    (path / "run.json").write_text(json.dumps({"status": "finished", "step": STEPS}))
    record = RecordWriter(path / "record.sqlite", from_step=0, say=pytest.fail)
    for step in range(STEPS):
        loss = math.nan if sick and step == 100 else 1 / (step + 1)
        record.add(step, {"loss/mean": loss, "own": 0.5, "all/nan": math.inf})
        if step % 50 == 49:
            record.add(step, {"probe/ema": abs(step - 199) / 100 + offset})
    record.close()
    return path
