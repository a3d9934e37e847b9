"""Symptoms lead to findings that exist, and the page is what `explain` says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from safelight.config.resolve import types_of_fields
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.symptoms import SYMPTOMS, find_symptoms
from safelight.vocabulary import signal_of
from tools import symptoms_reference

ROOT = Path(__file__).parents[2]


def test_every_code_exists_and_stands_once_in_its_row() -> None:
    codes = {rule.code for rule in RULES}
    for symptom in SYMPTOMS:
        named = symptom.codes.split()
        assert named, symptom.name
        assert set(named) <= codes, symptom.name
        assert max(Counter(named).values()) == 1, symptom.name


def test_no_word_stands_for_two_symptoms() -> None:
    words = [word for symptom in SYMPTOMS for word in symptom.words.split("|")]
    assert [word for word, count in Counter(words).items() if count > 1] == []


def test_most_findings_can_be_reached_from_a_symptom() -> None:
    reached = {code for symptom in SYMPTOMS for code in symptom.codes.split()}
    assert len(reached) > 0.8 * len(RULES)


def test_signals_and_settings_that_are_named_exist() -> None:
    sections = {key.partition(".")[0] for key in types_of_fields()}
    for symptom in SYMPTOMS:
        for word in re.findall(r"`([^`]+)`", f"{symptom.shows} {symptom.do}"):
            key = word.partition("=")[0]
            if key.partition(".")[0] in sections and "." in key:
                assert key in types_of_fields(), f"{symptom.name}: {word}"
            elif re.fullmatch(r"[a-z]+/[a-z_]+", word):
                assert signal_of(word) is not None, f"{symptom.name}: {word}"


@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("nan", "LOS001"), ("NaN loss", "LOS001"), ("exploding", "LRA001"), ("vanishing", "LEA004"),
        ("mode collapse", "DIV001"), ("mode-collapse", "DIV001"), ("blurry", "DIV004"), ("oscillation", "LRA001"),
        ("plateau", "LRA002"), ("oom", "SYS002"), ("out of memory", "SYS002"), ("spikes", "CLI002"),
        ("copies", "GEN001"), ("missing classes", "DIV002"), ("slow", "SYS001"), ("gpu idle", "SYS001"),
        ("overfitting", "GEN004"), ("early", None), ("", None), ("xyzzy", None),
    ],
)  # fmt: skip
def test_words_lead_to_the_right_finding(word: str, first: str | None) -> None:
    found = find_symptoms(word)
    assert (found[0].codes.split()[0] if found else None) == first


def test_a_part_of_a_name_is_enough() -> None:
    assert [symptom.name for symptom in find_symptoms("exploding gradient")] == ["Exploding gradients"]
    assert {symptom.name for symptom in find_symptoms("gradients")} >= {"Exploding gradients", "Vanishing gradients"}


def test_the_page_is_up_to_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "symptoms.md"
    assert symptoms_reference.main(["--check", str(page)]) == 0, f"run: {symptoms_reference.COMMAND}"
    old = tmp_path / "symptoms.md"
    old.write_text(page.read_text(encoding="utf-8").replace("LOS001", "LOS999"), encoding="utf-8")
    assert symptoms_reference.main(["--check", str(old)]) == 1
    assert "out of date" in capsys.readouterr().err
    assert symptoms_reference.main([str(old)]) == 0
    assert symptoms_reference.main(["--check", str(old)]) == 0


@pytest.mark.parametrize("page", ["symptoms.md", "tutorial.md", "commands.md"])
def test_every_code_on_a_page_exists(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = set(re.findall(r"\b[A-Z]{3}\d{3}\b", text))
    assert named, page
    assert named - {rule.code for rule in RULES} == set()
