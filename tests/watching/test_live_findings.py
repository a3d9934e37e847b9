"""A loop that is not ours is diagnosed while it runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DDPMScheduler
from torch import nn

import safelight
from safelight.diagnosis import Finding
from safelight.errors import UsageError
from safelight.observing import live_diagnosis

SCHEDULER = DDPMScheduler(100, beta_schedule="squaredcos_cap_v2")


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time, self.body = nn.Embedding(100, 32), nn.Linear(64 + 32, 64)
        self.out = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([x.flatten(1), self.time(t)], 1)
        return self.out(self.body(joined).relu()).view_as(x)


def train(folder: Path, target: str, steps: int = 200, **more: Any) -> tuple[list[str], int]:
    """An ordinary loop, which declares epsilon; what was said, and after how many steps something was."""
    torch.manual_seed(0)
    model, said, first = Denoiser(), list[str](), steps
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    given = {"schedule": SCHEDULER, "prediction": "epsilon", "say": said.append} | more
    watch = safelight.watch(model, optimizer, run=folder, **given)
    for step in range(steps):
        x0, t = torch.randn(16, 1, 8, 8).clamp(-1, 1), torch.randint(0, 100, (16,))
        noise = torch.randn_like(x0)
        x_t = SCHEDULER.add_noise(x0, noise, t)
        wanted = noise if target == "noise" else SCHEDULER.get_velocity(x0, noise, t)
        pred = model(x_t, t)
        loss = (pred - wanted).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(loss, t=t, x0=x0, noise=noise, x_t=x_t, target=wanted, pred=pred)
        thread = watch._observer._diagnosis._thread  # type: ignore[union-attr]
        if thread is not None:
            thread.join()  # the moment at which a finding is there
        if said and first == steps:
            first = step
    watch.close()
    return said, first


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as a window ends, whatever a diagnosis costs on a busy machine."""
    monkeypatch.setattr(live_diagnosis, "MIN_SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(live_diagnosis, "MAX_TIME_SHARE", float("inf"))
    monkeypatch.setattr("safelight.monitors.reading_buffer.HOST_SECONDS", 0.0)


def test_a_wrong_target_is_reported_while_the_loop_runs(tmp_path: Path) -> None:
    said, first = train(tmp_path / "run", "velocity", 40)
    assert said[0].startswith("Error TAR001 target.other-type")
    assert first < 10
    status = json.loads((tmp_path / "run" / "run.json").read_text())
    assert status["last_finding"] == "target.other-type"


def test_a_right_target_is_not(tmp_path: Path) -> None:
    [verdict], _ = train(tmp_path / "run", "noise", 40)
    assert verdict.startswith("Safelight: Nothing was found by the ")
    assert verdict.endswith(f"More: safelight doctor {tmp_path / 'run'}")


def test_silence_says_what_it_could_not_see(tmp_path: Path) -> None:
    """With the loss alone a wrong target cannot be seen, and nobody calls that healthy."""
    model, said = Denoiser(), list[str]()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    watch = safelight.watch(model, optimizer, run=tmp_path / "run", say=said.append)
    for _ in range(8):
        x0, t = torch.randn(16, 1, 8, 8), torch.randint(0, 100, (16,))
        loss = (model(x0, t) - x0).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(loss)
    words = watch.verdict
    assert [band.state for band in watch.progress.bands] == ["unclear"]
    watch.close()
    assert words in said[-1]
    looked, rules = (int(number) for number in re.findall(r"the (\d+) of (\d+) rules", words)[0])
    assert looked < rules / 2
    assert "Pass x0, noise, x_t, t, target and pred to `watch.step`" in words
    assert "ealthy" not in words


def test_a_listener_may_end_the_loop(tmp_path: Path) -> None:
    class Enough(Exception): ...

    def stop(finding: Finding) -> None:
        raise Enough(finding.cause)

    with pytest.raises(Enough, match=r"target\.other-type"):
        train(tmp_path / "run", "velocity", 40, on_finding=stop)


def test_the_planned_length_and_the_loggers_are_those_of_the_loop(tmp_path: Path) -> None:
    model = Denoiser()
    watch = safelight.watch(model, run=tmp_path / "run", steps=400, loggers=("jsonl",))
    watch.step(torch.tensor(1.0))
    watch.close()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["steps"] == 400
    assert list((tmp_path / "run").glob("*.jsonl"))
    with pytest.raises(UsageError, match="There is no logger 'tensorbored'"):
        safelight.watch(model, run=tmp_path / "other", loggers=("tensorbored",))
