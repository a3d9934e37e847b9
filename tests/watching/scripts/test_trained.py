"""Scripts that train, from the command line to the last line: few, since each starts python with torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from scripts_that_train import training_script

from safelight.run import RunFolder

ROOT = Path(__file__).parents[3]


def start(folder: Path, text: str, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command, "train.py", "3"], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_a_script_that_fails_after_training_keeps_output_traceback_and_exit_code(tmp_path: Path) -> None:
    text = training_script("train(int(sys.argv[1]))\nprint('trained')\nnet(images, 'x')\n")
    watched = start(tmp_path, text, "-m", "safelight", "run", "--run", "seen")
    assert watched.returncode == 1
    assert watched.stdout == "trained\nleft\n"
    ours = [line for line in watched.stderr.splitlines() if line.startswith("Safelight")]
    theirs = [line for line in watched.stderr.splitlines() if not line.startswith("Safelight")]
    assert str(ROOT / "safelight") not in "\n".join(theirs)
    assert theirs[-1] == "AttributeError: 'str' object has no attribute 'float'"
    assert ours[0].startswith("Safelight: Net: ")
    assert "Safelight: the page: safelight dashboard seen" in ours
    assert "rules that had what they need" in ours[-1]
    status = RunFolder(tmp_path / "seen").status()
    assert (status["step"], status["status"]) == (3, "crashed")


def test_a_checked_script_is_stopped_and_its_error_found(tmp_path: Path) -> None:
    text = training_script(
        "try:\n    train(10**9)\nexcept Exception:\n    print('never')\nfinally:\n    print('cleaned up')\n",
        target="torch.randn_like(noise)",
    )
    done = start(tmp_path, text, "-m", "safelight", "run", "--check", "--json", "--steps", "4")
    assert done.returncode == 5, done.stderr
    found = json.loads(done.stdout)
    assert (found["updates"], found["ending"]) == (4, "stopped")
    assert "target.other-noise" in [each["cause"] for each in found["findings"]]
    assert {each["state"] for each in found["rules"]} >= {"found", "passed", "not looked at"}
    assert done.stderr.splitlines() == ["cleaned up", "left"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]
