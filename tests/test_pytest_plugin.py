"""The fixture fails a test where the debugger finds an error, and does nothing to other test suites."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUITE = """
import torch

def images(scale=1.0):
    return torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 * scale - scale

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, x, t):
        return self.conv(torch.cat([x, (t.float() / 1000)[:, None, None, None].expand_as(x)], 1))

ALPHAS = torch.linspace(0.999, 0.005, 1000)

def test_healthy(safelight_check):
    report = safelight_check(Network(), ALPHAS, images(), memory=False)
    assert report.rows

def test_sick(safelight_check):
    safelight_check(Network(), ALPHAS.flip(0), images(), memory=False)

def test_unknown(safelight_check):
    safelight_check(Network(), ALPHAS, images(), memory=False, ignore=["SCH01"])
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    plugins = ["-p", "no:cacheprovider"]  # ours is known by its entry point
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_test_fails_with_the_report_where_an_error_is_found(tmp_path: Path) -> None:
    (tmp_path / "test_model.py").write_text(SUITE)
    ignoring = SUITE.partition("def test_healthy")[0] + "def test_sick" + SUITE.partition("def test_sick")[2]
    ignoring = ignoring.partition("def test_unknown")[0] + "\n# safelight: ignore=SCH001\n"
    (tmp_path / "test_comment.py").write_text(ignoring)
    done = run(tmp_path)
    assert "2 failed, 2 passed" in done.stdout, done.stdout
    assert "FAILED test_model.py::test_sick - AssertionError: " in done.stdout
    assert "SCH001" in done.stdout
    assert "Did you mean 'SCH001'?" in done.stdout


def test_other_suites_are_left_alone(tmp_path: Path) -> None:
    """Nothing heavy is imported, no warning is raised, no option or marker is added."""
    (tmp_path / "test_plain.py").write_text(
        "import sys\n\ndef test_plain():\n"
        "    heavy = {'torch', 'numpy', 'diffusers', 'safelight.watching', 'safelight.diagnosis'}\n"
        "    assert not heavy & set(sys.modules)\n"
    )
    done = run(tmp_path, "-W", "error", "--strict-markers")
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_an_entry_point_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"safelight": "safelight.pytest_plugin"}
