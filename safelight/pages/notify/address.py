"""Where messages go, and what each service wants to be sent."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from safelight import __version__
from safelight.errors import UsageError

Service = Literal["slack", "discord", "ntfy", "json"]
TIMEOUT = 10.0  # seconds of one attempt
PRIORITIES = {"started": "low", "finding": "high", "died": "urgent"}


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A message goes where the user said, or nowhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class NotifyAddress:
    url: str
    service: Service

    def request(self, message: dict[str, Any]) -> urllib.request.Request:
        """`message` has at least `event`, `run` and `text`."""
        headers = {"User-Agent": f"safelight/{__version__}", "Content-Type": "application/json"}
        if self.service == "ntfy":
            headers |= {
                "Content-Type": "text/plain; charset=utf-8",
                "Title": f"Safelight: {ascii(message['run'])[1:-1]}",
            }
            headers["Priority"] = PRIORITIES.get(message["event"], "default")
            return urllib.request.Request(self.url, message["text"].encode(), headers)
        name = {"slack": "text", "discord": "content"}.get(self.service)
        body = message if name is None else {name: f"{message['run']}: {message['text']}"[:1900]}
        return urllib.request.Request(self.url, json.dumps(body).encode(), headers)

    def send(self, message: dict[str, Any]) -> str | None:
        """None, or in words why it did not arrive; never with the path of the address, which may be a secret."""
        opener = urllib.request.build_opener(NoRedirect)
        try:
            with opener.open(self.request(message), timeout=TIMEOUT):
                return None
        except urllib.error.HTTPError as error:
            return f"{self.host} answered {error.code} {error.reason}"
        except (OSError, ValueError) as error:
            return f"{self.host}: {getattr(error, 'reason', None) or error}"

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or "?"


def parse(url: str) -> NotifyAddress:
    """`ntfy:TOPIC` stands for https://ntfy.sh/TOPIC."""
    if url.startswith("ntfy:") and not url.startswith("ntfy://") and url[5:].strip("/"):
        return NotifyAddress(f"https://ntfy.sh/{url[5:].strip('/')}", "ntfy")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise UsageError(f"--notify is no address: {error}.") from error
    if parts.scheme not in ("http", "https") or not host or any(each.isspace() or ord(each) < 33 for each in url):
        raise UsageError(
            "--notify takes the address of a webhook, such as https://hooks.slack.com/services/…, or ntfy:TOPIC."
        )
    if host == "hooks.slack.com":
        return NotifyAddress(url, "slack")
    if host in ("discord.com", "discordapp.com") and parts.path.startswith("/api/webhooks/"):
        return NotifyAddress(url, "discord")
    return NotifyAddress(url, "ntfy" if host.split(".")[0] == "ntfy" else "json")
