"""Decodes files in processes of their own and hands the results back in order, whatever the processes do."""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

import safelight
from safelight.config.tree import Data
from safelight.data.decode import Hope, side_of
from safelight.data.rows import ROW
from safelight.data.worker import BAD, FRAME, IMAGE, READY
from safelight.errors import DataError

TASK = 16  # names a process is sent at a time
AHEAD = 2  # tasks a process has before it: one in work, one waiting
DEATHS = 2  # of the process at one file before the file is given up
KILLS = 6  # where it was killed from outside, as by a system short of memory: seldom the fault of the file
STARTS = 3  # processes that may die before they answer at all
START_SECONDS = 120.0  # to import what decoding needs, on a machine that is very busy
LAST_WORDS = 4096  # bytes
PIPE = 1 << 20  # bytes on their way: long names must not fill the pipe to a process that waits to be read


@dataclass(frozen=True, slots=True)
class Scanned:
    """One file: an image with its row, or the reason against it."""

    name: str
    row: np.ndarray | None = None
    pixels: np.ndarray | None = None
    reason: str = ""
    hope: Hope = "never"


def scan(names: Iterable[str | None], data: Data, *, at_most: int) -> Iterator[Scanned | None]:
    """One result for each name, in the same order, and None for None. Memory does not grow with the number of names."""
    wanted = data.scan_workers or available_cores()
    with closing(_Pool(data, max(1, min(wanted, -(-at_most // TASK))))) as pool:
        yield from pool.results(iter(names))


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Task:
    """A few names in order; None among them stands for something that needs no decoding."""

    def __init__(self, items: list[str | None]) -> None:
        self.items = items
        self.names = [item for item in items if item is not None]
        self.results: list[Scanned] = []
        self.deaths = 0  # at the first name without a result

    @property
    def done(self) -> bool:
        return len(self.results) == len(self.names)

    @property
    def current(self) -> str:
        return self.names[len(self.results)]

    def in_order(self) -> Iterator[Scanned | None]:
        results = iter(self.results)
        for item in self.items:
            yield None if item is None else next(results)


class _Worker:
    """One decoding process, the tasks it was sent, and when it last answered."""

    def __init__(self, data: Data) -> None:
        root = str(Path(safelight.__file__).parent.parent)
        paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        # One thread each: the processes are the parallelism. -P: a folder of images may hold a numpy.py.
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "safelight.data.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        self.output = cast(BinaryIO, self.process.stdout)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(OSError, AttributeError):  # not on macOS, and not beyond a user's share
                fcntl.fcntl(cast(BinaryIO, stream), fcntl.F_SETPIPE_SZ, PIPE)
        os.set_blocking(self.output.fileno(), False)
        os.set_blocking(cast(BinaryIO, self.process.stderr).fileno(), False)
        self.tasks: deque[_Task] = deque()
        self.buffer, self._words = bytearray(), b""
        self.ready = False
        self.since = time.monotonic()
        self._send(asdict(data))

    def give(self, task: _Task) -> None:
        if not self.tasks:
            self.since = time.monotonic()
        self.tasks.append(task)
        self._send(task.names[len(task.results) :])

    def _send(self, words: object) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it died: its closed output says so
            self.process.stdin.write(json.dumps(words).encode() + b"\n")
            self.process.stdin.flush()

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """What has arrived whole; the rest waits in the buffer."""
        while chunk := self.output.read(1 << 20):
            self.buffer += chunk
        start = 0
        while len(self.buffer) - start >= FRAME.size:
            kind, length = FRAME.unpack_from(self.buffer, start)
            if len(self.buffer) - start - FRAME.size < length:
                break
            body = bytes(self.buffer[start + FRAME.size : start + FRAME.size + length])
            start += FRAME.size + length
            yield kind, body
        del self.buffer[:start]

    def listen(self) -> None:
        """Takes what it complains of: libtiff has a line for every bad row of a fax, and a full pipe would stop it."""
        self._words = (self._words + (cast(BinaryIO, self.process.stderr).read() or b""))[-LAST_WORDS:]

    def stop(self) -> str:
        """Ends it at once; the last words it had."""
        self.process.kill()
        self.process.wait()
        self.listen()
        words = self._words.decode(errors="replace").strip()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(BrokenPipeError):
                cast(BinaryIO, stream).close()
        return words.splitlines()[-1] if words else f"exit code {self.process.returncode}"


class _Pool:
    """Hands out tasks, puts the answers in order, and replaces processes that died or hang."""

    def __init__(self, data: Data, count: int) -> None:
        # The limits are the parent's to keep as well; a process needs the settings that make pixels.
        self._data = replace(data, cache=None)
        self._selector = selectors.DefaultSelector()
        self._count, self._workers = count, list[_Worker]()
        self._order: deque[_Task] = deque()
        self._stillborn = 0

    def results(self, names: Iterator[str | None]) -> Iterator[Scanned | None]:
        ended = False
        while not ended or self._order:
            while not ended and self._has_room():
                task = _Task([name for _, name in zip(range(TASK), names, strict=False)])
                ended = len(task.items) < TASK
                self._order.append(task)
                if task.names:
                    self._idlest().give(task)
            while self._order and self._order[0].done:
                yield from self._order.popleft().in_order()
            if self._order:
                self._wait()

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._selector.close()

    def _has_room(self) -> bool:
        """Not when every process has enough to do, nor when too many answers wait for an early one."""
        idle = len(self._workers) < self._count or any(len(worker.tasks) < AHEAD for worker in self._workers)
        return idle and len(self._order) <= 4 * AHEAD * self._count

    def _idlest(self) -> _Worker:
        worker = min(self._workers, key=lambda each: len(each.tasks), default=None)
        if worker is None or (worker.tasks and len(self._workers) < self._count):
            return self._start()
        return worker

    def _start(self) -> _Worker:
        worker = _Worker(self._data)
        self._workers.append(worker)
        self._selector.register(worker.output, selectors.EVENT_READ, worker)
        return worker

    def _wait(self) -> None:
        for ready, _ in self._selector.select(timeout=0.2):
            worker: _Worker = ready.data
            for kind, body in worker.frames():
                self._take(worker, kind, body)
            if worker.process.poll() is not None:
                self._replace(worker, None)
        for worker in list(self._workers):
            worker.listen()
            seconds = self._data.max_seconds if worker.ready else START_SECONDS
            if worker.tasks and time.monotonic() - worker.since > seconds:
                self._replace(worker, f"decoding it takes longer than data.max_seconds allows ({seconds:g} s)")

    def _take(self, worker: _Worker, kind: bytes, body: bytes) -> None:
        worker.ready, worker.since, self._stillborn = True, time.monotonic(), 0
        if kind == READY:
            return
        task = worker.tasks[0]
        task.results.append(self._result(task.current, kind, body))
        task.deaths = 0
        if task.done:
            worker.tasks.popleft()

    def _result(self, name: str, kind: bytes, body: bytes) -> Scanned:
        if kind != IMAGE:
            return Scanned(name, reason=body.decode(errors="replace"), hope=BAD[kind])
        side = side_of(self._data)
        row = np.frombuffer(body, ROW, count=1)[0]
        pixels = np.frombuffer(body, np.uint8, offset=ROW.itemsize).reshape(side, side, -1)
        return Scanned(name, row, pixels)

    def _replace(self, worker: _Worker, reason: str | None) -> None:
        """A new process takes the tasks over. The file that the old one was at is tried once more, alone to blame."""
        self._workers.remove(worker)
        self._selector.unregister(worker.output)
        for kind, body in worker.frames():  # what it said before it died
            self._take(worker, kind, body)
        killed = reason is None and worker.process.returncode == -signal.SIGKILL
        tasks, words = list(worker.tasks), worker.stop()
        if not worker.ready:
            self._stillborn += 1
            if self._stillborn >= STARTS:
                raise DataError(f"The processes that decode images die as soon as they start: {words}")
        elif tasks:
            self._blame(tasks[0], reason or f"the decoder crashed at it ({words})", KILLS if killed else DEATHS)
        successor = self._start()
        for task in tasks:
            if not task.done:
                successor.give(task)

    def _blame(self, task: _Task, reason: str, most: int) -> None:
        task.deaths += 1
        if task.deaths >= most:
            task.results.append(Scanned(task.current, reason=reason, hope="larger limits"))
            task.deaths = 0
