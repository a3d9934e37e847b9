"""`safelight dashboard`: prints its address, serves, and ends on a signal."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from folders import make_run
from serving import PATIENCE, send

from safelight.cli import main
from safelight.pages.data.runs import describe
from safelight.pages.server import launch


@pytest.fixture
def own_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Notes of dashboards that no other test sees, and all the time that a busy machine needs to start one."""
    monkeypatch.setenv("SAFELIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setattr(launch, "START_SECONDS", PATIENCE)
    monkeypatch.setattr(launch, "ANSWER_SECONDS", PATIENCE)
    return tmp_path / "cache" / "dashboards"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["none"], "is no folder"),
        ([".", "--port", "99999"], "ports go from 0 to 65535"),
        ([".", "--port", "x"], "--port is 'x'"),
        ([".", "--host", "192.0.2.1"], "cannot listen"),
        ([".", "--idle", "soon"], "--idle is 'soon'"),
    ],
)
def test_wrong_words_are_told(words, told, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["dashboard", *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_its_address_and_ends_when_told(
    how: signal.Signals, tmp_path: Path, own_notes: Path
) -> None:
    make_run(tmp_path / "a")
    command = [sys.executable, "-m", "safelight", "dashboard", str(tmp_path), "--port", "0", "--host", "0.0.0.0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        port, token = int(line.partition(":")[2].split(":")[1].split("/")[0]), line.strip().partition("token=")[2]
        opened = send(port, f"GET /?token={token} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert opened.code == 303
        cookie = opened.headers["set-cookie"].partition(";")[0]
        live = f"GET /api/live?run={describe(tmp_path / 'a').id} HTTP/1.1\r\nHost: x\r\nCookie: {cookie}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as stream:
            stream.sendall(live.encode())
            assert b"200 OK" in stream.recv(4096)  # a page that listens does not hold it up
            process.send_signal(how)
            assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_one_that_nobody_looks_at_ends(tmp_path: Path, own_notes: Path) -> None:
    command = [sys.executable, "-m", "safelight", "dashboard", str(tmp_path), "--port", "0", "--idle", "0.0001"]
    assert subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False).returncode == 0
