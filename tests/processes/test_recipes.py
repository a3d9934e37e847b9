"""The scripts of docs/scale.md, with stand-ins for what only a cluster has: when they start a run again."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


def write_program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def run_script(script: str, folder: Path, *, status: str | None, code: int) -> tuple[int, str]:
    """Its exit code, and the calls that the stand-ins noted down."""
    run, calls = folder / "run", folder / "calls"
    run.mkdir()
    if status is not None:
        (run / "run.json").write_text(f'{{\n "status": "{status}",\n "step": 3\n}}')
    script = re.sub(r"/(shared/)?runs/photos", str(run), script)
    write_program(folder, "scontrol", f'[ "$1" = show ] && echo one || echo "scontrol $@" >> {calls}')
    write_program(folder, "srun", f'echo "srun $@" >> {calls}; exit {code}')
    write_program(folder, "torchrun", f'echo "torchrun $@" >> {calls}; exit {code}')
    known = {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_NNODES": "2",
             "SLURM_RESTART_COUNT": "1", "SLURM_JOB_NODELIST": "a", "JOB_COMPLETION_INDEX": "1"}  # fmt: skip
    done = subprocess.run(["bash", "-c", script], env=known, capture_output=True, text=True, check=False)
    return done.returncode, calls.read_text() if calls.exists() else ""


@pytest.mark.parametrize(
    ("status", "code", "requeued"),
    [
        ("interrupted", 1, True),
        ("training", 1, True),
        ("crashed", 1, True),
        ("stopped", 1, False),
        ("refused", 1, False),
        (None, 1, False),
        ("finished", 0, False),
    ],
)
def test_slurm_job_requeues_itself_unless_that_is_hopeless(
    status: str | None, code: int, requeued: bool, tmp_path: Path
) -> None:
    (script,) = re.findall(r"```\n(#!/bin/bash.*?)```", PAGE.read_text(), re.S)
    _, calls = run_script(script, tmp_path, status=status, code=code)
    assert "srun torchrun --nnodes 2" in calls
    assert "--rdzv-endpoint one:29400" in calls
    assert ("scontrol requeue 7" in calls) == requeued


@pytest.mark.parametrize(("status", "code"), [("stopped", 5), ("refused", 5), ("training", 1), (None, 1)])
def test_kubernetes_job_fails_where_its_run_is_hopeless(status: str | None, code: int, tmp_path: Path) -> None:
    (text,) = re.findall(r"```\n(apiVersion.*?)```", PAGE.read_text(), re.S)
    job = list(yaml.safe_load_all(text))[1]["spec"]
    assert job["podFailurePolicy"]["rules"][0] == {
        "action": "FailJob",
        "onExitCodes": {"operator": "In", "values": [5]},
    }
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # a failure policy asks for it
    found, calls = run_script(pod["containers"][0]["args"][0], tmp_path, status=status, code=1)
    assert found == code
    assert ("torchrun --nnodes 2 --node-rank 1" in calls) == (code == 1)
