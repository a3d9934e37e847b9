"""Hundreds of hostile requests over real sockets: nothing leaks, nothing runs, nothing falls over. And a server that is
careless in each way is caught by the same test."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import h11
import pytest
from folders import FINDING, draw_picture, make_run
from hostile import CANARY, SCRIPT, Hostile, table
from serving import PATIENCE, Answer, get, send, served

from safelight.pages.data.runs import describe
from safelight.pages.server.process import LONGEST_HEAD
from safelight.record.store import RecordWriter

SAFE = ("x-content-type-options", "content-security-policy", "referrer-policy", "cross-origin-resource-policy")
ENDS = b"<>&\"'"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs whose every name is a script, beside files that must never be seen."""
    above = tmp_path_factory.mktemp("above")
    (above / "canary.txt").write_text(CANARY)
    draw_picture(above, "canary.png")
    with open(above / "canary.png", "ab") as file:
        file.write(CANARY.encode())
    evil = SCRIPT.replace("/", "∕")
    bad = FINDING | {"summary": SCRIPT, "cause": SCRIPT, "code": "<b>", "fix": {"text": SCRIPT, "set": {SCRIPT: 1}}}
    run = make_run(above / "runs" / f"{evil}", findings=(bad,), status={"status": "training", "error": SCRIPT})
    (run / "samples" / "link.png").symlink_to(above / "canary.png")
    (run / "data.json").write_text(json.dumps({"classes": {SCRIPT: 3}, "rejected": [[SCRIPT, SCRIPT]]}))
    record = RecordWriter(run / "record.sqlite", from_step=200, say=print)
    record.add(200, {SCRIPT: 1.0})
    record.event(200, SCRIPT, text=SCRIPT)
    for step, path in enumerate(
        ("../../canary.png", str(above / "canary.png"), "samples/link.png", "/etc/passwd", "run.json")
    ):
        record._note("picture VALUES (?, ?, ?, ?, ?)", SCRIPT, 300 + step, path, 1, 1)
    record.close()
    (above / "runs" / "latest").symlink_to(run)
    (above / "runs" / "out").symlink_to(above)
    return above / "runs"


@pytest.fixture(scope="module")
def run(runs: Path) -> str:
    return describe(next(path for path in runs.iterdir() if "script" in path.name)).id


def faults(hostile: Hostile, answer: Answer) -> list[str]:
    """What is wrong with an answer to a hostile request."""
    found = []
    if CANARY.encode() in answer.whole or b"root:" in answer.whole:
        found.append("leaked a file")
    if answer.code not in hostile.allowed:
        found.append(f"answered {answer.code}")
    if b"Traceback" in answer.whole or b'File "' in answer.whole:
        found.append("showed a traceback")
    if "set-cookie" in answer.headers or "access-control-allow-origin" in answer.headers:
        found.append("gave rights away")
    kind = answer.headers.get("content-type", "")
    if b"<script>alert" in answer.body and not kind.startswith("application/json"):
        found.append("reflected a script")
    if answer.code == 200 and any(name not in answer.headers for name in SAFE):
        found.append("answered without its guard")
    return found


def is_cut_short(content: bytes) -> bool:
    """Whether a server has to wait for more before it may say anything. Only then it is told that nothing comes: it
    would not answer a whole request after that."""
    heard = h11.Connection(h11.SERVER, max_incomplete_event_size=LONGEST_HEAD)
    if content:  # no bytes at all would mean to h11 that nothing more comes
        heard.receive_data(content)
    try:
        return heard.next_event() is h11.NEED_DATA
    except h11.RemoteProtocolError:
        return False


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything below a folder, as it would change if anything were written. Readers of SQLite keep two files of
    their own."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_size)
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def test_hostile_requests_get_nothing(runs: Path, run: str) -> None:
    before = listing(runs.parent)
    with served([runs]) as port:
        hostiles = table(port, run, str(runs.parent))
        counted = Counter(hostile.kind for hostile in hostiles)
        assert len({hostile.content for hostile in hostiles}) >= 500
        assert min(counted.values()) >= 20, counted
        wrong = []
        for hostile in hostiles:
            answer = send(port, hostile.content, last=is_cut_short(hostile.content))
            if found := faults(hostile, answer):
                wrong.append((hostile.kind, hostile.content[:200], found))
        assert wrong == []
        assert get(port, "/api/runs").code == 200  # it still stands
        assert get(port, f"/api/runs/{run}").json()["pictures"] != []
    assert listing(runs.parent) == before


@pytest.mark.parametrize("address", ["/api/runs", "/api/runs/{run}", "/api/compare?runs={run}", "/api/delta?run={run}"])
def test_names_from_a_run_are_data_and_never_a_page(runs: Path, run: str, address: str) -> None:
    with served([runs]) as port:
        answer = get(port, address.replace("{run}", run))
    assert answer.code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "script-src 'self';" in answer.headers["content-security-policy"]
    json.loads(answer.body)


def test_pictures_that_lead_outside_are_not_there(runs: Path, run: str) -> None:
    with served([runs]) as port:
        shown = get(port, f"/api/runs/{run}").json()["pictures"]
        assert {picture["step"] for picture in shown} == {50, 100}
        for picture in shown:
            answer = get(port, picture["url"])
            assert (answer.code, answer.headers["content-type"]) == (200, "image/png")
            assert answer.body.startswith(b"\x89PNG")


# That the test can fail


class Careless(http.server.BaseHTTPRequestHandler):
    """Serves whatever is asked for, to anybody, as a page."""

    root = ""

    def do_GET(self) -> None:
        path = unquote(unquote(self.path)).replace("\\", "/").partition("?")[0]
        for place in (os.path.normpath(self.root + "/" + path), path):
            if os.path.isfile(place) and "\0" not in place:
                with open(place, "rb") as file:
                    return self._say(file.read())
        return self._say(f"<p>not found: {unquote(self.path)}</p>".encode("latin-1", "replace"))

    do_POST = do_PUT = do_DELETE = do_OPTIONS = do_GET

    def _say(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def careless(runs: Path) -> Iterator[int]:
    handler = type("Handler", (Careless,), {"root": str(runs)})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join(PATIENCE)


def test_a_careless_server_is_caught_in_every_way(careless: int, runs: Path, run: str) -> None:
    hostiles = [each for each in table(careless, run, str(runs.parent)) if each.kind != "size"]
    caught: Counter[tuple[str, str]] = Counter()
    for hostile in hostiles:
        for fault in faults(hostile, send(careless, hostile.content, last=True)):
            caught[hostile.kind, fault] += 1
    for kind in ("traversal", "host", "origin", "method", "parameter"):
        assert caught[kind, "answered 200"], caught
    assert caught["traversal", "leaked a file"] >= 20, caught
    assert caught["parameter", "reflected a script"], caught
    assert caught["host", "gave rights away"], caught
    assert caught["host", "answered without its guard"], caught


@pytest.mark.parametrize(
    ("code", "headers", "body", "fault"),
    [
        (200, {}, b"ok", "answered without its guard"),
        (500, {}, b"", "answered 500"),
        (404, {}, b'Traceback (most recent call last):\n  File "x"', "showed a traceback"),
        (403, {"set-cookie": "a"}, b"", "gave rights away"),
    ],
)
def test_each_fault_is_seen(code: int, headers: dict[str, str], body: bytes, fault: str) -> None:
    hostile = Hostile("any", b"", frozenset({200, 403, 404}))
    assert fault in faults(hostile, Answer(code, headers, body, body))
