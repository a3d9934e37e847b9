"""Several processes of one run: forked after the imports, so that each costs milliseconds and not seconds."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from safelight.cli import main
from safelight.errors import SafelightError

LIMIT = 120.0  # seconds after which a test is taken to hang


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Launch:
    """`act(rank)` on so many processes; their exit codes and what they said."""

    def __init__(self, count: int, act: Callable[[int], object], folder: Path, **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.count, self.folder, self.begun = count, folder, time.monotonic()
        port = str(free_port())
        self.pids = [self._fork(rank, act, port, environment) for rank in range(count)]

    def _fork(self, rank: int, act: Callable[[int], object], port: str, environment: dict[str, str]) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            sys.stdout.flush()
            said = os.open(self.folder / f"said-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(self.count), MASTER_PORT=port)
            os.environ.update(MASTER_ADDR="127.0.0.1", LOCAL_WORLD_SIZE=str(self.count), **environment)
            found = act(rank)
            code = found if isinstance(found, int) else 0
        except SafelightError as error:
            code = error.exit_code
            if not error.told:
                print(f"Error: {error}", flush=True)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        os.kill(self.pids[rank], number)

    def codes(self) -> list[int]:
        """Waits for all; a process that hangs is killed and has the code -9."""
        found: dict[int, int] = {}
        while len(found) < self.count:
            for rank, pid in enumerate(self.pids):
                if rank not in found and (ended := os.waitpid(pid, os.WNOHANG))[0]:
                    found[rank] = os.waitstatus_to_exitcode(ended[1])
            if time.monotonic() - self.begun > LIMIT:
                for rank in set(range(self.count)) - found.keys():
                    os.kill(self.pids[rank], signal.SIGKILL)
            time.sleep(0.005)
        return [found[rank] for rank in range(self.count)]

    def said(self, rank: int) -> str:
        return (self.folder / f"said-{rank}").read_text()


def command(*words: str) -> Callable[[int], int]:
    """A command line, run by every process."""
    return lambda rank: main(list(words))
