"""Idle and slow clients end, and lock nobody out; real sockets on this machine, and few."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from safelight.pages.server import connections
from safelight.pages.server.app import make_app
from safelight.pages.server.process import Server, bind, make_server

WHOLE = b"GET /api/hello HTTP/1.1\r\nhost: localhost\r\n\r\n"


@contextlib.contextmanager
def serving(root: Path) -> Iterator[int]:
    listening = bind("127.0.0.1", 0)
    server: Server = make_server(make_app([root], None, mark="here"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def ask(port: int) -> bytes:
    with connect(port) as client:
        client.sendall(WHOLE)
        return client.recv(4096)


def test_idle_connections_lock_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of them makes way; 520 of them used to answer everybody with 503."""
    monkeypatch.setattr(connections, "MOST_IDLE", 8)
    monkeypatch.setattr("safelight.pages.server.process.MOST_CONNECTIONS", 12)
    with serving(tmp_path) as port, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(port)) for _ in range(30)]
        assert b"200 OK" in ask(port)
        assert idle[0].recv(1) == b""  # closed
        idle[-1].sendall(WHOLE)
        assert b"200 OK" in idle[-1].recv(4096)


@pytest.mark.parametrize("said", [b"", b"GET / HT", WHOLE + b"GET /slow"])
def test_a_client_that_says_too_little_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(connections, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.02)
    with serving(tmp_path) as port, connect(port) as client:
        client.sendall(said)
        with contextlib.suppress(ConnectionResetError):
            while client.recv(4096):
                pass
        assert b"200 OK" in ask(port)


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 40_000,
        b"GET /" + b"y" * 40_000,
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n" + b"y" * 9_000,
    ],
)
def test_large_heads_and_bodies_are_refused(tmp_path: Path, head: bytes) -> None:
    with serving(tmp_path) as port, connect(port) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(head)
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = client.recv(4096)
        assert b" 200 " not in answer
        assert b"200 OK" in ask(port)
