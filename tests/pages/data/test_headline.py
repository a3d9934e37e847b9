"""Every state of a run has its sentence."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from folders import FINDING, make_run

from safelight.diagnosis.doctor import diagnose_run
from safelight.diagnosis.rules import RULES
from safelight.pages.data.headline import page_verdict
from safelight.pages.data.run_list import entry
from safelight.pages.data.run_state import read_status
from safelight.pages.data.runs import describe
from safelight.record.store import RecordWriter
from safelight.run import RunFolder

STATES = [
    ({}, 0, "finished", "ended"),
    ({"status": "training"}, 0, "live", "waiting"),
    ({"status": "training", "kind": "watched"}, 0, "watched", "waiting"),
    ({"status": "training"}, 40, "stale", "attention"),
    ({"status": "training"}, 90_000, "stale", "attention"),
    ({"status": "crashed", "error": "ValueError: no"}, 9, "crashed", "bad"),
    ({"status": "out of memory"}, 9, "crashed", "bad"),
    ({"status": "unsaved"}, 9, "crashed", "bad"),
    ({"status": "interrupted"}, 9, "interrupted", "ended"),
    ({"status": "stopped", "last_finding": "non-finite: loss"}, 9, "stopped", "bad"),
    ({"status": "refused", "last_finding": "data.blank"}, 9, "refused", "bad"),
    ({"status": "ended"}, 9, "finished", "ended"),
    ({"status": "from the future"}, 9, "stopped", "bad"),
]


SAID = {
    "finished": "Finished at step 200",
    "live": "rules that had what they need. Loss still falling at all noise levels: train longer.",
    "watched": "Pass x0, noise, x_t, t, target and pred to `watch.step`",
    "crashed": "at step 200",
    "interrupted": "safelight resume",
    "stopped": "Stopped at step 200",
    "refused": "Not trained: data.blank",
}


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("states") / "run")


@pytest.mark.parametrize(("facts", "age", "state", "tone"), STATES)
def test_every_state_has_its_sentence(ready: Path, facts, age, state, tone, monkeypatch) -> None:
    monkeypatch.setattr("safelight.pages.data.run_state.time", SimpleNamespace(time=lambda: 2e9))
    known = {"status": "finished", "step": 200, "steps": 200, "heartbeat": 2e9 - age}
    (ready / "run.json").write_text(json.dumps(known | facts))
    found = entry(describe(ready))
    assert (found["state"], found["verdict"]["tone"]) == (state, tone)
    if state == "stale":
        words = "No heartbeat for 40 s" if age == 40 else "25 hours"
        assert words in found["verdict"]["sentence"]
    else:
        assert SAID[state] in found["verdict"]["sentence"]


def test_the_verdict_names_the_finding_and_then_health(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", status={"status": "training"}, findings=(FINDING,))
    found = entry(describe(run))
    looked = f"{diagnose_run(run).coverage.looked} of {len(RULES)} rules had what they need."
    assert found["verdict"] == {"tone": "bad", "sentence": f"1 error: {FINDING['summary']} {looked}"}
    assert found["finding"] == {"code": "LRA001", "cause": "lr.too-high", "severity": "error"}
    info = make_run(tmp_path / "c", status={"status": "training"}, findings=(FINDING | {"severity": "info"},))
    assert entry(describe(info))["verdict"]["tone"] == "waiting", "nothing is known of what the model is worth"


@pytest.mark.parametrize(
    ("findings", "skills", "tone", "words"),
    [
        ((), (0.2, 1.4), "good", "Healthy: the model is better than the best linear filter (skill 1.40)."),
        ((), (0.2, 0.4), "waiting", "not as good as a linear filter yet"),
        ((), (1.4, 0.2), "attention", "has lost what it could do"),
        ((FINDING, FINDING | {"over": 90}), (1.4, 0.2), "attention", "1 error, steps 40 to 90, never recovered"),
        ((FINDING, FINDING | {"over": 90}), (0.2, 1.4), "attention", "1 error, steps 40 to 90, recovered"),
    ],
)
def test_green_is_earned(tmp_path: Path, findings, skills, tone, words) -> None:
    run = make_run(tmp_path / "run", status={"status": "training"}, findings=findings)
    record = RecordWriter(run / "record.sqlite", from_step=1000, say=pytest.fail)
    for step, number in enumerate(skills, 1000):
        record.add(step, {"skill/ema": number})
    record.close()
    found = entry(describe(run))["verdict"]
    assert found["tone"] == tone
    assert words in found["sentence"]


def test_a_run_that_ended_says_whether_longer_would_be_better(ready: Path) -> None:
    (ready / "run.json").write_text(json.dumps({"status": "finished", "step": 200, "steps": 200}))
    assert "falling at all noise levels: train longer." in entry(describe(ready))["verdict"]["sentence"]


def test_a_verdict_needs_no_record(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", status={"status": "training", "step": 0})
    assert page_verdict(read_status(RunFolder(run)), None, [])["tone"] == "waiting"
