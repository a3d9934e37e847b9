"""A free port, and a token for everything beyond this machine."""

from __future__ import annotations

import socket

import pytest

from safelight.errors import UsageError
from safelight.pages.server.address import is_loopback
from safelight.pages.server.process import bind, open_address


def test_a_taken_port_leads_to_the_next() -> None:
    first = bind("127.0.0.1", 0)
    port = first.getsockname()[1]
    second = bind("127.0.0.1", port)
    assert port < second.getsockname()[1] <= port + 50
    second.close()
    with pytest.raises(UsageError, match="cannot listen"):
        bind("192.0.2.1", 8642)
    first.close()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.9.9.9", True), ("0.0.0.0", False), ("::", False),
     ("192.168.1.2", False), ("machine", False), ("", False)],
)  # fmt: skip
def test_beyond_this_machine_needs_a_token(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = open_address(host, listening)
    assert (address.token is None) == loopback
    assert ("token=" in address.url) != loopback
