"""A run under the real torchrun: one launcher with two processes, or two with one each, as on two machines."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch.distributed as dist

from safelight.checkpoints.folder import steps as steps_on_disk
from torture.child_lifetime import die_with
from torture.ranks import take_port

HOME, COUNT, STEPS, EVERY = "127.0.0.1", 2, 240, 8
LAYOUTS = ("default", "standalone", "c10d", "static")  # the first two have one launcher
SETTINGS = {
    "model.widths": "16", "model.attention": "", "model.conditional": "false", "model.norm_groups": "8",
    "train.threads": "1", "train.preflight": "off", "train.batch_size": "8", "sample.every": "120", "sample.count": "4",
    "sample.steps": "3", "evaluate.every": "0", "ema.snapshots": "2", "checkpoint.every": str(EVERY),
}  # fmt: skip


def worker(words: Sequence[str]) -> int:
    """What torchrun starts. `old-store` first: the processes meet where those of the last start did."""
    from safelight.cli import main
    from safelight.processes import group, restarts

    if words[0] == "old-store":
        group.agent_store = restarts.agent_store = lambda: None
    return main(list(words[1:]))


@dataclass(slots=True)
class Job:
    """The launchers of one run, and the processes that they have now."""

    run: Path
    layout: str
    log: Path
    old_store: bool = False
    max_restarts: int = 9
    launchers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _store: dist.TCPStore | None = None
    _port: socket.socket | None = None  # kept from everybody else

    def start(self) -> None:
        for number in range(1 if self.layout in ("default", "standalone") else COUNT):
            self.launch(number)

    def launch(self, number: int) -> None:
        """One of the launchers; `number`: of its machine."""
        machines, parent = 1 if self.layout in ("default", "standalone") else COUNT, os.getpid()
        with self.log.open("ab") as said:
            command = [
                sys.executable, "-m", "torch.distributed.run", "--max-restarts", str(self.max_restarts),
                "--nnodes", str(machines), "--nproc-per-node", str(COUNT // machines), *self._meeting(number), "-m",
                "--", "torture.under_torchrun", "old-store" if self.old_store else "new-store", "train", "--run",
                str(self.run), "--steps", str(STEPS), *_settings(),
            ]  # fmt: skip
            environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
            self.launchers.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment,
                                 preexec_fn=lambda: die_with(parent))
            )  # fmt: skip

    def _meeting(self, number: int) -> list[str]:
        if self.layout == "standalone":
            return ["--standalone", "--local-addr", HOME]
        if self.layout == "c10d":
            self._store = self._store or dist.TCPStore(HOME, 0, is_master=True, wait_for_workers=False)
            place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{HOME}:{self._store.port}"]
            return [*place, "--rdzv-conf", "is_host=0", "--local-addr", HOME]
        self._port = self._port or take_port()
        place = ["--master-addr", HOME, "--master-port", str(self._port.getsockname()[1])]
        return [*place, *(["--node-rank", str(number)] if self.layout == "static" else [])]

    @property
    def codes(self) -> list[int | None]:
        return [launcher.poll() for launcher in self.launchers]

    @property
    def is_over(self) -> bool:
        return None not in self.codes

    def workers(self) -> dict[int, int]:
        """Process ids by rank, of those that live and were told their rank."""
        found: dict[int, int] = {}
        for launcher in self.launchers:
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(launcher.pid).children():
                    with contextlib.suppress(psutil.Error, ValueError, KeyError):
                        if child.status() != psutil.STATUS_ZOMBIE:
                            found[int(child.environ()["RANK"])] = child.pid
        return found

    @property
    def newest(self) -> int:
        return max(steps_on_disk(self.run / "checkpoints"), default=-1)

    def watch(self, quiet: float) -> Iterator[None]:
        """Comes back again and again until all launchers have ended; an AssertionError if nothing changed for so many
        seconds: neither a checkpoint nor a process."""
        changed, seen = time.monotonic(), (self.newest, self.workers())
        while not self.is_over:
            yield
            time.sleep(0.02)
            if (now := (self.newest, self.workers())) != seen:
                changed, seen = time.monotonic(), now
            assert time.monotonic() - changed < quiet, (
                f"hang: nothing has changed for {quiet:.0f} s at step {seen[0]}; launchers {self.codes}; "
                f"they said: {self.said()}"
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-1500:]

    def close(self) -> None:
        """Ends whatever is left: the launchers first, or they would start their processes again."""
        pids = [*self.workers().values()]
        for launcher in self.launchers:
            launcher.kill()
            launcher.wait()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._port is not None:
            self._port.close()


def _settings() -> list[str]:
    return [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]


if __name__ == "__main__":
    sys.exit(worker(sys.argv[1:]))
