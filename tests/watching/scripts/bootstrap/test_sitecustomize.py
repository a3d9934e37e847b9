"""What python runs before the script: it never costs the script anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from safelight.watching.scripts.launch import Options, environment_for

ROOT = Path(__file__).parents[4]


def start(folder: Path, script: str, **options: object) -> subprocess.CompletedProcess[str]:
    (folder / "main.py").write_text(script)
    environment = environment_for(Options(**options)) | {"SAFELIGHT_PYTHONPATH": str(ROOT)}  # type: ignore[arg-type]
    return subprocess.run(
        [sys.executable, "main.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_watch_that_cannot_start_is_said_and_the_script_runs(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("x = 1")
    done = start(tmp_path, "import torch\nprint(torch.x)")
    assert (done.returncode, done.stdout) == (0, "1\n")
    [line] = done.stderr.splitlines()
    assert line.startswith("Safelight: this script cannot be watched (")


def test_a_check_that_cannot_start_ends(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("x = 1")
    done = start(tmp_path, "import torch\nprint(torch.x)", handover="notes", quiet=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert "cannot be watched" in done.stderr


def test_nothing_is_left_in_the_environment_of_the_script(tmp_path: Path) -> None:
    done = start(
        tmp_path, "import os\nprint([name for name in ('SAFELIGHT_RUN', 'SAFELIGHT_PYTHONPATH') if name in os.environ])"
    )
    assert done.stdout == "[]\n"


def test_a_quiet_script_without_training_gets_no_line(tmp_path: Path) -> None:
    assert start(tmp_path, "print(1)", quiet=True).stderr == ""
    assert "no training was seen" in start(tmp_path, "print(1)").stderr


def test_a_stderr_that_nobody_reads_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print(1)")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, env=environment_for(Options()), stderr=write)
    os.close(write)
    assert done.returncode == 0
