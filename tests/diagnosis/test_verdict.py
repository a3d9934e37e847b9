"""The verdict as a table: findings, coverage and skill to words."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.diagnosis.coverage import Coverage
from safelight.diagnosis.finding import Finding, Fix, Severity
from safelight.diagnosis.run_history import InMemoryReadings
from safelight.diagnosis.verdict import SkillSummary, shorten, skill_summary, verdict

FULL = Coverage(105, 80, {}, {})
LOOKED = "80 of 105 rules had what they need."
NOTHING = "Nothing was found by the 80 of 105 rules that had what they need."
BLIND = Coverage(
    105, 41, {}, {"TAR001": ("x0", "noise", "target", "t", "process="), "SCA001": ("x0",), "CON001": ("labels",)}
)
GOOD, WEAK, LOST, RUINED = (
    SkillSummary(1.4, 1.45),
    SkillSummary(0.6, 0.6),
    SkillSummary(-0.5, 0.2),
    SkillSummary(0.9, 1.3),
)
ADVICE = "Pass x0, noise, t and target to `watch.step` and process to `safelight.watch`, and 2 more can look."


def finding(severity: Severity = "error", over: int | None = None) -> Finding:
    return Finding("LRA001", "lr.too-high", severity, 16, 1.0, "The rate is too high.", (), Fix("Lower it."), over=over)


@pytest.mark.parametrize(
    ("findings", "coverage", "skill", "watched", "expected"),
    [
        ([finding()], FULL, GOOD, False, f"1 error: The rate is too high. {LOOKED}"),
        ([finding(), finding("warning")], FULL, None, True, f"1 error, 1 warning: The rate is too high. {LOOKED}"),
        ([finding()], FULL, WEAK, False, f"1 error: The rate is too high. {LOOKED}"),
        ([finding()], FULL, LOST, False, "1 error: The rate is too high. "
         f"The model is worse than a filter that knows only the mean image and one variance (skill -0.50). {LOOKED}"),
        ([], FULL, None, False, NOTHING),
        ([finding("info")], FULL, None, False, NOTHING),
        ([], BLIND, None, True, f"Nothing was found by the 41 of 105 rules that had what they need. {ADVICE}"),
        ([], BLIND, None, False, "Nothing was found by the 41 of 105 rules that had what they need."),
        ([], FULL, GOOD, False, f"Healthy: the model is better than the best linear filter (skill 1.40). {NOTHING}"),
        ([], FULL, WEAK, False, "Nothing was found by the 80 of 105 rules that had what they need. "
         "The model is not as good as a linear filter yet (skill 0.60 of 1): train longer."),
        ([], FULL, LOST, False, "Nothing was found by the 80 of 105 rules that had what they need. "
         "The model is worse than a filter that knows only the mean image and one variance (skill -0.50)."),
        ([finding(over=48)], FULL, RUINED, False, "1 error, steps 16 to 48, never recovered: The rate is too high. "
         f"The model has lost what it could do (skill 0.90, it had 1.30). {LOOKED}"),
        ([finding(over=48)], FULL, GOOD, False, "1 error, steps 16 to 48, recovered: The rate is too high. "
         f"The model is better than the best linear filter (skill 1.40). {LOOKED}"),
        ([finding(over=48)], FULL, None, False, f"1 error, steps 16 to 48: The rate is too high. {LOOKED}"),
        ([finding("warning", over=48)], FULL, None, False,
         f"1 warning, steps 16 to 48: The rate is too high. {LOOKED}"),
        ([finding("warning", over=48)], FULL, GOOD, False, "Healthy: the model is better than the best linear filter "
         f"(skill 1.40). 1 warning, steps 16 to 48: The rate is too high. {LOOKED}"),
        ([finding("warning", over=48)], FULL, WEAK, False, f"1 warning, steps 16 to 48: The rate is too high. {LOOKED} "
         "The model is not as good as a linear filter yet (skill 0.60 of 1): train longer."),
        ([finding("info", over=48)], FULL, None, False, NOTHING),
    ],
)  # fmt: skip
def test_the_verdict(
    findings: list[Finding], coverage: Coverage, skill: SkillSummary | None, watched: bool, expected: str
) -> None:
    assert verdict(findings, coverage, skill, watched=watched) == expected


@pytest.mark.parametrize(
    ("length", "kept"), [(220, 220), (221, 101)], ids=["there is room", "the second sentence would be cut"]
)
def test_a_long_summary_ends_with_a_sentence(length: int, kept: int) -> None:
    text = f"{'a' * 100}. {'b' * (length - 103)}."
    assert len(text) == length
    assert shorten(text) == text[:kept]


def test_a_sentence_without_an_end_is_cut() -> None:
    assert shorten(f"{'a' * 100}, {'b' * 200}") == "a" * 100 + ", …"
    assert shorten("a" * 300) == "a" * 219 + "…"


def test_healthy_is_never_said_without_a_skill_to_show_for_it() -> None:
    for skill in (None, WEAK, LOST, RUINED):
        assert "ealthy" not in verdict([], FULL, skill, watched=False)
    assert "ealthy" not in verdict([finding(over=3)], FULL, GOOD, watched=False)


@pytest.mark.parametrize(
    ("ema", "raw", "expected"),
    [
        ((0.25, 0.75), (0.5, 1.25), SkillSummary(0.75, 0.75)),
        ((), (0.5, 1.25), SkillSummary(1.25, 1.25)),  # a loop without an EMA
        ((-9.0, -8.0), (0.5, 1.25), SkillSummary(1.25, 1.25)),  # an EMA that has not moved yet
        ((-9.0, -8.0), (0.5, -1.25), SkillSummary(-8.0, -8.0)),
        ((), (), None),
    ],
)
def test_whose_skill_is_judged(ema: tuple[float, ...], raw: tuple[float, ...], expected: SkillSummary | None) -> None:
    series = {name: (np.arange(len(each)), np.array(each)) for name, each in (("skill/ema", ema), ("skill/raw", raw))}
    assert skill_summary(InMemoryReadings(series)) == expected
