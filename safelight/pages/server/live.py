"""What is new in a run, sent to all listeners: one read of the record for any number of tabs."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread

from safelight.errors import RecordError
from safelight.pages.data.cards import findings
from safelight.pages.data.overview import open_run_history, status, version
from safelight.pages.data.run_state import RunStatus, read_status
from safelight.pages.data.runs import FoundRun
from safelight.pages.data.series import delta, newer
from safelight.pages.server.run_cache import DiagnosisCache, signature
from safelight.record.fact_encoding import to_json
from safelight.record.history import History

POLL_SECONDS, BEAT_SECONDS, STATUS_SECONDS, VERDICT_SECONDS = 0.1, 10.0, 5.0, 20.0
REST_FACTOR, MIN_REST, MAX_REST = 300.0, 0.7, 0.8  # after a poll: so many times what it took of a processor; seconds
MAX_LISTENERS, MAX_WAITING = 128, 64
END = b""  # the last that a listener gets
Update = tuple[dict[str, Any], dict[str, Any], str]  # new readings, status, version


@dataclass(eq=False)
class Listener:
    """One stream: its signals, how far it was sent, and what waits to be sent."""

    names: Sequence[str]
    version: str
    cursors: dict[str, int] = field(default_factory=dict)
    waiting: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(MAX_WAITING))

    def put(self, event: str, content: dict[str, Any]) -> None:
        self.send(frame(event, content, content.get("cursor")))

    def send(self, content: bytes) -> None:
        """A listener that is too slow loses what waits, and gets a reset."""
        if self.waiting.full():
            while not self.waiting.empty():
                self.waiting.get_nowait()
            content = frame("reset", {"version": self.version})
        self.waiting.put_nowait(content)


def frame(event: str, content: dict[str, Any], cursor: int | None = None) -> bytes:
    """As EventSource reads it; JSON has no line breaks, so nothing in it can end the frame."""
    head = f"event: {event}\n" + (f"id: {cursor}\n" if cursor is not None else "")
    return f"{head}data: {to_json(content)}\n\n".encode()


class LiveRun:
    """Polls one run while anybody listens, and sends what is new."""

    def __init__(self, run: FoundRun, diagnosis_cache: DiagnosisCache) -> None:
        self.run, self._diagnosis_cache = run, diagnosis_cache
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._verdict: tuple[str, float, dict[str, str]] | None = None
        self._attempt = ""

    def __len__(self) -> int:
        return len(self._listeners)

    async def listen(self, names: Sequence[str], after: int | None, version: str) -> AsyncIterator[bytes]:
        listener, before = Listener(names, version), self._signature()
        first = await anyio.to_thread.run_sync(self.catch_up, listener, after)
        for event, content in first:
            listener.put(event, content)
        self._listeners.add(listener)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll_while_heard(before))
        try:
            yield b"retry: 2000\n\n"
            while True:
                try:
                    async with asyncio.timeout(BEAT_SECONDS):
                        content = await listener.waiting.get()
                except TimeoutError:
                    content = b": still here\n\n"
                if content == END:
                    return
                yield content
        finally:
            self._listeners.discard(listener)

    def close(self) -> None:
        """The server ends: all streams do."""
        for listener in self._listeners:
            while listener.waiting.full():
                listener.waiting.get_nowait()
            listener.waiting.put_nowait(END)

    def catch_up(self, listener: Listener, after: int | None) -> list[tuple[str, dict[str, Any]]]:
        """What a page has missed since it requested the run; also the whole response where it has to poll."""

        def read(history: History, now: str) -> dict[str, Any]:
            ends = _ends(history, listener.names)
            return delta(history, listener.names if after is not None else (), after or 0) | {"ends": ends}

        new, sent, now = self._read(read)
        before, listener.version = listener.version, now
        self._attempt = self._attempt or _attempt(now)
        listener.cursors = {name: new["ends"].get(name, -1) for name in listener.names}
        if new["reset"] or (before and _attempt(before) != _attempt(now)):
            return [("reset", {"version": now})]
        cursor = max(new["ends"].values(), default=-1)
        changed = [("changed", {"version": now})] if before not in ("", now) else []
        return [("delta", {"series": new["series"], "cursor": cursor, "status": sent}), *changed]

    async def _poll_while_heard(self, before: tuple[object, ...]) -> None:
        sent, free = time.monotonic(), 0.0
        while self._listeners:
            now, signature = time.monotonic(), self._signature()
            if (signature != before and now >= free) or now - sent > STATUS_SECONDS:
                quiet = signature == before
                before, sent = signature, now
                # All waits are here: listeners come and go only between two polls.
                update, spent = await anyio.to_thread.run_sync(self._poll, self._since())
                self._send(*update, quiet=quiet)
                free = now + min(max(MIN_REST, REST_FACTOR * spent), MAX_REST)
            await asyncio.sleep(max(POLL_SECONDS, free - time.monotonic()))

    def _signature(self) -> tuple[object, ...]:
        return *signature(self.run), self._diagnosis_cache.known(self.run) is None

    def _since(self) -> dict[str, int]:
        """How far every signal was sent to the listener that is furthest behind."""
        sent = [cursor for listener in self._listeners for cursor in listener.cursors.items()]
        return dict(sorted(sent, key=lambda cursor: cursor[1], reverse=True))  # the lowest of a name is the last

    def _poll(self, since: dict[str, int]) -> tuple[Update, float]:
        """What is new, and the seconds of a processor that it took to find out; where pages have to begin again, also
        how far each signal goes."""
        begun = time.thread_time()

        def read(history: History, now: str) -> dict[str, Any]:
            new = newer(history, since)
            again = new["reset"] or _was_cut(history, since) or _attempt(now) != self._attempt
            self._attempt = _attempt(now)
            return new | {"reset": True, "ends": _ends(history, since)} if again else new

        return self._read(read), time.thread_time() - begun

    def _read(self, read: Callable[[History, str], dict[str, Any]]) -> Update:
        """What a function finds in the record at its version, with the status; nothing new where there is no record."""
        run_status = read_status(self.run.folder)
        try:
            with open_run_history(self.run.folder) as history:
                now = version(run_status, history, self._diagnosis_cache.known(self.run))
                return read(history, now), self._status(run_status, history, now), now
        except RecordError:
            nothing = {"series": {}, "reset": False, "ends": {}}
            return nothing, status(run_status, None, []), version(run_status, None)

    def _status(self, run_status: RunStatus, history: History, now: str) -> dict[str, Any]:
        """The verdict looks at many signals: not at every new number."""
        kept = self._verdict
        if kept is not None and kept[0] == now and time.monotonic() - kept[1] < VERDICT_SECONDS:
            return status(run_status, history, [], kept[2])
        cards = findings(self.run.folder, history, run_status, diagnosed=self._diagnosis_cache.known(self.run))
        sent = status(run_status, history, cards)
        self._verdict = now, time.monotonic(), sent["verdict"]
        return sent

    def _send(self, new: dict[str, Any], sent: dict[str, Any], now: str, *, quiet: bool) -> None:
        """Listeners who want the same and know the same are sent the same bytes."""
        made: dict[tuple[tuple[str, int], ...], tuple[dict[str, int], bytes | None]] = {}
        for listener in list(self._listeners):
            if new["reset"]:
                listener.version = now
                listener.cursors = {name: new["ends"].get(name, -1) for name in listener.names}
                listener.put("reset", {"version": now})
                continue
            key = tuple(listener.cursors.items())
            if key not in made:
                mine = {name: _beyond(new["series"][name], step) for name, step in key if name in new["series"]}
                mine = {name: readings for name, readings in mine.items() if readings["x"]}
                cursors = listener.cursors | {name: readings["x"][-1] for name, readings in mine.items()}
                cursor = max(cursors.values(), default=-1)
                wanted = mine or not quiet or sent["status"] == "training"
                content = {"series": mine, "cursor": cursor, "status": sent}
                made[key] = cursors, frame("delta", content, cursor) if wanted else None
            cursors, content = made[key]
            listener.cursors = dict(cursors)
            if content is not None:
                listener.send(content)
            if now != listener.version:
                listener.version = now
                listener.put("changed", {"version": now})


def _ends(history: History, names: Iterable[str]) -> dict[str, int]:
    """The last step of each signal that the run has."""
    return {name: ends[1] for name in names if (ends := history.ends(name)) is not None}


def _was_cut(history: History, since: dict[str, int]) -> bool:
    """Whether steps that were sent are gone, by the signal that was sent furthest."""
    leader = max(since, key=lambda name: since[name], default=None)
    return leader is not None and _ends(history, [leader]).get(leader, -1) < since[leader]


def _beyond(readings: dict[str, Any], step: int) -> dict[str, Any]:
    start = bisect_right(readings["x"], step)
    return {"x": readings["x"][start:], "y": readings["y"][start:]}


def _attempt(version: str) -> str:
    """The part that changes with every resume."""
    return version.partition(".")[0]


class LiveRuns:
    """One for each run with listeners."""

    def __init__(self, diagnosis_cache: DiagnosisCache) -> None:
        self._diagnosis_cache = diagnosis_cache
        self._runs: dict[str, LiveRun] = {}

    def of(self, run: FoundRun) -> LiveRun:
        for run_id in [key for key, live in self._runs.items() if not len(live) and key != run.id]:
            del self._runs[run_id]
        return self._runs.setdefault(run.id, LiveRun(run, self._diagnosis_cache))

    @property
    def full(self) -> bool:
        return sum(map(len, self._runs.values())) >= MAX_LISTENERS

    def close(self) -> None:
        for live in self._runs.values():
            live.close()
