"""The pages and answers of the dashboard: which address gives what."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from safelight.errors import SafelightError
from safelight.files import MAX_PICTURE_BYTES
from safelight.pages.data.clock import clock
from safelight.pages.data.gallery import TYPES
from safelight.pages.data.overview import open_run_history, overview, read_settings
from safelight.pages.data.run_files import read_bytes
from safelight.pages.data.run_list import compare_runs, entry, unread_entry
from safelight.pages.data.run_state import read_status
from safelight.pages.data.runs import FoundRun
from safelight.pages.data.series import heatmap, series
from safelight.pages.server import parameters
from safelight.pages.server.access import AccessGuard, refuse
from safelight.pages.server.live import Listener, LiveRuns
from safelight.pages.server.openmetrics import CONTENT_TYPE, openmetrics
from safelight.pages.server.run_cache import DiagnosisCache, RunCache
from safelight.pages.server.statics import File, read_page, read_static

FOREVER = "private, max-age=31536000, immutable"
NOT_FOUND_TEXT = "There is nothing at this address."
LIST_SECONDS = 0.2  # in which records are read for the list of runs
NO_STORE = {"cache-control": "no-store"}
MAGIC = {"image/png": b"\x89PNG\r\n\x1a\n", "image/gif": b"GIF8", "image/jpeg": b"\xff\xd8\xff", "image/webp": b"RIFF"}


class Handlers:
    """Answer requests from the run cache. Those that read files are not `async`: starlette calls them on a thread."""

    def __init__(self, roots: Sequence[Path], mark: str) -> None:
        self.run_cache, self.diagnosis_cache, self._mark = RunCache(roots), DiagnosisCache(), mark
        self.live_runs = LiveRuns(self.diagnosis_cache)

    def routes(self) -> list[Route]:
        places: dict[str, Callable[[Request], Response | Awaitable[Response]]] = {
            "/": self.page,
            "/static/{name:path}": self.static,
            "/api/runs": self.runs,
            "/api/runs/{run}": self.run,
            "/api/runs/{run}/series": self.series,
            "/api/runs/{run}/heatmap": self.heatmap,
            "/api/runs/{run}/pictures/{picture}": self.picture,
            "/api/compare": self.compare,
            "/api/live": self.live,
            "/api/delta": self.delta,
            "/api/hello": self.hello,
            "/metrics": self.metrics,
        }
        return [Route(path, handler, methods=["GET"]) for path, handler in places.items()]

    def page(self, request: Request) -> Response:
        return _file(read_page(), request)

    def static(self, request: Request) -> Response:
        return _file(read_static(request.path_params["name"]), request)

    async def hello(self, request: Request) -> Response:
        return _json(_encode({"safelight": "dashboard", "mark": self._mark}))

    def runs(self, request: Request) -> Response:
        until = time.monotonic() + LIST_SECONDS
        lines = b",".join(self._line(run, until) for run in self.run_cache.runs())
        return _json(b'{"runs":[' + lines + b'],"time":' + _encode(round(time.time(), 3)) + b"}")

    def metrics(self, request: Request) -> Response:
        until = time.monotonic() + LIST_SECONDS
        runs = [json.loads(self._line(run, until)) for run in self.run_cache.runs()]
        return Response(openmetrics(runs), 200, NO_STORE, CONTENT_TYPE)

    def _line(self, run: FoundRun, until: float) -> bytes:
        """From `until` on no record is read that was not read yet: the page asks again for what is still missing."""
        diagnosed, ended = self.diagnosis_cache.diagnose(run)
        name = f"line {diagnosed is None}"
        if time.monotonic() > until and self.run_cache.known(f"{name} {run.id}", run) is None:
            known = self.run_cache.known(f"line True {run.id}", run)  # read, and not diagnosed yet
            return known or _encode(unread_entry(run))
        return self._kept(f"line {diagnosed is None}", run, lambda: entry(run, diagnosed), lasting=ended)

    def run(self, request: Request) -> Response:
        run = self._run(request.path_params["run"])
        diagnosed, ended = self.diagnosis_cache.diagnose(run)
        make = partial(overview, run.folder, run, diagnose_again=False, diagnosed=diagnosed)
        return _json(self._kept(f"run {diagnosed is None}", run, make, lasting=ended))

    def series(self, request: Request) -> Response:
        run, names = self._run(request.path_params["run"]), parameters.signals(request)
        window = parameters.window(request, 800)

        def make() -> dict[str, Any]:
            with open_run_history(run.folder) as history:
                found = series(history, names, *window)
                return found | {"clock": clock(history, read_status(run.folder), read_settings(run.folder)[1])}

        return _json(self._kept(f"series {window} {','.join(names)}", run, make))

    def heatmap(self, request: Request) -> Response:
        run, window = self._run(request.path_params["run"]), parameters.window(request, 400)
        family = parameters.family(request)

        def make() -> dict[str, Any]:
            with open_run_history(run.folder) as history:
                return heatmap(history, *window[:3], family)

        return _json(self._kept(f"heatmap {family.name} {window}", run, make))

    def compare(self, request: Request) -> Response:
        return _json(_encode(compare_runs([self._run(each) for each in parameters.run_ids(request)])))

    def picture(self, request: Request) -> Response:
        run, picture = self._run(request.path_params["run"]), request.path_params["picture"]
        path = self.run_cache.picture(run, picture) if parameters.PICTURE.fullmatch(picture) else None
        content = None if path is None else read_bytes(path, MAX_PICTURE_BYTES)
        kind = None if path is None else TYPES.get(path.suffix.lower())
        if content is None or kind is None or not content.startswith(MAGIC[kind]):
            return refuse(404, "This run has no such picture.")
        return Response(content, 200, {"cache-control": FOREVER}, kind)

    async def live(self, request: Request) -> Response:
        run, names, after, version = self._wanted(request)
        headers = {**NO_STORE, "x-accel-buffering": "no"}
        if request.method == "HEAD":
            return Response(b"", 200, headers, "text/event-stream")
        if self.live_runs.full:
            return refuse(503, "Too many pages listen at once.")
        given = request.headers.get("last-event-id", "")
        after = int(given) if parameters.NUMBER.fullmatch(given) else after  # a stream that was cut continues
        stream = self.live_runs.of(run).listen(names, after, version)
        return StreamingResponse(stream, 200, headers, "text/event-stream")

    async def delta(self, request: Request) -> Response:
        run, names, after, version = self._wanted(request)
        catch_up = self.live_runs.of(run).catch_up
        events = dict(await anyio.to_thread.run_sync(catch_up, Listener(names, version), after))
        return _json(_encode({kind: events.get(kind) for kind in ("delta", "changed", "reset")}))

    def _wanted(self, request: Request) -> tuple[FoundRun, list[str], int | None, str]:
        run = self._run(parameters.single(request, "run"))
        return run, parameters.signals(request), parameters.whole(request, "after"), parameters.version(request)

    def _run(self, run_id: str | None) -> FoundRun:
        found = self.run_cache.run(parameters.run_id(run_id))
        if found is None:
            raise HTTPException(404, "There is no run of this id here.")
        return found

    def _kept(self, name: str, run: FoundRun, make: Callable[[], Any], *, lasting: bool = True) -> bytes:
        return self.run_cache.answer(f"{name} {run.id}", run, lambda: _encode(make()), lasting=lasting)


def _file(found: File | None, request: Request) -> Response:
    if found is None:
        return refuse(404, NOT_FOUND_TEXT)
    headers = {"cache-control": FOREVER if found.lasting else "no-cache", "etag": found.tag}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, 200, headers, found.kind)


def _encode(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def _json(content: bytes) -> Response:
    return Response(content, 200, NO_STORE, "application/json")


async def _report(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return refuse(422, "The record of this run cannot be read.")
    ours = error.status_code in (400, 404) and error.detail != "Not Found"
    return refuse(error.status_code, error.detail if ours else NOT_FOUND_TEXT)


def make_app(roots: Sequence[Path], token: str | None, *, mark: str) -> AccessGuard:
    """The application, behind its guard. `mark`: by which a dashboard is known again."""
    handlers = Handlers(roots, mark)
    app = Starlette(routes=handlers.routes(), exception_handlers={HTTPException: _report, SafelightError: _report})
    app.router.redirect_slashes = False
    return AccessGuard(app, token, handlers.live_runs.close)
