"""`safelight settings`: all settings, or those that a word is about."""

from __future__ import annotations

import json

import pytest

from safelight.cli import main
from safelight.config.resolve import types_of_fields


def test_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    listed = capsys.readouterr().out
    assert [key for key in types_of_fields() if f"{key} = " not in listed] == []
    assert main(["settings", "gradient", "clipping"]) == 0
    found = capsys.readouterr().out
    assert found.startswith("clipping.kind = fixed\n")
    assert "clipping.limit = 1" in found
    assert main(["settings", "pin_memory"]) == 0
    assert capsys.readouterr().out == "Batches are always pinned before they are copied to a GPU.\n"


def test_json_and_words_that_nothing_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "batch size", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"][0]["key"] == "train.batch_size"
    assert found["settings"][0]["flag"] == "--batch-size"
    assert found["notes"] == []
    assert main(["settings", "xyzzy"]) == 2
    assert "No setting is about 'xyzzy'." in capsys.readouterr().err
