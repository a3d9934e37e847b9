"""The flags of a linter, as a person types them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from safelight.cli import main

MODULE = """
import torch
{comment}
class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, x, t):
        return self.conv(torch.cat([x, (t.float() / 1000)[:, None, None, None].expand_as(x)], 1))

def make():
    images = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return dict(model=Network(), process=torch.linspace(0.005, 0.999, 1000), batch=images, memory=False)
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{k},{'nan' if k > 5 else 1.0},{0.0}\n" for k in range(40))
    (tmp_path / "log.csv").write_text(f"step,loss,lr\n{rows}")
    return "log.csv"


def codes(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [finding["code"] for finding in json.loads(capsys.readouterr().out)["findings"]]


def test_a_log_is_judged(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", log]) == 0
    printed = capsys.readouterr().out
    assert "LRA003" in printed
    assert "Taken: loss as loss, step as step, lr as learning rate." in printed


def test_select_and_ignore(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", log, "--json", "--select", "LOS,lr."]) == 0
    assert codes(capsys) == ["LRA003"]
    assert main(["doctor", log, "--json", "--select", "LOS"]) == 0
    assert codes(capsys) == ["LOS001"]
    assert main(["doctor", log, "--json", "--ignore", "LRA003", "--ignore", "LOS001"]) == 0
    assert codes(capsys) == []
    assert main(["doctor", log, "--ignore", "LRA03"]) == 2
    assert "Did you mean 'LRA003'?" in capsys.readouterr().err
    Path("pyproject.toml").write_text('[tool.safelight]\nignore = ["LRA003"]\n')
    assert main(["doctor", log, "--json"]) == 0
    assert codes(capsys) == ["LOS001"]


def test_every_rule_is_listed(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", log, "--all", "--ignore", "CUR"]) == 0
    printed = capsys.readouterr().out
    assert "found          LRA003  lr.zero" in printed
    assert "explained      LOS001  loss.nonfinite  by LRA003" in printed
    assert "not looked at  CUR001  loss.spike  ignored by --ignore" in printed
    assert "not looked at  LOS002  loss.detached  the log has no gradient/norm" in printed
    assert "not looked at  TAR001  target.other-type  needs the training itself" in printed
    assert main(["doctor", log, "--all", "--json"]) == 0
    rules = json.loads(capsys.readouterr().out)["rules"]
    assert {rule["state"] for rule in rules} == {"found", "explained", "passed", "not looked at"}


def test_a_baseline(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", log, "--write-baseline"]) == 2
    assert "--baseline" in capsys.readouterr().err
    assert main(["doctor", log, "--baseline", "known.json"]) == 2
    assert main(["doctor", log, "--baseline", "known.json", "--write-baseline"]) == 0
    capsys.readouterr()
    assert main(["doctor", log, "--baseline", "known.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["findings"] == []
    assert [each["code"] for each in found["known"]] == ["LRA003"]


def test_sarif(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", log, "--sarif", "-"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [result["ruleId"] for result in printed["runs"][0]["results"]] == ["LRA003"]
    assert main(["doctor", log, "--sarif", "out.sarif"]) == 0
    assert json.loads(Path("out.sarif").read_text()) == printed
    assert main(["doctor", log, "--sarif", "-", "--json"]) == 2
    assert main(["doctor", log, "--sarif", "no/out.sarif"]) == 2


def test_a_model_fails_only_on_what_counts_and_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain_model.py").write_text(MODULE.format(comment=""))
    (tmp_path / "noted_model.py").write_text(MODULE.format(comment="# safelight: ignore=SCH001"))
    command = ["doctor", "--module", "plain_model:make", "--select", "SCH"]
    assert main([*command, "--sarif", "-"]) == 3
    [result] = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "plain_model.py"}, "region": {"startLine": 12}
    }  # fmt: skip
    assert main([*command, "--baseline", "known.json", "--write-baseline"]) == 0
    assert "1 finding of the baseline is still there" in capsys.readouterr().out
    assert main(["doctor", "--module", "noted_model:make", "--select", "SCH"]) == 0


@pytest.mark.parametrize("flag", ["--sarif", "--baseline"])
def test_an_output_replaces_nothing_but_itself(log: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path("run")
    (run / "checkpoints").mkdir(parents=True)
    for name in ("config.yaml", "record.sqlite", "checkpoints/model.safetensors"):
        (run / name).write_bytes(b"old")
    Path("link").symlink_to("run/config.yaml")
    os.mkfifo("pipe")
    own = [] if flag == "--sarif" else ["--write-baseline"]
    for place in ("run/config.yaml", "run/record.sqlite", "run/checkpoints/model.safetensors", "link", "pipe", "run"):
        assert main(["doctor", log, flag, place, *own]) == 2, place
    assert {path.read_bytes() for path in run.rglob("*") if path.is_file()} == {b"old"}
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)
    before = Path(log).read_bytes()
    assert main(["doctor", log, flag, log, *own]) == 2
    assert Path(log).read_bytes() == before
    assert "Traceback" not in capsys.readouterr().err
