"""Several processes of one run, forked after the imports, told what a launcher would tell them."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from torch.distributed import TCPStore

from safelight.config import Config
from torture.child_lifetime import die_with
from torture.child_run import LONGEST, start
from torture.marks import Marks
from torture.tiny_run import check_end, log_of

HOME = "127.0.0.1"


@dataclass(slots=True)
class Company:
    """One life of a run on several processes; by their ranks, what they mark and say, and how they ended."""

    run: Path
    pids: list[int]
    marks: list[Marks]
    keeper: int | None  # of the signs of life, as torchrun has one; else it is the first process itself
    place: socket.socket  # keeps the port where they meet from everybody else
    codes: dict[int, int] = field(default_factory=dict)
    _said_before: list[int] = field(default_factory=list)  # bytes of earlier lives in each log

    def look(self) -> dict[int, int]:
        """Exit codes of those that have ended; less than zero is the number of a signal."""
        for rank in self.alive:
            found, status = os.waitpid(self.pids[rank], os.WNOHANG)
            if found:
                self.codes[rank] = os.waitstatus_to_exitcode(status)
        return self.codes

    @property
    def alive(self) -> list[int]:
        return [rank for rank in range(len(self.pids)) if rank not in self.codes]

    def wait(self, seconds: float) -> bool:
        """Until all have ended; False if that takes longer."""
        limit = time.perf_counter() + seconds
        while self.look() is not None and self.alive:
            if time.perf_counter() > limit:
                return False
            time.sleep(0.002)
        return True

    def send(self, number: signal.Signals, *ranks: int) -> None:
        for rank in ranks:
            os.kill(self.pids[rank], number)

    @property
    def is_held(self) -> bool:
        """Whether all who live stand before the last step."""
        return all(self.marks[rank].is_held for rank in self.alive)

    def let_go(self) -> None:
        for marks in self.marks:
            marks.let_go()

    def close(self) -> None:
        """Ends whatever is left."""
        self.place.close()
        self.send(signal.SIGKILL, *self.alive)
        self.wait(LONGEST)
        if self.keeper is not None:
            os.kill(self.keeper, signal.SIGKILL)
            os.waitpid(self.keeper, 0)
            self.keeper = None

    def said(self, rank: int) -> str:
        """In this life."""
        content = log_of_rank(self.run, rank).read_bytes()
        return content[self._said_before[rank] :].decode(errors="replace")


def launch(
    run: Path,
    config: Config,
    count: int,
    *,
    kept: bool = False,
    workers: int = 0,
    change: Callable[[], object] | None = None,
    hold: int = 0,
) -> Company:
    """Begins a life of `run`; where it is `kept`, the signs of life are kept by a process that does not train. Nobody
    takes step `hold` before all are let go."""
    place = take_port()
    port = place.getsockname()[1]
    told = {"MASTER_ADDR": HOME, "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    told["TORCHELASTIC_USE_AGENT_STORE"] = str(kept)
    keeper = _fork_keeper(port) if kept and count > 1 else None
    logs, marks = [log_of_rank(run, rank) for rank in range(count)], [Marks() for _ in range(count)]
    said = [log.stat().st_size if log.exists() else 0 for log in logs]
    pids: list[int] = []
    for rank in range(count):
        environment = told | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        pids.append(
            start(
                run,
                config,
                marks=marks[rank],
                log=logs[rank],
                workers=workers,
                change=change,
                environment=environment,
                hold=hold,
            )
        )
    return Company(run, pids, marks, keeper, place, _said_before=said)


def train_together(run: Path, config: Config, count: int, *, change: Callable[[], object] | None = None) -> None:
    """To its end or from where it stands, by processes that nobody disturbs."""
    company = launch(run, config, count, change=change)
    company.wait(LONGEST)
    codes = company.look()
    company.close()
    check_end(run, codes.get(0))
    assert all(code == 0 for code in codes.values()), f"the processes ended with {codes}"


def log_of_rank(run: Path, rank: int) -> Path:
    return log_of(run) if rank == 0 else run.with_name(f"{run.name}-{rank}.log")


def take_port() -> socket.socket:
    """Bound and never listening: who asks for any port does not get this one, and a store that asks for it does, since
    both allow it to be used again."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind((HOME, 0))
    return place


def _fork_keeper(port: int) -> int:
    parent, child = os.getpid(), os.fork()
    if child:
        return child
    try:
        die_with(parent)
        store = TCPStore(HOME, port, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=LONGEST))
        while store is not None:
            time.sleep(LONGEST)
    finally:
        os._exit(1)
