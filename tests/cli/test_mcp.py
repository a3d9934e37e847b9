"""`safelight mcp`: what it refuses before a client is served."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import refused


def test_a_folder_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, 2, ["is no folder", "Name a run folder"], "mcp", str(tmp_path / "none"))


def test_without_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    refused(capsys, 2, ["needs the package mcp", "pip install 'safelight[mcp]'"], "mcp", str(tmp_path))
