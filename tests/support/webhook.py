"""A web address on this machine that keeps what it is sent."""

from __future__ import annotations

import http.server
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Received = tuple[str, dict[str, str], bytes]


@contextmanager
def webhook(*answers: int) -> Iterator[tuple[str, queue.Queue[Received]]]:
    """(address, what came). `answers`: codes of the first answers; then 200."""
    received: queue.Queue[Received] = queue.Queue()
    codes = iter(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            received.put((self.path, dict(self.headers), content))
            code = next(codes, 200)
            self.send_response(code)
            if code == 302:
                self.send_header("location", "/elsewhere")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
