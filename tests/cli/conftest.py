"""A folder to stand in, and a run that may be damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, with an empty folder and a file of words."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "words.txt").write_text("precious")
    return tmp_path


@pytest.fixture
def copied(here: Path, trained_run: Path) -> Path:
    """A run that may be damaged."""
    return Path(shutil.copytree(trained_run, here / "run"))
