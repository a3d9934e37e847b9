"""Runs with everything a page can show, made in a moment: curves, NaN, refused updates, samples, findings, healing."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from safelight.record.store import RecordWriter

FINDING: dict[str, Any] = {
    "code": "LRA001",
    "cause": "lr.too-high",
    "severity": "error",
    "step": 120,
    "confidence": 0.99,
    "summary": "An update raises the error on its own batch.",
    "evidence": [
        {"signal": "gradient/norm", "value": 35.0, "steps": [120, 180], "usual": "below 2"},
        {"signal": "check/step/ratio", "value": 3.5, "steps": [120, 120], "usual": "below 1"},
    ],
    "fix": {"text": "Lower the learning rate.", "set": {"optimizer.lr": 0.0001}, "safety": "unsafe"},
    "ruled_out": ["loss.spike: it lasts"],
    "over": 180,
}
BATCH = {
    "step": 150,
    "samples": [4, 17],
    "timesteps": [310, 20],
    "images": {"min": -1.0, "max": 1.0, "mean": 0.1, "std": 0.5, "nonfinite": 0.0},
    "prediction": {"min": "NaN", "max": "NaN", "mean": "NaN", "std": "NaN", "nonfinite": 1.0},
    "picture": "samples/refused_00000151.png",
}
WARNING = FINDING | {"code": "SYS001", "cause": "system.starved-loader", "severity": "warning", "over": None}
ACT = {"number": 1, "kind": "lower-rate", "step": 180, "since": 160, "reason": "The loss diverged", "facts": {}}
RATE = 0.001
ORIGIN = {
    "commands": ["safelight train 'my photos' --lr 0.01"],
    "origin": {"script": None, "code": {"commit": "a" * 40, "changed": True}, "packages": {"torch": "2.13.0"}},
    "noise_levels": {
        "time": "t",
        "t": [[round(62.5 * level), round(62.5 * (level + 1))] for level in range(16)],
        "log_snr": [[5 - level, 6 - level] for level in range(16)],
    },
}
STAGES = (60, 120, 200, 300)
PARTS = ("conv_in", "down_blocks.0", "mid_block", "up_blocks.0", "conv_out")


def build_run(path: Path, *, steps: int = 300, sick: bool = False, rate: float = RATE, seed: int = 0) -> Path:
    """A finished run; a sick one says that it trains, and was last heard of 40 seconds ago."""
    (path / "samples").mkdir(parents=True)
    now = time.time()
    status = {"status": "finished", "step": steps, "steps": steps, "created": now - 600, "pid": os.getpid()}
    status |= {"heartbeat": now - 40 if sick else now, "status": "training" if sick else "finished"}
    status |= {"journal": [ACT], "last_finding": FINDING["cause"]} if sick else {}
    if rate != RATE:
        status |= ORIGIN
    (path / "run.json").write_text(json.dumps(status))
    (path / "config.yaml").write_text(f"train: {{steps: {steps}, batch_size: 8}}\noptimizer: {{lr: {rate}}}\n")
    (path / "data.json").write_text(
        json.dumps({"images": 40, "side": 8, "rejected": [["<b>x</b>.png", "not an image"]]})
    )
    record = RecordWriter(path / "record.sqlite", from_step=0, say=print)
    curves = _curves(steps, seed, sick, rate)
    record.add_window(np.arange(steps), tuple(curves), np.stack(list(curves.values()), 1).astype(np.float32))
    _add_rare(record, steps, sick)
    for finding in (FINDING | {"batch": BATCH}, WARNING) if sick else ():
        record.finding(int(finding["step"]), str(finding["code"]), **finding)
    if sick:
        _draw(record, path / "samples" / "refused_00000151.png", "refused batches", 151, shade=9)
    for place, step in enumerate(STAGES):
        for kind in ("samples", "denoising", "raw_and_averaged"):
            _draw(record, path / "samples" / f"{kind}_{step:08d}.png", kind, step, shade=60 * place + seed)
    record.close()
    return path


def set_status(run: Path, **facts: object) -> None:
    """Changes what run.json says."""
    status = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(status | facts))


def _curves(steps: int, seed: int, sick: bool, rate: float) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    fall = 0.2 + np.exp(-np.arange(steps) / 60)
    loss = fall * (1 + 0.03 * draw.normal(size=steps))
    refused = np.zeros(steps)
    norm = np.abs(draw.normal(size=steps)) + 0.5
    if sick:
        loss[150], refused[150] = np.nan, 1
        norm[120:180] *= 20
    flow = {f"gradient/part/{part}": norm / (place + 1) for place, part in enumerate(PARTS)}
    return {
        "loss/mean": loss,
        "loss/whitened": 1 + 0.1 * draw.normal(size=steps),
        "gradient/norm": norm,
        "gradient/limit": np.full(steps, 1.0 if rate == RATE else np.inf),
        "mine/accuracy": np.linspace(0, 1, steps),
        "optimizer/lr": rate * np.linspace(1, 0, steps),
        "update/refused": refused,
    } | flow


def _add_rare(record: RecordWriter, steps: int, sick: bool) -> None:
    for step in range(63, steps, 64):
        record.add(step, {f"loss/level/{level:02d}": (16 - level) / (step + 30) for level in range(16)})
    for step in range(15, steps, 16):
        record.add(step, {"speed/images": 100.0, "speed/left": 9.0, "speed/data_wait": 0.1, "system/memory": 5e8})
    for step in range(49, steps, 50):
        record.add(
            step, {"probe/raw": 30 / (step + 9), "probe/ema": 35 / (step + 9), "check/step/ratio": 0.5 + 3 * sick}
        )
    for step in range(24, steps, 25):
        skill = {"raw": 1.5, "ema": 1.6, "held": 1.4, "exact": 2.5 * (step + 30) / step}
        levels = {f"level/{level:02d}": 0.1 * (level + 1) for level in range(15)}  # at the most noise nothing is known
        record.add(step, {f"skill/{name}": number * step / (step + 30) for name, number in (skill | levels).items()})
    for step in range(99, steps, 100):
        record.add(step, {"quality/distance": 90 / step, "quality/distance_error": 0.1, "diversity/variance": 0.9})
        record.add(step, {"quality/real_distance": 0.25, "quality/target_distance": 0.5})
    record.event(0, "data", images=40)


def _draw(record: RecordWriter, path: Path, kind: str, step: int, shade: int) -> None:
    Image.effect_noise((120, 80), 30 + shade % 200).convert("RGB").save(path)
    record.picture(step, kind, path, (120, 80))
