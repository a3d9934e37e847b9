"""A script under `safelight run` is the script under python: the same output, exit code and files."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from awkward_scripts import SCRIPTS, Script

ROOT = Path(__file__).parents[3]
OURS = "Safelight: "
ADDRESS = re.compile("0x[0-9a-f]+")


def lay_out(script: Script, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in {"main.py": script.text, **script.files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content == "ZIP":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("__main__.py", "import sys\nprint(sys.argv, __file__)\nraise SystemExit(0)")
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())


def run(script: Script, folder: Path, *command: str) -> tuple[int, str, list[str], dict[str, bytes]]:
    """(exit code, stdout, lines of stderr that are not ours, files that were written)."""
    lay_out(script, folder)
    paths = [script.environment.get("PYTHONPATH", ""), str(ROOT)]
    environment = os.environ | script.environment | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONUNBUFFERED", None)
    read, write = os.pipe()
    if script.stdout == "broken":
        os.close(read)
    done = subprocess.run(
        [sys.executable, *script.flags, *command, *script.target],
        cwd=folder, env=environment, input=script.stdin,
        stdout=write if script.stdout == "broken" else subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: close(script), timeout=120, check=False,
    )  # fmt: skip
    os.close(write)
    if script.stdout != "broken":
        os.close(read)
    told = ADDRESS.sub("0x", done.stderr.decode(errors="replace"))
    lines = [line for line in told.splitlines() if not line.startswith(OURS)]
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return done.returncode, ADDRESS.sub("0x", (done.stdout or b"").decode("latin-1")), lines, files


def close(script: Script) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if script.stdin is None:
        os.close(0)
    if script.stdout == "closed":
        os.close(1)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name.replace(" ", "-"))
def test_a_script_runs_as_python_would_run_it(script: Script, tmp_path: Path) -> None:
    plain = run(script, tmp_path / "at")
    watched = run(script, tmp_path / "at", "-m", "safelight", "run")
    assert plain[0] == script.code, plain
    assert watched == plain
