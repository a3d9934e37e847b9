"""Where a package lacks, the sentence says which, and how to get it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from safelight.diagnosis.logs import tensorboard_events, wandb_file
from safelight.diagnosis.logs.packages import MissingPackage


def test_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_file_loader", None)
    with pytest.raises(MissingPackage, match=r"pip install 'safelight\[tensorboard\]'"):
        list(tensorboard_events.rows([tmp_path / "events.out.tfevents.1.x"]))


def test_without_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb.proto", None)
    with pytest.raises(MissingPackage, match=r"pip install 'safelight\[wandb\]'"):
        list(wandb_file.rows(tmp_path / "run-1.wandb"))
