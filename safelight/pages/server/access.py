"""Access control: every request passes it before anything is read."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import time
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
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


class AccessGuard:
    """Wraps the application: refuses requests with a message, adds headers, and never returns a traceback.

    Without a token, only this machine's own names are answered to; with one, all names, but only to its holders.
    """

    def __init__(self, app: ASGIApp, token: str | None, close: Callable[[], None]) -> None:
        self._app, self._token, self.close = app, token, close
        # What a browser keeps: proves the token, and is not it.
        self._cookie = hashlib.sha256(f"safelight cookie {token}".encode()).hexdigest()
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
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._check(scope)
        try:
            await (refusal or self._app)(scope, receive, send_guarded)
        except Exception as error:
            log.warning("%s: %s", type(error).__name__, error)
            if not begun:
                answer = refuse(500, "Something broke while this was answered; the server goes on.")
                await answer(scope, receive, send_guarded)

    def _check(self, scope: Scope) -> Response | None:
        headers = scope["headers"]
        if scope["method"] not in ("GET", "HEAD"):
            return refuse(405, "Only GET and HEAD are answered: nothing here can be changed.", allow="GET, HEAD")
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_TARGET:
            return refuse(414, f"The address is longer than {LONGEST_TARGET:,} bytes.")
        if len(headers) > MOST_HEADERS or sum(len(name) + len(value) for name, value in headers) > LONGEST_HEADERS:
            return refuse(431, "The headers are too long.")
        if not TARGET.fullmatch(scope["raw_path"]) or b".." in scope["raw_path"]:
            return refuse(404, "There is nothing at this address.")
        return self._check_origin(scope) or self._check_token(scope)

    def _check_origin(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        found = HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if found is None:
            return refuse(400, "The request names no host, or several.")
        name = found[1].strip("[]").lower()
        if self._token is None and name not in OURS:
            return refuse(403, "This dashboard answers only to localhost. Use the address that it printed.")
        ours = {f"http://{hosts[0]}".lower(), f"https://{hosts[0]}".lower()}
        foreign = any(origin.lower() not in ours for origin in headers.getlist("origin"))
        sites = [site for site in headers.getlist("sec-fetch-site") if site not in ("same-origin", "none")]
        # A person who follows a link to the first page: the other site learns nothing from it.
        fetch = [headers.getlist(name) for name in ("sec-fetch-mode", "sec-fetch-dest")]
        followed = scope["path"] == "/" and fetch == [["navigate"], ["document"]]
        if foreign or (sites and not followed):
            return refuse(403, "Other sites may not send requests here.")
        return None

    def _check_token(self, scope: Scope) -> Response | None:
        token, port = self._token, (scope.get("server") or ("", 0))[1]
        if token is None:
            return None
        name = f"safelight-{port}"  # cookies do not know ports: two dashboards on one machine must not mix them up
        for header in Headers(scope=scope).getlist("cookie"):
            if hmac.compare_digest(cookie_parser(header).get(name, "").encode(), self._cookie.encode()):
                return None
        given = QueryParams(scope["query_string"]).getlist("token")
        if scope["path"] == "/" and len(given) == 1 and hmac.compare_digest(given[0].encode(), token.encode()):
            answer = RedirectResponse("/", 303, {"cache-control": "no-store"})
            answer.set_cookie(name, self._cookie, httponly=True, samesite="strict", path="/")
            return answer
        return refuse(401, "Open the address with the token that the dashboard printed when it started.")


def refuse(code: int, words: str, **headers: str) -> JSONResponse:
    return JSONResponse({"error": words}, code, {"cache-control": "no-store"} | headers)
