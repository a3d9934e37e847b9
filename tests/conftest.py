"""What all tests share: one thread, no colour, and one tiny trained run of each kind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

TINY = {
    "steps": 6,
    "batch_size": 8,
    "settings": {
        "model.widths": (16,),
        "model.norm_groups": 8,
        "model.layers": 1,
        "model.attention": (),
        "model.conditional": False,
        "sample.steps": 3,
        "sample.count": 4,
        "evaluate.every": 0,
        "train.preflight": "off",
        "ema.snapshots": 2,
    },
}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)  # the machine may be shared, and another number of threads gives other bits


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Prepared images of tests never land in the user's own cache; one cache serves them all."""
    os.environ["SAFELIGHT_CACHE"] = str(tmp_path_factory.getbasetemp() / "cache")


@pytest.fixture(autouse=True)
def plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(autouse=True)
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs look at, and show, every step: many tests act on what they are shown."""
    monkeypatch.setattr("safelight.monitors.pool.HOST_SECONDS", 0.0)


@pytest.fixture(scope="session")
def train_tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Trains a run of six steps with changed settings and returns its folder."""

    def train(name: str, **settings: object) -> Path:
        import safelight

        path = tmp_path_factory.mktemp("runs") / name
        kept: dict[str, object] = {**TINY["settings"], **settings}  # type: ignore[dict-item]
        return safelight.train(run=path, steps=TINY["steps"], batch_size=TINY["batch_size"], settings=kept).path

    return train


@pytest.fixture(scope="session")
def trained_run(train_tiny: Callable[..., Path]) -> Path:
    """A finished run without labels. Read it; copy it before changing anything."""
    return train_tiny("plain")


@pytest.fixture(scope="session")
def conditional_run(train_tiny: Callable[..., Path]) -> Path:
    """A finished run with labels. Read it; copy it before changing anything."""
    return train_tiny("conditional", **{"model.conditional": True})
