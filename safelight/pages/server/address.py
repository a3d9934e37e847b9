"""Where a dashboard listens, and how a person gets there."""

from __future__ import annotations

import ipaddress
import os
import socket
from contextlib import suppress
from dataclasses import dataclass

PORT = 8642
HERE = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    host: str
    port: int
    token: str | None = None

    @property
    def url(self) -> str:
        name = "localhost" if is_loopback(self.host) else self.host
        name = socket.gethostname() if name in ("0.0.0.0", "::", "") else name
        token = f"?token={self.token}" if self.token else ""
        return f"http://{f'[{name}]' if ':' in name else name}:{self.port}/{token}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    with suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def tunnel(address: ServerAddress) -> str | None:
    """The SSH command that forwards the page to the user's own machine, if they came by SSH."""
    words = os.environ.get("SSH_CONNECTION", "").split()
    if len(words) != 4 or not is_loopback(address.host):
        return None
    port = "" if words[3] == "22" else f"-p {words[3]} "
    user = os.environ.get("USER") or os.environ.get("LOGNAME") or "USER"
    return f"ssh {port}-L {address.port}:localhost:{address.port} {user}@{words[2]}"
