"""Several processes of one run: forked after the imports, so that each costs milliseconds and not seconds."""

from __future__ import annotations

import importlib
import mmap
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from accelerate.state import PartialState

from safelight.cli import main
from safelight.errors import SafelightError
from safelight.processes import group as group
from safelight.processes import heartbeat as heartbeat
from safelight.processes.heartbeat import Heartbeat

LIMIT = 300.0  # seconds after which a test is taken to hang
LIVING, SILENT, STUCK = 0, 1, 2  # what became of a process on purpose: without a sign of life, or alive in one step


class Launch:
    """`act(rank)` on so many processes; their exit codes and what they said."""

    def __init__(self, count: int, act: Callable[[int], object], folder: Path, **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.count, self.folder, self.begun = count, folder, time.monotonic()
        self._fates, self._port = mmap.mmap(-1, count), os.pipe()
        self.pids = [self._fork(rank, act, environment) for rank in range(count)]
        for end in self._port:
            os.close(end)

    def _fork(self, rank: int, act: Callable[[int], object], environment: dict[str, str]) -> int:
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
            PartialState._reset_state()  # a test before this one may have made an Accelerator of one process
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(self.count), MASTER_PORT="0")
            os.environ.update(MASTER_ADDR="127.0.0.1", LOCAL_WORLD_SIZE=str(self.count), **environment)
            _share_port(rank, self.count, *self._port)
            _judge_only_the_lost(self._fates)
            found = act(rank)
            code = found if isinstance(found, int) else 0
        except SafelightError as error:
            code = error.exit_code
            if not error.reported:
                print(f"Error: {error}", flush=True)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        os.kill(self.pids[rank], number)

    def wait(self, rank: int) -> None:
        """Until this process has ended; where it hangs, all are killed."""
        while os.waitid(os.P_PID, self.pids[rank], os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() - self.begun > LIMIT:
                for each in range(self.count):
                    self.kill(each)
            time.sleep(0.005)

    def codes(self) -> list[int]:
        """Waits for all; a process that hangs is killed and has the code -9."""
        for rank in range(self.count):
            self.wait(rank)
        return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self.pids]

    def said(self, rank: int) -> str:
        return (self.folder / f"said-{rank}").read_text()


def command(*words: str) -> Callable[[int], int]:
    """A command line, run by every process."""
    return lambda rank: main(list(words))


# --- what becomes of a process, in its own words -------------------------------------------------------------------

_here: list[Any] = []  # in a fork: what has become of all


def _suffer(fate: int) -> None:
    _here[0][int(os.environ["RANK"])] = fate


def die() -> None:
    _suffer(SILENT)
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    """With all threads, as a machine does that is out of memory."""
    _suffer(SILENT)
    os.kill(os.getpid(), signal.SIGSTOP)


def hang() -> None:
    """Only the thread that calls it."""
    _suffer(STUCK)
    threading.Event().wait()


# --- only in a fork ------------------------------------------------------------------------------------------------


def _share_port(rank: int, count: int, reading: int, writing: int) -> None:
    """The first process takes whichever port is free and tells the others: one that was free a moment ago may not be
    any more."""
    os.close(reading if rank == 0 else writing)

    def keep(*given: Any, **named: Any) -> dist.TCPStore:
        store = dist.TCPStore(*given, **named | {"port": 0, "wait_for_workers": False})
        os.environ["MASTER_PORT"] = str(store.port)
        os.write(writing, store.port.to_bytes(2, "little") * (count - 1))
        return store

    def find(*given: Any, **named: Any) -> dist.TCPStore:
        port = int.from_bytes(os.read(reading, 2), "little")
        os.environ["MASTER_PORT"] = str(port)
        return dist.TCPStore(*given, **named | {"port": port or 1})  # it died before it had one: nobody is at port 1

    module: Any = importlib.import_module(
        "torch.distributed.rendezvous"
    )  # the attribute of torch.distributed is a function
    module.TCPStore = keep if rank == 0 else find


def _judge_only_the_lost(fates: mmap.mmap) -> None:
    """A process that is slow is not taken for one that is lost on purpose, however busy the machine is."""
    _here[:] = [fates]
    meet, look, await_answers = Heartbeat._meet, Heartbeat._find_silent, Heartbeat._await_answers

    def meeting(self: Heartbeat, until: float) -> None:
        here = [f"here/{rank}" for rank in range(self.count) if fates[rank] == LIVING]
        self.write(f"here/{self.rank}", "1")
        while not self._store.check(here):
            time.sleep(0.005)
            here = [key for rank in range(self.count) if (key := f"here/{rank}") in here and fates[rank] == LIVING]
        meet(self, time.monotonic() + self._patience)

    def looking(self: Heartbeat, patience: float) -> None:
        now = time.monotonic()
        for rank, (count, _, progress, _) in list(self._last_beats.items()):
            if fates[rank] == LIVING:
                self._last_beats[rank] = (count, now, progress, now)
            elif fates[rank] == STUCK:
                _await_beat(self, rank)
        look(self, patience)

    def awaiting(self: Heartbeat) -> None:
        while fates[0] == LIVING:
            if self._ended.wait(0.05):
                return
        await_answers(self)

    Heartbeat._meet, Heartbeat._find_silent, Heartbeat._await_answers = meeting, looking, awaiting  # type: ignore[method-assign]


def _await_beat(self: Heartbeat, rank: int) -> None:
    """Of a process whose heart must not be seen to stand still."""
    while True:
        with self._lock:
            count = self._store.get(f"beat/{rank}").split()[0]
        if count != self._last_beats[rank][0]:
            return
        time.sleep(0.005)


def be_patient(patch: pytest.MonkeyPatch) -> None:
    """Waits that end with what is waited for may be long; the one that has to pass need not be."""
    for name, seconds in {
        "SETTLING_SECONDS": 0.3,
        "NAMING_SECONDS": 4 * LIMIT,
        "PARTING_SECONDS": LIMIT,
        "LAST_WAIT": LIMIT,
    }.items():
        patch.setattr(heartbeat, name, seconds)
    patch.setattr(group, "MEETING_TIMEOUTS", LIMIT)
