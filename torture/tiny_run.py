"""The run that is tortured: so small that a step takes milliseconds, with everything that has a state or is random."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.record.reading import read_signal
from safelight.run import RunFolder
from torture.child_run import finish, start
from torture.marks import Marks

STEPS, EVERY = 40, 4
IMAGES, SIDE = 44, 8  # 5.5 batches: nearly every checkpoint lies in the middle of an epoch, some batches span two
FINALS = ("model", "ema", "optimizer")
CLOCK = ("seconds", "evaluation_seconds", "best_step", "best_loss", "lowest_probe", "good_step",
         "planned_loss", "planned_step")  # fmt: skip


def make_images(folder: Path, count: int = IMAGES) -> None:
    """Two classes of small colour pictures."""
    draw = np.random.default_rng(0)
    for number in range(count):
        path = folder / f"class_{number % 2}" / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(path)


def configure(images: Path, **changes: Any) -> Config:
    """Labels, flips, dropout, adaptive clipping, averages; `train__steps=5` stands for train.steps = 5."""
    settings = {
        "data.source": str(images),
        "data.image_size": SIDE,
        "data.flip": True,
        "model.conditional": True,
        "model.attention": (),
        "clipping.kind": "adaptive",
        "ema.snapshots": 4,
        "train.steps": STEPS,
        "train.preflight": "off",  # it finds the broken builds by itself, before anything can be killed
        "train.batch_size": 8,
        "train.accumulate": 2,
        "train.device": "cpu",
        "train.threads": 1,
        "checkpoint.every": EVERY,
        "sample.every": 20,
        "sample.count": 2,
        "sample.steps": 2,
        "evaluate.every": 0,
    }
    return resolve(settings=settings | {name.replace("__", "."): value for name, value in changes.items()})


def train_alone(
    run: Path,
    config: Config,
    *,
    workers: int = 0,
    change: Callable[[], object] | None = None,
    marks: Marks | None = None,
) -> None:
    """To its end or from where it stands, in a child that nobody disturbs."""
    child = start(run, config, marks=marks or Marks(), log=log_of(run), workers=workers, change=change)
    check_end(run, finish(child))


def check_end(run: Path, code: int | None) -> None:
    said = log_of(run).read_text()[-1000:]
    assert code is not None, f"a sitting hung; it said: {said}"
    assert code == 0, f"a sitting ended with {code}; it said: {said}"
    assert RunFolder(run).status().get("status") == "finished", f"a sitting ended before the run did: {said}"


def log_of(run: Path) -> Path:
    return run.with_suffix(".log")


def final_folder(run: Path, steps: int = STEPS) -> Path:
    return run / "checkpoints" / f"step_{steps:08d}"


def finals(run: Path, steps: int = STEPS) -> dict[str, str]:
    """sha256 of model, averages and optimizer at the last step."""
    return {stem: _sha256(final_folder(run, steps) / f"{stem}.safetensors") for stem in FINALS}


def fingerprint(run: Path, steps: int = STEPS) -> dict[str, str]:
    """As `finals`, and of everything else that must not depend on when a run was killed."""
    last = final_folder(run, steps)
    files = [*last.glob("*.safetensors"), *run.glob("ema/step_*/*.safetensors"), *run.glob("samples/step_*.png")]
    found = {str(path.relative_to(run)): _sha256(path) for path in sorted(files)}
    state = json.loads((last / "state.json").read_bytes())
    # Some know the clock: a save that comes while the one before is being written is left out, and so is its probe.
    plain = {name: value for name, value in state.items() if name not in CLOCK}
    found["record"] = _digest_of(read_signal(run / "record.sqlite", "loss/mean"))
    return found | {"state.json": _digest_of(plain)}


def differing(one: dict[str, str], other: dict[str, str]) -> str:
    """Names whose bytes differ, or nothing."""
    names = [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
    return ", ".join(names if len(names) <= 3 else [*names[:3], f"{len(names) - 3} more"])


def digest(found: dict[str, str]) -> str:
    """One sha256 over a list of them."""
    return _digest_of(found)


def _digest_of(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
