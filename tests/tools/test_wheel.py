"""The wheel, installed into a fresh environment, works without the repository, and has its pages with it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tools.wheel import attempt, build, install


def test_what_a_person_tries_first_works_from_the_wheel_alone(tmp_path: Path) -> None:
    wheel = build(tmp_path / "dist")
    command = install(wheel, tmp_path / "environment")
    assert attempt(command, tmp_path)[-1].startswith("train and doctor: ")

    poor = tmp_path / "poor" / wheel.name  # a control: the same without its pages
    poor.parent.mkdir()
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(poor, "w") as part:
        for name in whole.namelist():
            if not name.startswith("safelight/docs/"):
                part.writestr(name, whole.read(name))
    with pytest.raises(AssertionError, match="docs"):
        attempt(install(poor, tmp_path / "environment"), tmp_path, train=False)
