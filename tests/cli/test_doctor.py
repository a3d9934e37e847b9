"""doctor and explain, as a person types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import safelight
from safelight.cli import main


def test_nothing_is_found_in_a_healthy_run_but_that_it_is_short(
    trained_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", str(trained_run)]) == 0
    printed = capsys.readouterr().out
    assert "1 warning: The run ended after 6 steps" in printed
    assert "\nProgress: " in printed
    assert main(["doctor", str(trained_run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [finding["cause"] for finding in found["findings"]] == ["loss.undertrained"]
    assert found["coverage"]["missing"] == []
    assert 40 < found["coverage"]["looked"] < found["coverage"]["rules"]
    assert "It is undertrained." in found["verdict"]
    assert found["progress"].keys() == {"sentence", "signal", "bands", "learning_rate"}
    assert [finding.code for finding in safelight.diagnose(trained_run)] == ["LEA003"]


def test_an_average_that_is_too_long_is_named(
    train_tiny: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = train_tiny("long", **{"ema.kind": "exponential", "ema.warmup": False, "ema.decay": 0.8})
    assert main(["doctor", str(run), "--json"]) == 0
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert finding.keys() >= {
        "code",
        "cause",
        "subsystem",
        "severity",
        "step",
        "confidence",
        "summary",
        "evidence",
        "fix",
    }
    assert (finding["cause"], finding["subsystem"], finding["severity"]) == ("ema.too-long", "ema", "warning")
    assert finding["fix"] == {
        "text": "Let the EMA grow with the run.",
        "set": {"ema.kind": "power"},
        "safety": "safe",
    }
    assert main(["doctor", str(run)]) == 0
    letter = capsys.readouterr().out
    assert "EMA001 ema.too-long, since step 0" in letter
    assert "--set ema.kind=power" in letter


def test_a_watched_loop_is_diagnosed_while_it_runs(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    other = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    whole = torch.nn.ModuleDict({"model": model, "other": other})
    watch = safelight.watch(whole, optimizer, run=tmp_path / "run")
    for _ in range(12):
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(loss)
    [finding] = watch.findings
    assert finding.cause == "model.no-gradient"
    assert "other" in finding.summary
    watch.close()
    assert [finding.cause for finding in watch.findings] == ["model.no-gradient"]
    assert [finding.cause for finding in safelight.diagnose(tmp_path / "run")] == ["model.no-gradient"]


MODULE = """
import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.time = nn.Linear(16, 16), nn.Embedding(100, 16)

    def forward(self, x, t):
        return self.body(x + self.time(t) * SEES)


SEES = 1.0


def make():
    torch.manual_seed(0)
    draw = torch.rand(16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return {"model": Denoiser(), "process": torch.linspace(0.999, 0.001, 100), "batch": draw, "memory": False}


def blind():
    global SEES
    SEES = 0.0
    return make()


def wrong():
    return make() | {"modle": 1}


def number():
    return 3


def broken():
    return 1 / 0
"""


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_code_{tmp_path.name.replace('-', '_')}"  # a module is imported once in a process
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return name


def test_a_model_of_ones_own_is_shown_in_numbers(own_code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--module", f"{own_code}:make"]) == 0
    printed = capsys.readouterr().out
    assert "norm of body" in printed
    assert "Nothing was found" in printed
    assert main(["doctor", "--module", f"{own_code}:blind", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert "MOD007" in [finding["code"] for finding in found["findings"]]
    assert {row["state"] for row in found["rows"]} == {"ok", "finding", "not looked at", "outside"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--module", "{}:wrong"], "modle"),
        (["--module", "{}:number"], "returned a int"),
        (["--module", "{}:broken"], "ZeroDivisionError"),
        (["--module", "{}:nothing"], "has no function"),
        (["--module", "no_such_module_of_ours:make"], "No module named"),
        (["--module", "{}"], "module:function"),
        (["digits", "--module", "{}:make"], "leave out"),
        ([], "Name a run"),
    ],
)
def test_what_is_no_model_of_ones_own_is_said(
    words: list[str], said: str, own_code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *(word.format(own_code) for word in words)]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


# --- a preflight ----------------------------------------------------------------------------------------------------

SMALL = (
    "model.widths=[8]", "model.layers=1", "model.attention=[]", "model.norm_groups=4", "train.batch_size=8",
    "model.conditional=false",
)  # fmt: skip
PREFLIGHT = ["doctor", "digits", *(word for setting in SMALL for word in ("--set", setting))]


def test_a_preflight_shows_its_numbers_where_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(PREFLIGHT) == 0
    printed = capsys.readouterr().out
    table, _, rest = printed.partition("\n\n")
    assert {line.split()[0] for line in table.splitlines() if line[0] != " "} == {
        "output", "gradients", "timesteps", "schedule", "images", "samples", "optimizer",
    }  # fmt: skip
    assert "  finding" not in table
    assert rest.startswith("digits\nNothing was found by the ")


def test_a_preflight_marks_the_numbers_of_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PREFLIGHT, "--set", "optimizer.lr=50", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert "LRA001" in [each["code"] for each in found["findings"]]
    marked = [row for row in found["rows"] if row["state"] == "finding"]
    assert any("LRA001" in row["note"] for row in marked), marked
    assert main([*PREFLIGHT, "--set", "optimizer.lr=50", "--json", "--ignore", "LRA001"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row for row in found["rows"] if row["state"] == "finding"] == []
