"""A real server for tests, and a client that sends exactly the bytes it is told to."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safelight.pages.server.app import make_app
from safelight.pages.server.process import bind, make_server

PATIENCE = 300.0  # seconds until a test gives up: what is awaited ends the wait at once


def wait_for(holds: Callable[[], object], what: str) -> None:
    """Until it holds; a test that waits in vain is ended with words."""
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, f"within {PATIENCE:g} s not: {what}"
        time.sleep(0.01)


@contextmanager
def served(roots: Sequence[Path], token: str | None = None) -> Iterator[int]:
    """The port of a server over these folders; it is gone afterwards."""
    listening = bind("127.0.0.1", 0)
    server = make_server(make_app(roots, token, mark="test"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    wait_for(lambda: server.started or not thread.is_alive(), "a server that has started")
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listening.close()
        assert not thread.is_alive(), "the server did not end"


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    """0: the connection was closed without an answer."""
    headers: dict[str, str]
    body: bytes
    whole: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def send(port: int, content: bytes, *, last: bool = False) -> Answer:
    """Sends bytes as they are and reads until the other side closes, or has said all that it announced. `last`: the
    other side is told that nothing more comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        with suppress(OSError):  # refused before all was said: the answer may be there all the same
            connection.sendall(content)
            if last:
                connection.shutdown(socket.SHUT_WR)
        found = b""
        with suppress(ConnectionResetError):
            while not _complete(found) and (part := connection.recv(65_536)):
                found += part
    return parse(found)


def request(target: str | bytes, port: int, *, method: str = "GET", headers: Sequence[tuple[str, str]] = (),
            host: str | None = "") -> bytes:  # fmt: skip
    """A request with nothing made better; `host` empty: the right one, None: no such header."""
    words = target if isinstance(target, bytes) else target.encode("latin-1")
    lines = [method.encode("latin-1") + b" " + words + b" HTTP/1.1"]
    if host is not None:
        lines.append(f"Host: {host or f'localhost:{port}'}".encode("latin-1"))
    lines += [f"{name}: {value}".encode("latin-1") for name, value in headers]
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])


def get(port: int, target: str, **how: Any) -> Answer:
    return send(port, request(target, port, **how))


def _complete(found: bytes) -> bool:
    head, end, body = found.partition(b"\r\n\r\n")
    if not end:
        return False
    length = next(
        (line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), None
    )
    return length is not None and len(body) >= int(length)


def parse(found: bytes) -> Answer:
    head, _, body = found.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    code = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return Answer(code, headers, body, found)
