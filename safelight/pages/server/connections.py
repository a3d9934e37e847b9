"""Connections of the dashboard: idle and slow ones end, and never take the place of others."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SILENT_SECONDS = 20.0  # without a request that is whole
STALLED_SECONDS = 60.0  # of an answer that nobody reads
LOOK_SECONDS = 5.0
MOST_IDLE = 256  # beyond that the oldest idle one makes way for whoever comes


class BoundedConnection(H11Protocol):
    """One client. It is busy while it is answered, which a live page is all the time; else it is idle."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since, self._unread, self._read = time.monotonic(), 0, time.monotonic()
        idle = [each for each in self.connections if isinstance(each, BoundedConnection) and not each.is_busy]
        if len(idle) > MOST_IDLE:
            min(idle, key=lambda each: each._since).end()
        self._look = self.loop.call_later(LOOK_SECONDS, self._look_at_it)

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        super().connection_lost(exc)

    @property
    def is_busy(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def end(self) -> None:
        self.connections.discard(self)  # now: many may come before the loop sees to this one
        self.transport.abort()

    def _look_at_it(self) -> None:
        now, unread = time.monotonic(), self.transport.get_write_buffer_size()
        self._since = now if self.is_busy else self._since
        if unread == 0 or unread != self._unread:
            self._unread, self._read = unread, now
        if now - self._since > SILENT_SECONDS or now - self._read > STALLED_SECONDS:
            self.end()
        else:
            self._look = self.loop.call_later(LOOK_SECONDS, self._look_at_it)
