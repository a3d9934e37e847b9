"""What could never be tried without GPUs: several processes over NCCL, in one table to paste into an issue.

python -m tools.gpu_check                        # on a machine with two GPUs or more, some minutes
python -m tools.gpu_check --device cpu           # tries the check itself, over gloo
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from safelight.checkpoints.folder import steps
from safelight.run import RunFolder

STEPS, EVERY, LIMIT = 120, 20, 900.0
SETTINGS = {
    "model.widths": "32,64", "model.conditional": "false", "train.preflight": "off", "sample.every": "0",
    "evaluate.every": "0", "checkpoint.every": str(EVERY), "train.batch_size": "64",
}  # fmt: skip
Struck = Callable[[subprocess.Popen[bytes], Path], object]


@dataclass(frozen=True, slots=True)
class Check:
    """The command line of this check, and where its runs lie."""

    processes: int
    device: str
    folder: Path

    def train(
        self, name: str, processes: int, strike: Struck | None = None, settings: Mapping[str, str] = SETTINGS
    ) -> str:
        """A run from its first step to its last; what became of it, in words. `strike`: once it has saved something."""
        run, log = self.folder / name, self.folder / f"{name}.log"
        words = ["train", "--run", str(run), "--steps", str(STEPS), "--device", self.device, "--no-dashboard"]
        for key, value in {**SETTINGS, **settings}.items():
            words += ["--set", f"{key}={value}"]
        head = [sys.executable, "-m"]
        if processes > 1:
            head += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
            head += ["--max-restarts", "3", "-m", "--"]
        begun = time.monotonic()
        with log.open("wb") as said:
            launched = subprocess.Popen([*head, "safelight", *words], stdout=said, stderr=said)
        try:
            while launched.poll() is None and time.monotonic() - begun < LIMIT:
                time.sleep(0.2)
                if strike is not None and steps(run / "checkpoints"):
                    strike(launched, run)
                    strike = None
        finally:
            if launched.poll() is None:
                for process in (psutil.Process(launched.pid), *psutil.Process(launched.pid).children(recursive=True)):
                    process.kill()
        if launched.wait() != 0:
            return f"FAILED ({launched.returncode}): {log.read_text(errors='replace').strip()[-300:]!r}"
        return f"done in {time.monotonic() - begun:.0f} s"

    def bytes_of(self, name: str) -> str:
        newest = max(steps(self.folder / name / "checkpoints"), default=None)
        if newest is None:
            return "nothing saved"
        files = sorted((self.folder / name / "checkpoints" / f"step_{newest:08d}").glob("*.safetensors"))
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]

    def compare(self, one: str, other: str) -> str:
        return "same bytes" if self.bytes_of(one) == self.bytes_of(other) else "OTHER BYTES"


def kill_one(launched: subprocess.Popen[bytes], run: Path) -> None:
    """SIGKILL to one process that is not the first."""
    for child in psutil.Process(launched.pid).children():
        if child.environ().get("RANK") == "1":
            child.send_signal(signal.SIGKILL)
            return


def terminate(launched: subprocess.Popen[bytes], run: Path) -> None:
    launched.send_signal(signal.SIGTERM)


def rows(check: Check) -> list[tuple[str, str, str]]:
    """What was tried, what must come, what came."""
    many, parts = check.processes, {"train.shards": str(check.processes)}
    found = [("one process", "done", check.train("one", 1))]
    found.append((f"{many} processes", "done", check.train("many", many)))
    found.append((f"{many} processes again", "same bytes, or not: not promised", check.train("again", many)))
    found[-1] = (*found[-1][:2], f"{found[-1][2]}, {check.compare('many', 'again')}")
    alone, shared = check.train("exact-one", 1, settings=parts), check.train("exact-many", many, settings=parts)
    same = check.compare("exact-one", "exact-many")
    found.append(("train.shards, one process and many", "same bytes, or not", f"{alone}; {shared}; {same}"))
    killed = check.train("killed", many, kill_one)
    found.append(("a process killed", "done", f"{killed}, {check.compare('many', 'killed')}"))
    ended = check.train("ended", many, terminate)
    status = RunFolder(check.folder / "ended").status()
    saved = max(steps(check.folder / "ended" / "checkpoints"), default=None)
    words = f"{ended[:12]}; status {status.get('status')}, step {status.get('step')}, saved {saved}"
    found.append(("SIGTERM to torchrun", "interrupted, all saved", words))
    found.append(("weights divided", "done", check.train("divided", many, settings={"train.weights": "divided"})))
    found.append(("bf16", "done", check.train("bf16", many, settings={"train.precision": "bf16"})))
    found.append(("compiled", "done", check.train("compiled", many, settings={"model.compile": "true"})))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=max(2, torch.cuda.device_count()))
    options = parser.parse_args()
    if options.device == "cuda" and torch.cuda.device_count() < options.processes:
        print(f"This machine has {torch.cuda.device_count()} GPUs, and {options.processes} are needed.")
        return 2
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} cores"
    print(f"{options.processes} processes on {gpu}, torch {torch.__version__}, Python {platform.python_version()}\n")
    print("| tried | must come | came |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        found = rows(Check(options.processes, options.device, Path(folder)))
    for row in found:
        print(f"| {' | '.join(' '.join(cell.split()).replace('|', '/') for cell in row)} |")
    return 1 if any("FAILED" in came for _, must, came in found if must == "done") else 0


if __name__ == "__main__":
    sys.exit(main())
