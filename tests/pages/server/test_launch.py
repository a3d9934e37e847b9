"""The dashboard starts beside a training where a person looks on, once for a folder, and is never in its way."""

from __future__ import annotations

import http.server
import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from folders import make_run
from serving import PATIENCE, get, served, wait_for

from safelight.pages.data.runs import describe
from safelight.pages.server import launch
from safelight.pages.server.address import ServerAddress


class Screen:
    def __init__(self, seen: bool) -> None:
        self._seen = seen

    def isatty(self) -> bool:
        return self._seen


@pytest.mark.parametrize(
    ("out", "err", "surroundings", "wanted"),
    [
        (True, True, {}, True),
        (False, True, {}, False),
        (True, False, {}, False),
        (True, True, {"CI": "true"}, False),
        (True, True, {"PYTEST_CURRENT_TEST": "x"}, False),
        (True, True, {"RANK": "1"}, False),
        (True, True, {"RANK": "0"}, True),
        (True, True, {"SLURM_PROCID": "3"}, False),
    ],
)
def test_it_is_wanted_where_a_person_looks_on(out, err, surroundings, wanted, monkeypatch) -> None:
    for name in ("CI", "PYTEST_CURRENT_TEST", "SAFELIGHT_NO_DASHBOARD", "RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Screen(out))
    monkeypatch.setattr(sys, "stderr", Screen(err))
    found = launch.wanted()
    monkeypatch.undo()
    assert found == wanted


@pytest.fixture
def own_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Notes of dashboards that no other test sees, and all the time that a busy machine needs to start one."""
    monkeypatch.setenv("SAFELIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setattr(launch, "START_SECONDS", PATIENCE)
    monkeypatch.setattr(launch, "ANSWER_SECONDS", PATIENCE)
    return tmp_path / "cache" / "dashboards"


def end(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def note(root: Path) -> dict:
    return json.loads(launch.note_path(root).read_bytes())


def test_the_training_goes_on_while_it_starts(tmp_path: Path, own_notes: Path, monkeypatch) -> None:
    go, told = threading.Event(), list[str]()

    def find(root: Path) -> ServerAddress:
        assert go.wait(PATIENCE)
        return ServerAddress("127.0.0.1", 1234)

    monkeypatch.setattr(launch, "find_listening", find)
    thread = launch.start_beside(tmp_path / "runs" / "a", told.append)
    assert told == []  # it came back, though nothing has started
    go.set()
    thread.join(PATIENCE)
    assert told == [f"Dashboard: http://localhost:1234/#/run/{describe(tmp_path / 'runs' / 'a').id}"]


def test_it_starts_once_and_outlives_who_started_it(tmp_path: Path, own_notes: Path) -> None:
    run, told, again = make_run(tmp_path / "runs" / "a"), list[str](), list[str]()
    launch.start_beside(run, told.append).join(PATIENCE)
    found = note(tmp_path / "runs")
    try:
        [listed] = get(found["port"], "/api/runs").json()["runs"]
        assert listed["name"] == "a"
        assert told == [f"Dashboard: http://localhost:{found['port']}/#/run/{listed['id']}"]
        assert os.getsid(found["pid"]) != os.getsid(0)
        assert os.getpriority(os.PRIO_PROCESS, found["pid"]) >= launch.NICE
        launch.start_beside(make_run(tmp_path / "runs" / "b"), again.append).join(PATIENCE)
        assert [line.partition("#")[0] for line in again] == [line.partition("#")[0] for line in told]
        assert again != told  # each has a page of its own
        assert note(tmp_path / "runs") == found
    finally:
        end(found["pid"])
    wait_for(lambda: not launch.note_path(tmp_path / "runs").exists(), "a dashboard that took its note away")


def test_what_cannot_start_is_one_line_and_no_error(tmp_path: Path, own_notes: Path, monkeypatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    launch.start_beside(tmp_path / "runs" / "a", told.append).join(PATIENCE)
    assert len(told) == 1
    assert "The training continues without it." in told[0]
    monkeypatch.setattr(sys, "executable", "/bin/false")
    launch.start_beside(tmp_path / "runs" / "a", told.append).join(PATIENCE)
    assert "`safelight dashboard` reports why" in told[1]


class Other(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"safelight": "dashboard", "mark": "another"}')

    def log_message(self, *_: object) -> None:
        pass


def test_only_a_dashboard_of_ours_is_used_again(tmp_path: Path, own_notes: Path) -> None:
    root = tmp_path / "runs"
    assert launch.find_listening(root) is None
    with served([tmp_path]) as port:
        path = launch.note_path(root)
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"host": "127.0.0.1", "port": port, "mark": "test"}))
        assert launch.find_listening(root) == ServerAddress("127.0.0.1", port)
        path.write_text(json.dumps({"host": "127.0.0.1", "port": port, "mark": "other"}))
        assert launch.find_listening(root) is None
    path.write_text(json.dumps({"host": "127.0.0.1", "port": port, "mark": "test"}))
    assert launch.find_listening(root) is None  # gone
    for content in ("", "[]", "{", '{"port": "x"}', '{"host": 1, "port": 99999999, "mark": 1}'):
        path.write_text(content)
        assert launch.find_listening(root) is None
    server = http.server.HTTPServer(("127.0.0.1", 0), Other)  # another program took the port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    path.write_text(json.dumps({"host": "127.0.0.1", "port": server.server_address[1], "mark": "test"}))
    assert launch.find_listening(root) is None
    server.shutdown()
    server.server_close()
    thread.join(PATIENCE)


def test_a_run_calls_what_stands_beside_it(tmp_path: Path) -> None:
    from safelight.config.resolve import resolve
    from safelight.start import train
    from safelight.terminal import Terminal

    called: list[Path] = []
    settings = {"train.steps": 1, "train.batch_size": 4, "train.preflight": "off", "evaluate.every": 0,
                "model.widths": (16,), "model.attention": (), "sample.count": 2, "sample.steps": 2}  # fmt: skip
    config = resolve(preset="digits", settings=settings)
    train(config, run=tmp_path / "a", terminal=Terminal(quiet=True), on_start=lambda run, say: called.append(run))
    assert called == [tmp_path / "a"]
