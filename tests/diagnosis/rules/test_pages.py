"""The pages of all rules: whole, with names that exist; and every rule fires in some row."""

from __future__ import annotations

import re

from rule_rows import case_of, every_row, fires_in

from safelight.config.resolve import types_of_fields
from safelight.diagnosis import rules
from safelight.diagnosis.doctor import examine
from safelight.diagnosis.rules import RULES


def test_every_rule_fires_in_some_row_and_rows_name_only_rules() -> None:
    assert {rule.cause for rule in RULES} == fires_in(every_row())


def test_rows_have_names_of_their_own() -> None:
    names = [each.name for each in every_row()]
    assert sorted(set(names)) == sorted(names)


def test_a_family_of_codes_has_one_file() -> None:
    families = [{rule.code[:3] for rule in module.RULES} for module in vars(rules).values() if hasattr(module, "RULES")]
    assert len(families) > 15
    assert sum(map(len, families)) == len(set.union(*families))


def test_codes_and_causes_are_unique_and_pages_are_whole() -> None:
    assert len({rule.code for rule in RULES}) == len({rule.cause for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"[A-Z]{3}\d{3}", rule.code)
        for text in (rule.what, rule.why, rule.fix):
            assert text.endswith("."), rule.code
        for text in (rule.similar, rule.limits):  # nothing, where nothing looks like it
            assert text == "" or text.endswith("."), rule.code


def test_words_have_one_space_between_them() -> None:
    for rule in RULES:
        for text in (rule.title, rule.what, rule.why, rule.similar, rule.limits, rule.fix):
            assert not re.search(r"\s{2}|\n", text), (rule.code, text)


SUBSYSTEMS = (
    "data", "scale", "conditioning", "schedule", "timesteps", "forward", "target", "loss", "model", "optimizer", "lr",
    "ema", "mode", "precision", "clipping", "accumulation", "distributed", "checkpoint", "sampler", "evaluation",
    "generalisation", "system",
)  # fmt: skip


def test_causes_begin_with_a_subsystem_and_are_explained_by_what_exists() -> None:
    causes = [rule.cause for rule in RULES]
    for rule in RULES:
        assert rule.cause.partition(".")[0] in SUBSYSTEMS
        for start in rule.explained_by.split():
            assert start == "*" or any(cause.startswith(start) for cause in causes), (rule.code, start)


def named_in(text: str) -> set[str]:
    """Codes and causes."""
    return {
        *re.findall(r"\b[A-Z]{3}\d{3}\b", text),
        *re.findall(rf"\b(?:{'|'.join(SUBSYSTEMS)})\.[a-z]+(?:-[a-z]+)*\b(?!\()", text),  # not model.eval()
    }


def test_texts_name_only_what_exists() -> None:
    known = {name for rule in RULES for name in (rule.code, rule.cause)} | set(types_of_fields())
    wrong = {}
    for rule in RULES:
        names = named_in(" ".join((rule.what, rule.why, rule.similar, rule.limits, rule.fix)))
        if strange := {name for name in names if name not in known}:
            wrong[rule.code] = strange
    assert wrong == {}


def test_fixes_are_settings() -> None:
    for given in every_row():
        if not given.wrong:
            for finding in examine(case_of(given)):
                assert finding.fix.set.keys() <= types_of_fields().keys()
