"""Run folders for tests of what is shown: made in milliseconds, sound or as a stranger would pack them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from safelight.record.store import RecordWriter

FINDING = {
    "code": "LRA001",
    "cause": "lr.too-high",
    "severity": "error",
    "step": 40,
    "confidence": 0.99,
    "summary": "An update raises the error on its own batch.",
    "evidence": [{"signal": "check/step/ratio", "value": 3.5, "steps": [40, 48], "usual": "below 1"}],
    "fix": {"text": "Lower the learning rate.", "set": {"optimizer.lr": 0.001}, "safety": "unsafe"},
    "ruled_out": ["loss.spike: it lasts"],
    "over": None,
    "subsystem": "lr",
}


def curves(steps: int, seed: int = 0) -> dict[str, np.ndarray]:
    """A loss that falls, a gradient, and a loss by level."""
    draw = np.random.default_rng(seed)
    fall = 0.2 + np.exp(-np.arange(steps) / max(steps / 4, 1))
    return {
        "loss/mean": fall * (1 + 0.02 * draw.normal(size=steps)),
        "gradient/norm": np.abs(draw.normal(size=steps)) + 0.5,
    }


def make_run(
    path: Path,
    *,
    steps: int = 200,
    status: Mapping[str, Any] | None = None,
    pictures: bool = True,
    findings: tuple[Mapping[str, Any], ...] = (),
    config: str | None = "train:\n  steps: 200\n  batch_size: 8\n",
) -> Path:
    """A finished run, unless `status` says otherwise. One that trains is live however long a test takes: its heartbeat
    is of the hour to come."""
    path.mkdir(parents=True, exist_ok=True)
    known = {"status": "finished", "step": steps, "steps": steps, "created": time.time() - 60, "pid": 1}
    (path / "run.json").write_text(json.dumps(known | {"heartbeat": time.time() + 3600} | dict(status or {})))
    if config is not None:
        (path / "config.yaml").write_text(config)
    record = RecordWriter(path / "record.sqlite", from_step=0, say=print)
    found = curves(steps)
    record.add_window(np.arange(steps), tuple(found), np.stack(list(found.values()), 1).astype(np.float32))
    for step in range(15, steps, 16):
        levels = {f"loss/level/{level:02d}": float(found["loss/mean"][step]) * (level + 1) for level in range(16)}
        record.add(step, {"speed/images": 100.0, "speed/left": 9.0} | levels)
    record.event(0, "data", images=10)
    for finding in findings:
        record.finding(int(finding["step"]), str(finding["code"]), **finding)
    if pictures:
        for step in (50, 100):
            for kind in ("samples", "denoising"):
                draw_picture(path, f"samples/{kind}_{step:08d}.png")
                record.picture(step, kind, Path(f"samples/{kind}_{step:08d}.png"), (8, 8))
    record.close()
    return path


def draw_picture(path: Path, name: str, colour: int = 100) -> Path:
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (colour, 0, 0)).save(path / name)
    return path / name
