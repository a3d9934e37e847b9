"""Answers are kept while nothing changes; runs and pictures are searched for once."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from folders import FINDING, make_run
from serving import PATIENCE, get, served, wait_for

from safelight.pages.data.runs import describe
from safelight.pages.server import app
from safelight.pages.server import run_cache as run_cache
from safelight.record.store import RecordWriter


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    make_run(root / "one", findings=(FINDING,), status={"status": "training"})
    make_run(root / "two", config="optimizer:\n  lr: 0.5\ntrain:\n  batch_size: 8\n  steps: 200\n")
    (root / "broken").mkdir()
    (root / "broken" / "record.sqlite").write_bytes(b"nothing" * 1000)
    return root


@pytest.fixture(scope="module")
def run(runs: Path) -> str:
    return describe(runs / "one").id


def test_pictures_are_looked_for_once_and_found_by_their_ids(
    runs: Path, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    original = run_cache.find_pictures
    monkeypatch.setattr(run_cache, "find_pictures", lambda *given: (looks.append(given), original(*given))[1])
    with served([runs]) as port:
        addresses = [each["url"] for each in get(port, f"/api/runs/{run}").json()["pictures"]]
        assert [get(port, address).code for address in addresses * 2] == [200] * len(addresses) * 2
        assert len(looks) == 1
        assert get(port, f"/api/runs/{run}/pictures/{'0' * 16}").code == 404
        assert len(looks) == 2


def test_answers_are_kept_while_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "a")
    asked: list[object] = []
    original = app.series
    monkeypatch.setattr(app, "series", lambda *words: (asked.append(words), original(*words))[1])
    with served([tmp_path]) as port:
        address = f"/api/runs/{describe(run).id}/series?signals=loss/mean"
        first = get(port, address).body
        assert get(port, address).body == first
        assert len(asked) == 1
        record = RecordWriter(run / "record.sqlite", from_step=200, say=print)
        record.add(200, {"loss/mean": 5.0})
        record.close()
        assert json.loads(get(port, address).body)["last"] == 200
        assert len(asked) == 2


def test_the_rules_are_asked_of_a_run_that_ended_and_no_page_waits_for_them(tmp_path: Path, monkeypatch) -> None:
    """What the run told comes at once, what the rules say as soon as they have said it."""
    begun, wait = threading.Event(), threading.Event()

    def slow(run: object) -> list:
        begun.set()
        wait.wait(PATIENCE)
        return [FINDING | {"code": "NEW001"}]

    monkeypatch.setattr(run_cache, "run_rules", slow)
    ended = make_run(tmp_path / "ended", findings=(FINDING,))
    make_run(tmp_path / "training", status={"status": "training"}, findings=(FINDING,))
    with served([tmp_path]) as port:
        address = f"/api/runs/{describe(ended).id}"
        first = get(port, address).json()
        assert [card["code"] for card in first["findings"]] == ["LRA001"]
        assert begun.wait(PATIENCE)
        wait.set()
        wait_for(lambda: get(port, address).json()["version"] != first["version"], "an answer of the rules")
        assert [card["code"] for card in get(port, address).json()["findings"]] == ["NEW001"]
        lines = {run["name"]: run["finding"]["code"] for run in get(port, "/api/runs").json()["runs"]}
        assert lines == {"ended": "NEW001", "training": "LRA001"}


def test_a_run_that_began_a_moment_ago_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of runs is kept for two seconds; whoever asks for a run by its id does not wait for that."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(run_cache, "time", SimpleNamespace(monotonic=lambda: clock.now))
    make_run(tmp_path / "old")
    with served([tmp_path]) as port:
        assert len(get(port, "/api/runs").json()["runs"]) == 1
        address = f"/api/runs/{describe(make_run(tmp_path / 'new')).id}"
        assert get(port, address).code == 404  # anybody may ask for any
        clock.now += run_cache.NEW_SECONDS
        assert len(get(port, "/api/runs").json()["runs"]) == 1
        assert get(port, address).code == 200
