"""`safelight runs`: a line for each, in the order and of the kind that was wanted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import ask, refused
from recorded_runs import make_run

from safelight.files import write_atomically


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("several")
    make_run(top / "alpha", seed=1)
    make_run(top / "inner" / "beta", seed=2, sick=False)
    status = {"status": "crashed", "step": 120, "steps": 300, "created": 2e9}
    write_atomically(make_run(top / "gamma", seed=3) / "run.json", json.dumps(status).encode())
    return top


def names(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    code, out, err = ask(capsys, "runs", *words, "--json")
    assert code == 0, err
    return [run["name"] for run in json.loads(out, parse_constant=pytest.fail)["runs"]]


def test_every_run_has_a_line(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(capsys, "runs", str(top))
    assert code == 0
    rows = {line.split()[0]: line.split() for line in out.splitlines()[1:]}
    assert set(rows) == {"alpha", "inner/beta", "gamma"}
    assert rows["gamma"][1:5] == ["crashed", "120", "of", "300"]
    mean = sum(1 / (step + 1) for step in range(236, 300)) / 64
    assert float(rows["inner/beta"][3]) == pytest.approx(mean, rel=5e-3)  # of the last 64 steps, in three digits


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ["gamma", "alpha", "inner/beta"]),  # only the first has a date
        (("--sort", "name"), ["alpha", "gamma", "inner/beta"]),
        (("--sort", "step", "--find", "a"), ["alpha", "inner/beta", "gamma"]),
        (("--find", "CRASH"), ["gamma"]),
        (("--find", "beta"), ["inner/beta"]),
        (("--find", "nothing"), []),
    ],
    ids=lambda words: " ".join(words),
)
def test_order_and_choice(
    top: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: list[str]
) -> None:
    assert names(capsys, str(top), *words) == expected


def test_no_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "runs", str(tmp_path))[1] == f"No run in {tmp_path}.\n"
    assert "with 'x' in name" in ask(capsys, "runs", str(tmp_path), "--find", "x")[1]


def test_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, 2, ["--sort is 'los'", "Did you mean 'loss'?"], "runs", str(tmp_path), "--sort", "los")
    refused(capsys, 2, ["is no folder"], "runs", str(tmp_path / "none"))
