"""What is new comes to every tab, once and at once, whatever a resume cuts; one look serves them all."""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from folders import FINDING, make_run
from serving import PATIENCE, get, request, served, wait_for

from safelight.pages.data.runs import describe
from safelight.pages.server import live
from safelight.record.store import RecordWriter
from safelight.run import RunFolder


class Stream:
    """An EventSource that can be asked what came."""

    def __init__(self, port: int, query: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._socket.sendall(request(f"/api/live?{query}", port, headers=headers))
        self._text = ""
        self._events = self._read()

    def next(self, kind: str) -> dict:
        """The next event of a kind; others that come before it are passed over."""
        return next(content for found, content in self._events if found == kind)

    def next_readings(self, signal: str = "loss/mean") -> list[int]:
        while True:
            found = self.next("delta")
            if signal in found["series"]:
                return found["series"][signal]["x"]

    def next_known(self, after: int, ask: Callable[[], dict], signal: str = "loss/mean") -> int:
        """The first step beyond `after` that a page comes to know of: by a delta, or by asking anew after a reset.
        Status and record are written one after the other, and each may be seen alone."""
        for kind, content in self._events:
            steps = (
                ask()["series"][signal]["end"]
                if kind == "reset"
                else content.get("series", {}).get(signal, {}).get("x")
            )
            if steps and steps[-1] > after:
                return steps[-1]
        raise AssertionError("the stream never ends by itself")

    def _read(self) -> Iterator[tuple[str, dict]]:
        while True:
            while "\n\n" not in self._text:
                part = self._socket.recv(65_536)
                assert part, "the stream ended"
                self._text += part.decode().replace("\r\n", "\n")
            frame, _, self._text = self._text.partition("\n\n")
            lines = dict(line.split(": ", 1) for line in frame.splitlines() if ": " in line)
            if "data" in lines and "event" in lines:
                yield lines["event"], json.loads(lines["data"])

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other without the rest that spares a training."""
    monkeypatch.setattr(live, "MIN_REST", 0.0)
    monkeypatch.setattr(live, "MAX_REST", 0.0)
    monkeypatch.setattr(live, "POLL_SECONDS", 0.01)


@pytest.fixture
def training(tmp_path: Path) -> Path:
    return make_run(tmp_path / "runs" / "a", steps=100, status={"status": "training", "step": 100, "steps": 500})


@pytest.fixture
def port(training: Path):
    with served([training.parent]) as found:
        yield found


def add(run: Path, steps: range, **more: float) -> None:
    """All steps at once: nobody sees some of them without the others."""
    record = RecordWriter(run / "record.sqlite", from_step=steps.start, say=print)
    values = np.stack([np.array(steps) / 10, *(np.full(len(steps), value) for value in more.values())], axis=1)
    record.add_window(np.array(steps), ("loss/mean", *more), values.astype(np.float32))
    record.close()


def test_new_readings_come_at_once_and_only_once(training: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: by what they change, and not with the next word about the status."""
    monkeypatch.setattr(live, "STATUS_SECONDS", math.inf)
    stream = Stream(port, f"run={describe(training).id}&after=97&signals=loss/mean,gradient/norm")
    first = stream.next("delta")
    assert first["series"]["loss/mean"]["x"] == [97, 98, 99]
    assert first["cursor"] == 99
    assert first["status"]["state"] == "live"
    add(training, range(100, 110))
    assert stream.next_readings() == list(range(100, 110))
    add(training, range(110, 113))
    assert stream.next_readings() == [110, 111, 112]
    stream.close()


def test_a_signal_that_is_new_comes_from_its_beginning(training: Path, port: int) -> None:
    stream = Stream(port, f"run={describe(training).id}&after=99&signals=loss/mean,probe/ema")
    stream.next("delta")
    add(training, range(100, 103), **{"probe/ema": 1.0})
    assert stream.next_readings("probe/ema") == [100, 101, 102]
    stream.close()


def test_a_late_reading_is_not_lost(training: Path, port: int) -> None:
    """An evaluation is recorded under a step whose loss was told before."""
    stream = Stream(port, f"run={describe(training).id}&after=99&signals=loss/mean,quality/distance")
    stream.next("delta")
    record = RecordWriter(training / "record.sqlite", from_step=100, say=print)
    record.add(105, {"loss/mean": 1.0})
    record.flush(wait=True)
    assert stream.next_readings() == [105]
    record.add(104, {"quality/distance": 2.0})
    record.close()
    assert stream.next_readings("quality/distance") == [104]
    polled = get(port, f"/api/delta?run={describe(training).id}&after=105&signals=loss/mean,quality/distance").json()
    assert polled["delta"]["series"]["quality/distance"]["x"] == [104]
    stream.close()


def test_pictures_and_findings_change_the_version(training: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STATUS_SECONDS", 0.4)
    run_id = describe(training).id
    version = get(port, f"/api/runs/{run_id}").json()["version"]
    stream = Stream(port, f"run={run_id}&after=99&signals=loss/mean&version={version}")
    stream.next("delta")
    record = RecordWriter(training / "record.sqlite", from_step=100, say=print)
    record.finding(100, "LRA001", **FINDING)
    record.close()
    changed = stream.next("changed")["version"]
    assert changed != version
    assert get(port, f"/api/runs/{run_id}").json()["version"] == changed
    assert stream.next("delta")["status"]["verdict"]["tone"] == "bad"
    stream.close()


def test_a_resume_that_cuts_the_record_is_told(training: Path, port: int) -> None:
    run_id = describe(training).id
    stream = Stream(port, f"run={run_id}&after=99&signals=loss/mean")
    stream.next("delta")
    RunFolder(training).update_status(status="training", step=50)  # by another process
    add(training, range(50, 53))
    assert "version" in stream.next("reset")
    add(training, range(53, 55))
    assert stream.next_known(52, lambda: get(port, f"/api/runs/{run_id}/series?signals=loss/mean").json()) == 54
    stream.close()
    assert get(port, f"/api/delta?run={run_id}&after=99&signals=loss/mean").json()["reset"] is not None


def test_a_cut_that_comes_before_any_word_of_it_is_told(training: Path, port: int) -> None:
    """The status file may say the old step for a while, or the new process before the record is cut."""
    stream = Stream(port, f"run={describe(training).id}&after=99&signals=loss/mean")
    stream.next("delta")
    RunFolder(training).update_status(asked_channels=1)
    stream.next("reset")
    add(training, range(50, 53))
    stream.next("reset")
    add(training, range(53, 55))
    address = f"/api/runs/{describe(training).id}/series?signals=loss/mean"
    assert stream.next_known(52, lambda: get(port, address).json()) == 54
    stream.close()


@pytest.mark.parametrize("version", ["1-0.abc", "7-1.abc"])
def test_a_page_that_slept_through_a_resume_begins_again(training: Path, port: int, version: str) -> None:
    """Even if the record is longer than ever by now."""
    found = get(port, f"/api/delta?run={describe(training).id}&after=90&version={version}&signals=loss/mean").json()
    assert (found["reset"] is None) == (version == "1-0.abc")
    assert (found["delta"] is None) == (version != "1-0.abc")
    if version == "1-0.abc":
        assert found["changed"] is not None
        assert found["delta"]["series"]["loss/mean"]["x"] == list(range(90, 100))


def test_a_stream_that_was_cut_goes_on_where_it_was(training: Path, port: int) -> None:
    query = f"run={describe(training).id}&after=0&signals=loss/mean"
    stream = Stream(port, query, (("Last-Event-ID", "98"),))
    assert stream.next_readings() == [98, 99]
    stream.close()


def test_silence_is_told(training: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STATUS_SECONDS", 0.5)
    monkeypatch.setattr(live, "VERDICT_SECONDS", 0.0)
    monkeypatch.setattr(live, "BEAT_SECONDS", 0.2)
    stream = Stream(port, f"run={describe(training).id}&signals=loss/mean")
    stream.next("delta")
    facts = json.loads((training / "run.json").read_text())
    (training / "run.json").write_text(json.dumps(facts | {"heartbeat": time.time() - 90_000}))
    while (told := stream.next("delta"))["status"]["state"] != "stale":
        pass
    assert "No heartbeat for 25 hours" in told["status"]["verdict"]["sentence"]
    stream.close()


def test_ten_tabs_cost_one_look_and_none_when_closed(
    training: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[live.LiveRun] = []
    original = live.LiveRun._poll

    def counted(self, since):
        looks.append(self)
        return original(self, since)

    monkeypatch.setattr(live.LiveRun, "_poll", counted)
    monkeypatch.setattr(live, "STATUS_SECONDS", math.inf)
    monkeypatch.setattr(live, "MIN_REST", 0.7)  # a commit is many writes, and each would be worth a look
    monkeypatch.setattr(live, "MAX_REST", 0.8)
    streams = [Stream(port, f"run={describe(training).id}&after=99&signals=loss/mean") for _ in range(10)]
    for stream in streams:
        stream.next("delta")
    add(training, range(100, 105))
    assert [stream.next_readings() for stream in streams] == [[100, 101, 102, 103, 104]] * 10
    assert 1 <= len(looks) < len(streams)  # one for each of a few commits, whoever listens
    assert len(set(looks)) == 1
    for stream in streams:
        stream.close()
    task = looks[0]._task
    assert task is not None
    wait_for(task.done, "a watcher without listeners that ends")
    looks.clear()
    add(training, range(105, 110))
    assert get(port, f"/api/delta?run={describe(training).id}&after=104&signals=loss/mean").json()["delta"]
    assert looks == []


def test_a_listener_that_does_not_read_loses_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = live.Listener(["a"], "1.x")
    for cursor in range(live.MAX_WAITING + 1):
        listener.put("delta", {"cursor": cursor})
    assert listener.waiting.qsize() == 1
    assert b"event: reset" in listener.waiting.get_nowait()


def test_a_frame_cannot_be_broken_by_what_it_holds() -> None:
    found = live.frame("delta", {"text": "a\n\nevent: reset\ndata: {}\r\n\r\n"}, 5)
    assert found.count(b"\n\n") == 1
    assert found.startswith(b"event: delta\nid: 5\ndata: ")


def test_too_many_listeners_are_refused(training: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_LISTENERS", 0)
    assert get(port, f"/api/live?run={describe(training).id}").code == 503
