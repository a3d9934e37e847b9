from __future__ import annotations

import pytest
from rule_rows import case_of, every_row

from safelight.config.resolve import types_of_fields
from safelight.diagnosis.advice import for_other_loop
from safelight.diagnosis.doctor import examine
from safelight.diagnosis.finding import Fix
from safelight.diagnosis.rules import RULES


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            "Return to the last good checkpoint, lower optimizer.lr, lengthen optimizer.warmup.",
            "Return to the last good checkpoint, lower the learning rate, lengthen the warm-up.",
        ),
        ("optimizer.weight_decay 0.01 or less.", "A weight decay of 0.01 or less."),
        ("torch.no_grad() around it, or optimizer.lr 0.", "torch.no_grad() around it, or the learning rate 0."),
        ("Shuffle the images.", "Shuffle the images."),
        (
            "Check the images and timesteps that the event names.",  # there is no such event in a watched loop
            "Check the images and timesteps of that step.",
        ),
        ("clipping.kind adaptive; check them.", "Clip gradients by their norm; check them."),
    ],
)
def test_settings_become_words(ours: str, theirs: str) -> None:
    assert for_other_loop(Fix(ours, {"optimizer.lr": 0.1}, "unsafe")) == Fix(theirs, {}, "unsafe")


def settings_in(text: str) -> list[str]:
    return [name for name in (*types_of_fields(), "--heal", "--set") if name in text]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_no_rule_tells_another_loop_of_our_settings(rule: object) -> None:
    assert settings_in(for_other_loop(Fix(rule.fix)).text) == []  # pyright: ignore[reportAttributeAccessIssue]


def test_no_finding_of_a_watched_loop_tells_of_our_settings() -> None:
    for given in every_row():
        if not given.settings and not given.wrong:
            for finding in examine(case_of(given)):
                assert settings_in(finding.fix.text) == []
                assert finding.fix.set == {}


def test_our_own_runs_keep_them() -> None:
    named = [
        finding.fix
        for given in every_row()
        if given.settings and not given.wrong
        for finding in examine(case_of(given))
    ]
    assert any(fix.set for fix in named)
    assert any(settings_in(fix.text) for fix in named)
