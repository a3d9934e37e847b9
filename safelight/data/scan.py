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
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

import safelight
from safelight.config.tree import Data
from safelight.data.decode import Retry, side_of
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

    row: np.ndarray | None = None
    pixels: np.ndarray | None = None
    reason: str = ""
    retry: Retry = "never"


def scan(names: Iterable[str], data: Data) -> Generator[Scanned, None, None]:
    """One result for each name, in the same order. Memory does not grow with the number of names."""
    with closing(_Pool(data, data.scan_workers or available_cores())) as pool:
        yield from pool.results(iter(names))


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(slots=True)
class _Task:
    """A few names in order, and the results of the first of them."""

    names: list[str]
    results: list[Scanned] = field(default_factory=list)
    deaths: int = 0  # at the first name without a result

    @property
    def done(self) -> bool:
        return len(self.results) == len(self.names)


class _Worker:
    """One decoding process, the tasks it was sent, and when it last answered."""

    def __init__(self, data: Data) -> None:
        root = str(Path(safelight.__file__).parent.parent)
        paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        # One thread each: the processes are the parallelism. -P: a folder of images may hold a numpy.py.
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command, pipe = [sys.executable, "-P", "-m", "safelight.data.worker"], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
        self._streams = cast(list[BinaryIO], [self.process.stdin, self.process.stdout, self.process.stderr])
        self._input, self.output, self._errors = self._streams
        for stream in self._streams:
            with suppress(OSError, AttributeError):  # not on macOS, and not beyond a user's share
                fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, PIPE)
        for stream in (self.output, self._errors):
            os.set_blocking(stream.fileno(), False)
        self.tasks: deque[_Task] = deque()
        self._buffer, self._last_words = bytearray(), b""
        self.ready = False
        self.since = time.monotonic()
        self._send(asdict(data))

    def give(self, task: _Task) -> None:
        if not self.tasks:
            self.since = time.monotonic()
        self.tasks.append(task)
        self._send(task.names[len(task.results) :])

    def _send(self, request: object) -> None:
        with suppress(BrokenPipeError):  # it died: its closed output says so
            self._input.write(json.dumps(request).encode() + b"\n")
            self._input.flush()

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """What has arrived whole; the rest waits in the buffer."""
        while chunk := self.output.read(1 << 20):
            self._buffer += chunk
        start = 0
        while len(self._buffer) - start >= FRAME.size:
            kind, length = FRAME.unpack_from(self._buffer, start)
            stop = start + FRAME.size + length
            if len(self._buffer) < stop:
                break
            body = bytes(self._buffer[start + FRAME.size : stop])
            start = stop
            yield kind, body
        del self._buffer[:start]

    def drain_errors(self) -> None:
        """libtiff has a line for every bad row of a fax, and a full pipe would stop the process."""
        self._last_words = (self._last_words + (self._errors.read() or b""))[-LAST_WORDS:]

    def stop(self) -> str:
        """Ends it at once; the last line of what it wrote to stderr."""
        self.process.kill()
        self.process.wait()
        self.drain_errors()
        for stream in self._streams:
            with suppress(BrokenPipeError):
                stream.close()
        lines = self._last_words.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.process.returncode}"


class _Pool:
    """Hands out tasks, puts the results in order, and replaces processes that died or hang."""

    def __init__(self, data: Data, count: int) -> None:
        # The limits are the parent's to keep as well; a process needs the settings that make pixels.
        self._data = replace(data, cache=None)
        self._selector = selectors.DefaultSelector()
        self._count, self._workers = count, list[_Worker]()
        self._failed_starts = 0

    def results(self, names: Iterator[str]) -> Iterator[Scanned]:
        order: deque[_Task] = deque()
        while True:
            while self._has_room(len(order)) and (some := list(islice(names, TASK))):
                order.append(_Task(some))
                self._least_busy().give(order[-1])
            if not order:
                return
            while order and order[0].done:
                yield from order.popleft().results
            if order:
                self._wait()

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._selector.close()

    def _has_room(self, waiting: int) -> bool:
        """Not when every process has enough to do, nor when too many results wait for an early one."""
        idle = len(self._workers) < self._count or any(len(worker.tasks) < AHEAD for worker in self._workers)
        return idle and waiting <= 4 * AHEAD * self._count

    def _least_busy(self) -> _Worker:
        """A new process only while all others are busy: few files start few of them."""
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
            worker.drain_errors()
            seconds = self._data.max_seconds if worker.ready else START_SECONDS
            if worker.tasks and time.monotonic() - worker.since > seconds:
                self._replace(worker, f"decoding it takes longer than data.max_seconds allows ({seconds:g} s)")

    def _take(self, worker: _Worker, kind: bytes, body: bytes) -> None:
        worker.ready, worker.since, self._failed_starts = True, time.monotonic(), 0
        if kind == READY:
            return
        result = Scanned(reason=body.decode(errors="replace"), retry=BAD[kind]) if kind != IMAGE else self._image(body)
        task = worker.tasks[0]
        task.results.append(result)
        task.deaths = 0
        if task.done:
            worker.tasks.popleft()

    def _image(self, body: bytes) -> Scanned:
        side = side_of(self._data)
        pixels = np.frombuffer(body, np.uint8, offset=ROW.itemsize).reshape(side, side, -1)
        return Scanned(np.frombuffer(body, ROW, count=1)[0], pixels)

    def _replace(self, worker: _Worker, reason: str | None) -> None:
        """A new process takes the tasks over. The file that the old one was at is tried once more, alone to blame."""
        self._workers.remove(worker)
        self._selector.unregister(worker.output)
        for kind, body in worker.frames():  # what it sent before it died
            self._take(worker, kind, body)
        killed = reason is None and worker.process.returncode == -signal.SIGKILL
        last_words = worker.stop()
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= STARTS:
                raise DataError(f"The processes that decode images die as soon as they start: {last_words}")
        elif worker.tasks:
            task = worker.tasks[0]
            task.deaths += 1
            if task.deaths >= (KILLS if killed else DEATHS):
                reason = reason or f"the decoder crashed at it ({last_words})"
                task.results.append(Scanned(reason=reason, retry="larger limits"))
                task.deaths = 0
        successor = self._start()
        for task in worker.tasks:
            if not task.done:
                successor.give(task)
