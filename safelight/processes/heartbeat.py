"""Signs of life between the processes of a run: who is gone, who hangs, and why the first one to fail did."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from safelight.errors import ProcessLost, SafelightError

BEAT_INTERVAL = 0.25  # seconds between two beats
FIRST_STEPS, FIRST_PATIENCE = 3, 10  # kernels are tuned and compiled at first: so many times the patience
GRACE, DEVICE_GRACE, LONGEST_GRACE = 5.0, 30.0, 600.0  # seconds that the thread that trains has to notice by itself
SETTLING_SECONDS = 1.5  # seconds after a broken connection until it is plain who is gone
NAMING_SECONDS = 2.0  # seconds more that the others have to hear from the first process who that is
PARTING_SECONDS = 1.5  # seconds that the first process, which may keep the store, waits for the others to leave
LAST_WAIT = 60.0  # seconds that the first process has to save after a failure


class Heartbeat:
    """A thread and a small store. The first process watches all, all watch the first: the load grows with the
    number of processes, not with its square."""

    def __init__(self, rank: int, count: int, token: str, *, patience: float) -> None:
        self.rank, self.count, self._patience = rank, count, patience
        self.progress, self.watched = 0, False  # of the thread that trains: whether progress may be expected of it
        self.lost: str | None = None
        self.lost_rank: int | None = None
        self._noticed, self.on_device = False, False
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        # A client of its own: that of the process group may be waiting for something.
        client = dist.TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=30))
        self._store: Any = dist.PrefixStore(f"safelight/{token}", client)
        self._lock = threading.Lock()
        self._last_beats: dict[int, tuple[bytes, float, bytes, float]] = {}
        self._ended, self._beats, self._answers = threading.Event(), 0, 0
        self._store.set(f"beat/{rank}", "0 0 0")
        if rank == 0:
            self._store.set("lost", "")
            self._store.set("message", "")
        self._meet(time.monotonic() + patience)
        for act, name in ((self._run, "safelight-pulse"), (self._await_answers, "safelight-answers")):
            threading.Thread(target=act, name=name, daemon=True).start()

    def _meet(self, until: float) -> None:
        here = [f"here/{rank}" for rank in range(self.count)]
        self.write(here[self.rank], "1")
        while not self._store.check(here):
            if time.monotonic() > until:
                gone = next((rank for rank, each in enumerate(here) if self.read(each) is None), 0)
                raise ProcessLost(f"Process {gone} did not start in time.")
            time.sleep(0.01)

    # --- the store, last messages, meeting points -----------------------------------------------------------------

    def write(self, key: str, text: str) -> None:
        with self._lock:
            self._store.set(key, text)

    def read(self, key: str) -> str | None:
        with self._lock:
            return self._store.get(key).decode() if self._store.check([key]) else None

    def arrive(self, where: str) -> None:
        with self._lock, contextlib.suppress(RuntimeError):
            self._store.add(f"arrived/{where}", 1)

    def have_arrived(self, where: str, many: int | None = None) -> bool:
        """Whether all or so many have; where the store is gone, whoever kept it is, and nobody need be waited for."""
        try:
            with self._lock:
                return self._store.add(f"arrived/{where}", 0) >= (self.count if many is None else many)
        except RuntimeError:
            return True

    def leave_message(self, error: BaseException) -> tuple[str, int] | None:
        """Those of the process that failed first, with its exit code; None if that is this one."""
        self._noticed = True
        mine = {"rank": self.rank, "text": str(error) or type(error).__name__}
        mine["code"] = error.exit_code if isinstance(error, SafelightError) else 1
        try:
            with self._lock:
                first = json.loads(self._store.compare_set("message", "", json.dumps(mine)))
        except (RuntimeError, ValueError):  # the store went with the process that kept it
            return None if self.rank < 2 else (str(error), int(mine["code"]))
        return None if first["rank"] == self.rank else (str(first["text"]), int(first["code"]))

    def find_lost(self) -> str | None:
        """A message who is gone. A connection breaks before a heartbeat is known to have stopped, so wait a little."""
        self._noticed = True
        with contextlib.suppress(RuntimeError):
            self.write("broken", "1")  # the first process checks more closely then, whatever it is busy with
        until = time.monotonic() + SETTLING_SECONDS + (NAMING_SECONDS / 4 if self.rank == 0 else NAMING_SECONDS)
        late = False
        while self.lost is None and not late:
            late = time.monotonic() > until  # and one more check: on a busy machine it may be the first for long
            try:
                if (message := self._first_message()) is not None:
                    return f"Process {message['rank']} ended: {message['text']}"
                self._find_silent(SETTLING_SECONDS)
            except RuntimeError:
                self._lose_store()
            time.sleep(BEAT_INTERVAL / 5)
        return self.lost

    def await_message(self) -> None:
        """Waits for the message of an end that all come to: the first process reports it, when it has saved."""
        self._noticed = True
        while self.rank and self.lost is None and self._first_message() is None:
            time.sleep(0.02)

    def part(self, *, failed: bool, lost: bool) -> None:
        """The others wait for the first process, which may be saving: a launcher ends all once one has left."""
        self._noticed = True
        self.arrive("end")
        patience = LAST_WAIT if failed else math.inf
        if self.rank == 0:
            patience = 0.0 if lost else PARTING_SECONDS
        _wait_until(self._may_leave, patience)
        self._ended.set()
        if self.rank:
            self.arrive("gone")
            return
        with contextlib.suppress(RuntimeError):
            self.write("main-left", "1")
        others = self.count - (1 if self.lost_rank is None else 2)
        _wait_until(lambda: self.have_arrived("gone", others), PARTING_SECONDS)

    def _may_leave(self) -> bool:
        if self.rank == 0:
            return self.have_arrived("end")
        try:
            return self.lost_rank == 0 or self.read("main-left") is not None
        except RuntimeError:
            return True  # the store went with the process that kept it

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended.wait(BEAT_INTERVAL):
            try:
                self._beat()
                self._check_others()
                self._answers += 1
            except RuntimeError:
                if self._ended.is_set():
                    return
                self._lose_store()
            if self.lost is not None:
                self._end_unless_noticed()
                return

    def _await_answers(self) -> None:
        """A thread of its own: where whoever keeps the store is stopped, a request to it may never return, whatever
        time it was given (TCPStore sends another request, to take it back, and waits for that)."""
        answered, silent = 0, 0.0  # not by the clock: this process may have been stopped itself
        while not self._ended.wait(BEAT_INTERVAL) and self.lost is None:
            silent, answered = silent + BEAT_INTERVAL if self._answers == answered else 0.0, self._answers
            if silent > self._patience:
                self._lose_store()
                self._end_unless_noticed()

    def _beat(self) -> None:
        self._beats += 1
        with self._lock, contextlib.suppress(RuntimeError):
            self._store.set(f"beat/{self.rank}", f"{self._beats} {self.progress} {int(self.watched)}")

    def _check_others(self) -> None:
        if (message := self._first_message()) is not None and message["rank"] != self.rank:
            self.lost, self.lost_rank = f"Process {message['rank']} ended: {message['text']}", message["rank"]
            return
        self._find_silent(SETTLING_SECONDS if self.rank == 0 and self.read("broken") else self._patience)

    def _first_message(self) -> dict[str, Any] | None:
        with self._lock:
            message = self._store.get("message")
        return json.loads(message) if message else None

    def _find_silent(self, patience: float) -> None:
        """The first process looks at all; the others look at the first and at what it found."""
        others = [r for r in range(self.count) if r != self.rank] if self.rank == 0 else [0]
        with self._lock:
            found = self._store.get("lost")
            beats = self._store.multi_get([f"beat/{r}" for r in others])
        if found:
            self.lost_rank, self.lost = json.loads(found)
            return
        now = time.monotonic()
        silent: list[tuple[float, int, str]] = []
        for rank, beat in zip(others, beats, strict=True):
            count, progress, watched = beat.split()
            old = self._last_beats.get(rank, (b"", now, b"", now))
            beaten = now if old[0] != count else old[1]
            moved = now if old[2] != progress or watched == b"0" else old[3]
            self._last_beats[rank] = (count, beaten, progress, moved)
            allowed = self._patience * (FIRST_PATIENCE if int(progress) < FIRST_STEPS else 1)
            if now - beaten > patience:
                silent.append((now - beaten, rank, "no heartbeat for {:.0f} seconds"))
            elif now - moved > allowed and now - beaten < allowed / 2:  # else its heartbeat stands still too
                silent.append((now - moved, rank, "it has been in the same step for {:.0f} seconds"))
        if silent:
            seconds, rank, how = max(silent)
            self._lose(rank, how.format(seconds))

    def _lose_store(self) -> None:
        """Nobody waits for an answer a second time, nor for the thread that waits for one."""
        self._store, self._lock = _LostStore(), threading.Lock()
        self._lose(0, "its store of signs of life does not answer")

    def _lose(self, rank: int, how: str) -> None:
        if self.lost is None:
            self.lost_rank, self.lost = rank, f"Process {rank} is gone: {how}."
            if self.rank == 0:
                with self._lock, contextlib.suppress(RuntimeError):
                    self._store.set("lost", json.dumps([rank, self.lost]))

    def _end_unless_noticed(self) -> None:
        """The thread that trains may be waiting inside a library that nothing can wake."""
        mine = self.lost_rank == self.rank
        until = time.monotonic() + (GRACE if mine else DEVICE_GRACE if self.on_device else LONGEST_GRACE)
        while time.monotonic() < until:
            if self._noticed or self._ended.wait(BEAT_INTERVAL):
                return
            self._beat()  # it may still save
        error = ProcessLost(self.lost or "Another process is gone.")
        if self.leave_message(error) is None:
            print(f"Error: {error}", file=sys.stderr, flush=True)
        os._exit(error.exit_code)  # every file on disk is whole at every moment


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """No longer than so many seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not condition():
        time.sleep(0.02)


class _LostStore:
    """In the place of a store that does not answer."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("the store of signs of life does not answer")
