"""Every address gives what the page expects, with the headers that keep it safe; with a token only to its holder."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
from folders import FINDING, draw_picture, make_run
from serving import Answer, get, served

from safelight.pages.data.runs import describe
from safelight.pages.server import app, statics
from safelight.pages.server import run_cache as run_cache
from safelight.pages.server.access import HEADERS, POLICY

ROUNDED = 0.0005  # seconds: the page has milliseconds


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    make_run(root / "one", findings=(FINDING,), status={"status": "training"})
    make_run(root / "two", config="optimizer:\n  lr: 0.5\ntrain:\n  batch_size: 8\n  steps: 200\n")
    (root / "broken").mkdir()
    (root / "broken" / "record.sqlite").write_bytes(b"nothing" * 1000)
    return root


@pytest.fixture(scope="module")
def port(runs: Path):
    with served([runs]) as found:
        yield found


@pytest.fixture(scope="module")
def run(runs: Path) -> str:
    return describe(runs / "one").id


def test_the_list_has_every_run_also_a_broken_one(port: int) -> None:
    before, found = time.time(), get(port, "/api/runs").json()
    assert before - ROUNDED <= found["time"] <= time.time() + ROUNDED
    assert [run["name"] for run in found["runs"]] == ["broken", "one", "two"]
    one = found["runs"][1]
    assert one["finding"] == {"code": "LRA001", "cause": "lr.too-high", "severity": "error"}
    assert one["thumbnail"]


def test_a_run_its_curves_and_its_pictures(port: int, run: str) -> None:
    found = get(port, f"/api/runs/{run}").json()
    assert found["name"] == "one"
    names = "loss/mean,gradient/norm,loss/nothing"
    curves = get(port, f"/api/runs/{run}/series?signals={names}&first=10&last=99&pixels=40&smooth=5").json()
    assert list(curves["series"]) == ["loss/mean", "gradient/norm"]
    assert (curves["first"], curves["last"]) == (10, 99)
    assert len(curves["series"]["loss/mean"]["smooth"]) == len(curves["series"]["loss/mean"]["x"]) <= 40
    assert curves["clock"]["step"][0] == 0
    assert np.all(np.diff(curves["clock"]["time"]) >= 0)
    heat = get(port, f"/api/runs/{run}/heatmap?pixels=10").json()
    assert len(heat["values"][0]) == 16
    assert get(port, f"/api/runs/{run}/heatmap?of=skill").json()["values"] == []
    for picture in found["pictures"]:
        answer = get(port, picture["url"])
        assert (answer.code, answer.headers["content-type"]) == (200, "image/png")
        assert "immutable" in answer.headers["cache-control"]


def test_a_picture_drawn_again_has_another_id(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    with served([tmp_path]) as port:
        before = get(port, f"/api/runs/{describe(run).id}").json()["pictures"][0]
        again = draw_picture(run, "samples/denoising_00000050.png", 200)
        for path in (again, run / "run.json"):
            os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))  # however coarse the clock of the disk is
        after = get(port, f"/api/runs/{describe(run).id}").json()["pictures"][0]
        assert before["id"] != after["id"]
        assert get(port, before["url"]).code == 404
        assert get(port, after["url"]).code == 200


def test_runs_are_compared(port: int, runs: Path) -> None:
    ids = [describe(runs / name).id for name in ("one", "two")]
    found = get(port, f"/api/compare?runs={','.join(ids)}").json()
    assert found["settings"]["optimizer.lr"][1] == 0.5
    assert [each["id"] for each in found["runs"]] == ids


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("/api/runs/{broken}", 200),
        ("/api/runs/{broken}/series?signals=loss/mean", 422),
        ("/api/runs/{broken}/heatmap", 422),
        ("/api/runs/{broken}/pictures/0123456789abcdef", 422),
        ("/api/delta?run={broken}", 200),
        ("/api/runs/0123456789ab", 404),
        ("/api/runs/{run}/pictures/0123456789abcdef", 404),
        ("/api/nothing", 404),
        ("/api/runs/", 404),
        ("/static/nothing.js", 404),
        ("/favicon.ico", 404),
        ("/api/runs/{run}/series?pixels=0", 400),
        ("/api/compare", 400),
        ("/api/live", 400),
    ],
)
def test_what_cannot_be_is_told_in_words(port: int, run: str, runs: Path, address: str, code: int) -> None:
    answer = get(port, address.replace("{run}", run).replace("{broken}", describe(runs / "broken").id))
    assert answer.code == code
    if code != 200:
        assert answer.json()["error"].endswith((".", ")"))
        assert str(runs) not in answer.body.decode()


def test_every_answer_has_the_headers(port: int, run: str) -> None:
    for address in ("/", "/static/index.html", "/api/runs", "/api/nothing", "/api/runs/zz", f"/api/runs/{run}"):
        answer = get(port, address)
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert "server" not in answer.headers
    assert "unsafe" not in POLICY
    assert "*" not in POLICY


def test_head_gives_the_head_alone(port: int, run: str) -> None:
    for address in ("/", "/api/runs", f"/api/live?run={run}"):
        answer = get(port, address, method="HEAD")
        assert (answer.code, answer.body) == (200, b"")


def test_static_files_are_asked_for_again_only_if_they_changed(port: int) -> None:
    first = get(port, "/")
    assert first.headers["content-type"].startswith("text/html")
    again = get(port, "/", headers=[("If-None-Match", first.headers["etag"])])
    assert (again.code, again.body) == (304, b"")
    kinds = {path.suffix for path in statics.STATIC.rglob("*") if path.is_file()}
    assert kinds <= statics.TYPES.keys()


def test_what_the_page_needs_is_fetched_once_for_each_edition(port: int) -> None:
    needed = re.findall(r'(?:src|href)="(/static/[^"]+)"', get(port, "/").body.decode())
    assert [address.rsplit("/", 1)[1] for address in needed] == ["icon.svg", "app.css", "app.js"]
    for address in needed:
        answer = get(port, address)
        assert answer.code == 200
        assert "immutable" in answer.headers["cache-control"]
        other = get(port, address.replace(statics.edition(), "edition-0123456789abcdef"))
        assert (other.code, other.body, other.headers["cache-control"]) == (200, answer.body, "no-cache")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}", "LOCALHOST:1234"]
)
def test_this_machine_is_answered_by_each_of_its_names(port: int, host: str) -> None:
    """Also at another port: an SSH tunnel may have any."""
    assert get(port, "/api/runs", host=host.replace("{port}", str(port))).code == 200


def test_a_page_of_ours_may_ask_and_a_link_may_lead_here(port: int) -> None:
    same = [("Origin", f"http://localhost:{port}"), ("Sec-Fetch-Site", "same-origin")]
    assert get(port, "/api/runs", headers=same).code == 200
    visit = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]
    assert get(port, "/", headers=visit).code == 200


# With a token


def cookie(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def test_a_token_becomes_a_cookie(runs: Path) -> None:
    with served([runs], token="right") as port:
        assert get(port, "/api/runs").code == 401
        for wrong in (
            "",
            "?token=",
            "?token=wrong",
            "?token=righ",
            "?token=right&token=right",
            "?token=%ff",
            "?Token=right",
        ):
            assert get(port, f"/{wrong}").code == 401
        assert get(port, "/api/runs?token=right").code == 401  # only at the door
        opened = get(port, "/?token=right")
        assert (opened.code, opened.headers["location"]) == (303, "/")
        words = opened.headers["set-cookie"].lower()
        assert "httponly" in words
        assert "samesite=strict" in words
        assert "right" not in words
        kept = [("Cookie", cookie(opened))]
        assert get(port, "/", headers=kept).code == 200
        assert get(port, "/api/runs", headers=kept, host="machine.example:99").code == 200
        assert get(port, "/api/runs", headers=[*kept, ("Origin", "http://evil.example")]).code == 403
        name = cookie(opened).partition("=")[0]
        for value in ("", "right", "x" * 64, cookie(opened).partition("=")[2][:-1] + "g"):
            assert get(port, "/api/runs", headers=[("Cookie", f"{name}={value}")]).code == 401


def test_cookies_of_another_dashboard_do_not_open_this_one(runs: Path) -> None:
    with served([runs], token="one") as port, served([runs], token="two") as other:
        kept = cookie(get(port, "/?token=one"))
        assert get(other, "/api/runs", headers=[("Cookie", kept)]).code == 401
        renamed = re.sub(r"\d+", str(other), kept.partition("=")[0]) + "=" + kept.partition("=")[2]
        assert get(other, "/api/runs", headers=[("Cookie", renamed)]).code == 401


# Errors of ours


def test_an_error_of_ours_is_no_traceback_and_no_end(runs: Path, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret words")

    with served([runs]) as port:
        monkeypatch.setattr(app, "heatmap", broken)
        answer = get(port, f"/api/runs/{run}/heatmap?pixels=77")
        assert answer.code == 500
        assert b"secret" not in answer.whole
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert get(port, "/api/runs").code == 200


def test_a_long_list_is_answered_before_every_record_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        make_run(tmp_path / name)
    with served([tmp_path]) as port:
        monkeypatch.setattr(app, "LIST_SECONDS", -1.0)
        unread = get(port, "/api/runs").json()["runs"]
        assert [each["pending"] for each in unread] == [True, True]
        assert {each["state"] for each in unread} == {"finished"}
        monkeypatch.setattr(app, "LIST_SECONDS", 1e9)
        read = get(port, "/api/runs").json()["runs"]
        assert ["pending" in each for each in read] == [False, False]
        monkeypatch.setattr(app, "LIST_SECONDS", -1.0)
        assert not any("pending" in each for each in get(port, "/api/runs").json()["runs"])  # it is kept
