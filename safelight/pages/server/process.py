"""The process of the dashboard: a free port, its address, and serving until it is stopped."""

from __future__ import annotations

import errno
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from safelight.errors import UsageError
from safelight.pages.server.access import AccessGuard
from safelight.pages.server.address import ServerAddress, is_loopback
from safelight.pages.server.app import make_app
from safelight.pages.server.connections import BoundedConnection

MAX_TRIED_PORTS = 50  # ports
LOOK_SECONDS = 30.0
LONGEST_HEAD, MOST_CONNECTIONS = 32_768, 512


def bind(host: str, port: int) -> socket.socket:
    """A socket on this port, or on the next one that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in [port] if port == 0 else range(port, min(port + MAX_TRIED_PORTS, 65536)):
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, candidate))
            found.listen(128)  # now, not later: two sockets may share a port until one of them listens
        except (OSError, TypeError, ValueError) as error:  # a name that is none is refused in many ways
            found.close()
            if not isinstance(error, OSError) or error.errno != errno.EADDRINUSE:
                why = (isinstance(error, OSError) and error.strerror) or "it is no name of a machine"
                raise UsageError(f"The dashboard cannot listen on {host} port {candidate}: {why}.") from error
        else:
            return found
    raise UsageError(
        f"No port from {port} to {min(port + MAX_TRIED_PORTS, 65536) - 1} is free. Choose another with --port N"
    )


def open_address(host: str, listening: socket.socket) -> ServerAddress:
    """Beyond this machine only with a token, which is made here and printed once."""
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    return ServerAddress(host, listening.getsockname()[1], token)


def serve(
    roots: Sequence[Path], listening: socket.socket, address: ServerAddress, *, mark: str, idle_hours: float
) -> None:
    """Until a signal comes, or until there was no request for so many hours. `mark`: identifies this dashboard."""
    app = make_app(roots, address.token, mark=mark)
    server = make_server(app)
    if idle_hours > 0:
        threading.Thread(target=_end_when_idle, args=(server, app, idle_hours * 3600), daemon=True).start()
    server.run(sockets=[listening])


class Server(uvicorn.Server):
    """Ends live streams before it waits for the last answers: they would never end by themselves."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.close()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def make_server(app: AccessGuard) -> Server:
    return Server(
        uvicorn.Config(
            app,
            http=BoundedConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,  # a header must not decide who the client is
            server_header=False,
            log_config=None,
            log_level="critical",  # malformed requests are not worth a line
            access_log=False,
            h11_max_incomplete_event_size=LONGEST_HEAD,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=1,
        )
    )


def _end_when_idle(server: uvicorn.Server, app: AccessGuard, seconds: float) -> None:
    while not server.should_exit:
        time.sleep(min(LOOK_SECONDS, seconds))
        # An open page sends requests or listens all the time.
        server.should_exit = time.monotonic() - app.last_request > seconds and not server.server_state.connections
