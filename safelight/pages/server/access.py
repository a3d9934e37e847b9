"""Access control: every request passes it before anything is read."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LONGEST_TARGET, MOST_HEADERS, LONGEST_HEADERS = 4096, 64, 16_384
OURS = {"localhost", "127.0.0.1", "::1"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
    "cross-origin-resource-policy": "same-origin",
}
HOST = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
TARGET = re.compile(rb"/[A-Za-z0-9._~/-]*")  # nothing that we serve has another character in its path

log = logging.getLogger("safelight.pages.server")


@dataclass(frozen=True, slots=True)
class Access:
    """Without a token, only this machine's own names are answered to; with one, all names, but only to its holders."""

    token: str | None = None

    @property
    def cookie(self) -> str:
        """What a browser keeps: proves the token, and is not it."""
        return hashlib.sha256(f"safelight cookie {self.token}".encode()).hexdigest()

    def cookie_name(self, port: object) -> str:
        return f"safelight-{port}"  # cookies do not know ports: two dashboards on one machine must not mix them up


class Guard:
    """Wraps the application: refuses requests with a message, adds headers, and never returns a traceback."""

    def __init__(self, app: ASGIApp, access: Access, close: Callable[[], None] = lambda: None) -> None:
        self._app, self._access, self.close = app, access, close
        self.last_request = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no websockets here
        self.last_request = time.monotonic()
        begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                _add_headers(message)
            await send(message)

        refusal = self._judge(scope)
        try:
            await (refusal or self._app)(scope, receive, send_guarded)
        except Exception as error:
            log.warning("%s: %s", type(error).__name__, error)
            if not begun:
                words = "Something broke while this was answered; the server goes on."
                await refuse(500, words)(scope, receive, send_guarded)

    def _judge(self, scope: Scope) -> Response | None:
        headers = scope["headers"]
        if scope["method"] not in ("GET", "HEAD"):
            return refuse(405, "Only GET and HEAD are answered: nothing here can be changed.", allow="GET, HEAD")
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_TARGET:
            return refuse(414, f"The address is longer than {LONGEST_TARGET:,} bytes.")
        if len(headers) > MOST_HEADERS or sum(len(name) + len(value) for name, value in headers) > LONGEST_HEADERS:
            return refuse(431, "The headers are too long.")
        if not TARGET.fullmatch(scope["raw_path"]) or b".." in scope["raw_path"]:
            return refuse(404, "There is nothing at this address.")
        return self._judge_origin(scope) or self._judge_holder(scope)

    def _judge_origin(self, scope: Scope) -> Response | None:
        hosts = _values(scope, b"host")
        found = HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if found is None:
            return refuse(400, "The request names no host, or several.")
        name = found[1].strip("[]").lower()
        if self._access.token is None and name not in OURS:
            return refuse(403, "This dashboard answers only to localhost. Use the address that it printed.")
        if any(urlsplit_host(origin) != hosts[0].lower() for origin in _values(scope, b"origin")):
            return refuse(403, "Other sites may not ask here.")
        sites = [site for site in _values(scope, b"sec-fetch-site") if site not in ("same-origin", "none")]
        if sites and not _is_visit(scope):
            return refuse(403, "Other sites may not ask here.")
        return None

    def _judge_holder(self, scope: Scope) -> Response | None:
        token, port = self._access.token, (scope.get("server") or ("", 0))[1]
        if token is None:
            return None
        name = self._access.cookie_name(port)
        if any(hmac.compare_digest(kept, self._access.cookie.encode()) for kept in _cookies(scope, name)):
            return None
        try:
            given = parse_qs(scope["query_string"].decode("ascii"), max_num_fields=10).get("token", [])
        except (ValueError, UnicodeError):
            given = []
        if scope["path"] == "/" and len(given) == 1 and hmac.compare_digest(given[0].encode(), token.encode()):
            answer = RedirectResponse("/", 303, {"cache-control": "no-store"})
            answer.set_cookie(name, self._access.cookie, httponly=True, samesite="strict", path="/")
            return answer
        return refuse(401, "Open the address with the token that the dashboard printed when it started.")


def refuse(code: int, words: str, **headers: str) -> JSONResponse:
    return JSONResponse({"error": words}, code, {"cache-control": "no-store"} | headers)


def urlsplit_host(origin: str) -> str | None:
    """Host and port of an origin; None of what is none."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None


def _is_visit(scope: Scope) -> bool:
    """A person who follows a link to the first page: the other site learns nothing from it."""
    fetch = [_values(scope, name) for name in (b"sec-fetch-mode", b"sec-fetch-dest")]
    return scope["path"] == "/" and fetch == [["navigate"], ["document"]]


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _cookies(scope: Scope, name: str) -> list[bytes]:
    found: list[bytes] = []
    for header in _values(scope, b"cookie"):
        try:
            morsel = SimpleCookie(header).get(name)
        except CookieError:
            continue
        if morsel is not None:
            found.append(morsel.value.encode("utf-8", "replace"))
    return found


def _add_headers(message: MutableMapping[str, Any]) -> None:
    present = {name.lower() for name, _ in message["headers"]}
    added = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in present]
    message["headers"] = [*message["headers"], *added]
