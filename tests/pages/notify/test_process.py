"""The process beside a training: it tries again, gives up, and is there when the training is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from showcase import build_run, set_status
from webhook import webhook

from safelight.pages.notify.messages import RunMessages
from safelight.pages.notify.process import WAITS, follow
from safelight.run import RunFolder

LIMIT = 120.0  # seconds; what is waited for comes within a few
TRAINING = """
import sys, time
from pathlib import Path
from safelight.pages.notify.address import parse
from safelight.pages.notify.process import start_notifier
start_notifier(Path(sys.argv[1]), parse(sys.argv[2]), print)
print("started", flush=True)
time.sleep(1000)
"""


def test_a_killed_training_is_reported(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    set_status(run, status="training", step=7)
    with webhook() as (url, received):
        command = [sys.executable, "-c", TRAINING, str(run), url]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as training:
            assert training.stdout is not None
            assert training.stdout.readline() == b"started\n"
            started = json.loads(received.get(timeout=LIMIT)[2])
            assert (started["event"], started["run"], started["step"]) == ("started", "run", 7)
            training.send_signal(signal.SIGKILL)
        died = json.loads(received.get(timeout=LIMIT)[2])
        assert (died["event"], died["status"]) == ("died", "training")


@pytest.mark.parametrize(("failures", "tries", "lost"), [(1, 2, 0), (3, 4, 0), (4, 4, 1)])
def test_what_does_not_arrive_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], failures: int, tries: int, lost: int
) -> None:
    run = build_run(tmp_path / "run")
    set_status(run, status="finished", heartbeat=2e9)
    calls: list[str] = []
    waited: list[float] = []

    def send(message: dict[str, object]) -> str | None:
        calls.append(str(message["event"]))
        return "example.org answered 503" if len(calls) <= failures else None

    follow(RunMessages(RunFolder(run), lambda: True), send, waited.append)
    assert calls.count("started") == tries
    assert calls[-1] == "ended"
    assert waited[: tries - 1] == list(WAITS[: tries - 1])
    assert capsys.readouterr().err.count("A message was not sent: example.org answered 503.") == lost


def test_what_a_server_answers_steers_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = build_run(tmp_path / "run")
    set_status(run, status="finished", heartbeat=2e9)
    follow(RunMessages(RunFolder(run), lambda: True), lambda _: "h answered 500 \x1b]52;c;aGk=\x07", lambda _: None)
    printed = capsys.readouterr().err
    assert "\\x1b]52;c;aGk=\\x07" in printed
    assert "\x1b" not in printed
