"""SIGKILL at random moments: a sound build ends with the same bytes, a broken one is found out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def torture(*arguments: str) -> dict[str, Any]:
    """In a process of its own: this one may have computed with torch, and then it must not fork."""
    command = [sys.executable, "-m", "bench.kills", "--network", "few-layers", "--json", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_20_kills_with_0_and_4_workers_leave_the_same_bytes() -> None:
    """60 steps with accumulation, 5.5 steps an epoch: nearly every resume is in the middle of one."""
    outcome = torture("--kills", "20", "--workers", "0", "4", "--break")["whole"]
    assert outcome["failures"] == []
    assert outcome["kills"] == 20
    assert outcome["equal"] == outcome["runs"] > 0
    files = {Path(name).name for name in outcome["reference"]}
    assert files >= {"model.safetensors", "ema.safetensors", "optimizer.safetensors"}
    assert outcome["phases"].get("inside a save", 0) > 0


def test_a_broken_resume_is_found_out() -> None:
    """The control: a torture that everything survives proves nothing."""
    spoilt = {"seed": "model.safetensors", "optimizer": "model.safetensors", "ema": "ema.safetensors"}
    outcomes = torture("--kills", "0", "--break", *spoilt, "--break-kills", "1")
    assert outcomes.keys() == spoilt.keys()
    for broken, outcome in outcomes.items():
        assert outcome["kills"] == outcome["runs"] == 1, broken
        assert outcome["equal"] == 0, broken
        assert spoilt[broken] in outcome["failures"][0], broken
