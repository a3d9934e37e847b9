"""Runs as OpenMetrics text: every line as the format wants it, and nothing that is not known."""

from __future__ import annotations

import re
from pathlib import Path

from folders import FINDING, make_run
from serving import get, served

from safelight.pages.server.openmetrics import CONTENT_TYPE, openmetrics

SAMPLE = re.compile(r'safelight_[a-z_]+\{(?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)+\} -?[0-9.e+-]+')


def test_every_line_has_the_format_whatever_a_run_is_called() -> None:
    run = {"id": "a" * 12, "name": 'my "run"\\\n', "state": "live", "step": 3, "loss": float("nan"), "skill": None}
    lines = openmetrics([run | {"distance": [0.5, 0.1, 3], "distance_name": "FID"}]).splitlines()
    assert lines[-1] == "# EOF"
    samples = [line for line in lines if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples), samples
    assert not any(line.startswith(("safelight_loss", "safelight_skill")) for line in lines)
    assert 'safelight_step{run="my \\"run\\"\\\\\\n",id="aaaaaaaaaaaa"} 3' in lines
    assert [line for line in samples if line.startswith("safelight_state") and line.endswith(" 1")] == [
        next(line for line in samples if 'state="live"' in line)
    ]


def test_the_dashboard_serves_them(tmp_path: Path) -> None:
    make_run(tmp_path / "one", findings=(FINDING,), status={"status": "training"})
    with served([tmp_path]) as port:
        answer = get(port, "/metrics")
    assert answer.headers["content-type"] == CONTENT_TYPE
    assert f'code="{FINDING["code"]}"' in answer.body.decode()
    assert "safelight_step{" in answer.body.decode()
