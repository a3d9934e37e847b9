"""Where a person on another machine finds the page."""

from __future__ import annotations

import pytest

from safelight.pages.server.address import ServerAddress, tunnel


@pytest.mark.parametrize(
    ("connection", "line"),
    [
        ("10.0.0.9 50000 10.0.0.1 22", "ssh -L 8642:localhost:8642 ada@10.0.0.1"),
        ("10.0.0.9 50000 10.0.0.1 2222", "ssh -p 2222 -L 8642:localhost:8642 ada@10.0.0.1"),
        ("", None),
        ("strange", None),
    ],
)
def test_the_tunnel_is_told_under_ssh(connection: str, line: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", connection)
    monkeypatch.setenv("USER", "ada")
    assert tunnel(ServerAddress("127.0.0.1", 8642)) == line
