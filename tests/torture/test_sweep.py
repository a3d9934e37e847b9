"""A little of the sweep: something hostile in the place of what `resume` and `evaluate` open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from pathlib import Path
from torture.sweep import Case, cases, prepare, trace, try_case, unprotected, warm_up

warm_up()
home = Path(sys.argv[1])
base = prepare(home)
places = trace(home, base, "resume")
assert {"run/run.json", "run/lock", "run/record.sqlite", "run/checkpoints", "run/samples"} <= set(places), places
chosen = [case for number, case in enumerate(cases({"resume": places})) if number % 23 == 7]
chosen += [Case("resume", "run/samples", "symbolic link"), Case("resume", "run/record.sqlite", "hard link")]
lost = [(case, words) for case in chosen if (words := try_case(home, base, case)) is not None]
assert not lost, lost
print(len(chosen), "cases")
assert try_case(home, base, Case("resume", "run/run.json", "symbolic link"), unprotected), "the control was not found"
"""


@pytest.mark.timeout(1800)
def test_nothing_outside_changes_and_nothing_hangs(tmp_path: Path) -> None:
    """In a process of its own: this one may have computed with torch, and then it must not fork."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
