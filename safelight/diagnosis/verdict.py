"""The verdict on a run in words: what is wrong, what could be looked at, and what the model is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from safelight.diagnosis.coverage import Coverage
from safelight.diagnosis.run_history import ReadingSource
from safelight.vocabulary import SKILL_EMA, SKILL_RAW
from safelight.words import lower_first

LINEAR = 1.0  # the skill of the best linear filter
KEPT_SKILL_SHARE = 0.8  # of the best skill of the run; a healthy one keeps more than 0.95 of it
MAX_SUMMARY_LENGTH = 220  # characters of a summary


class FindingLike(Protocol):
    """A finding, as far as the verdict needs it."""

    @property
    def severity(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def summary(self) -> str: ...
    @property
    def over(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class SkillSummary:
    """What the model can do on images of the training set: see `yardstick.skill`."""

    latest: float
    best: float
    """The highest of the run."""

    @property
    def is_ruined(self) -> bool:
        return self.latest < KEPT_SKILL_SHARE * self.best or self.latest < 0

    def words(self) -> str:
        if self.latest < 0:
            filtered = "a filter that knows only the mean image and one variance"
            return f"The model is worse than {filtered} (skill {self.latest:.2f})."
        if self.is_ruined:
            return f"The model has lost what it could do (skill {self.latest:.2f}, it had {self.best:.2f})."
        if self.latest < LINEAR:
            return f"The model is not as good as a linear filter yet (skill {self.latest:.2f} of 1): train longer."
        return f"The model is better than the best linear filter (skill {self.latest:.2f})."


def skill_summary(readings: ReadingSource) -> SkillSummary | None:
    """The skill of the EMA where it was measured last; None if it was not. That of the raw weights if there is no EMA,
    or one with a memory so long that it knows nothing yet."""
    ema, raw = (readings.raw(signal.name)[1] for signal in (SKILL_EMA, SKILL_RAW))
    knows_nothing = len(ema) > 0 and len(raw) > 0 and ema[-1] < 0 < raw[-1]
    skills = raw if knows_nothing or not len(ema) else ema
    return SkillSummary(float(skills[-1]), float(skills.max())) if len(skills) else None


def verdict(
    findings: Sequence[FindingLike], coverage: Coverage, skill: SkillSummary | None = None, *, watched: bool
) -> str:
    """A few sentences, always with how many rules could look. `watched`: a loop that could pass more. “Healthy” takes a
    skill to show for it."""
    open_ones = [each for each in findings if each.over is None and each.severity != "info"]
    if open_ones:
        worst = shorten(open_ones[0].summary)
        lost = skill is not None and skill.is_ruined and "skill" not in worst
        parts = [f"{_count(open_ones)}: {worst}", *([skill.words()] if skill is not None and lost else [])]
        return " ".join([*parts, coverage.sentence()])
    past = [each for each in findings if each.over is not None and each.severity != "info"]
    found = [_past(past, skill), coverage.sentence()] if past else [f"Nothing was found by {coverage.words()}."]
    if skill is None:
        parts = found
    elif any(each.severity == "error" for each in past):
        parts = [found[0], skill.words(), *found[1:]]
    elif skill.latest >= LINEAR and not skill.is_ruined:
        parts = [f"Healthy: {lower_first(skill.words())}", *found]
    else:
        parts = [*found, skill.words()]
    if watched and (advice := coverage.advice()) is not None:
        parts.append(advice.words())
    return " ".join(parts)


def _count(findings: Sequence[FindingLike]) -> str:
    errors = sum(each.severity == "error" for each in findings)
    counts = ((errors, "error"), (len(findings) - errors, "warning"))
    return ", ".join(f"{number} {word}{'s' * (number != 1)}" for number, word in counts if number)


def _past(findings: Sequence[FindingLike], skill: SkillSummary | None) -> str:
    """What ended keeps its line."""
    first, last = min(each.step for each in findings), max(each.over or 0 for each in findings)
    recovered = ""
    if skill is not None and any(each.severity == "error" for each in findings):
        recovered = ", never recovered" if skill.is_ruined or skill.latest < LINEAR else ", recovered"
    return f"{_count(findings)}, steps {first:,} to {last:,}{recovered}: {shorten(findings[0].summary)}"


def shorten(text: str) -> str:
    """For a sentence that names a finding: as many whole sentences as there is room for, or clauses."""
    if len(text) <= MAX_SUMMARY_LENGTH:
        return text
    end = text.rfind(". ", 0, MAX_SUMMARY_LENGTH)
    if end > 0:
        return text[: end + 1]
    clause = text.rfind(", ", 0, MAX_SUMMARY_LENGTH)
    return f"{text[: clause + 1]} …" if clause > 0 else text[: MAX_SUMMARY_LENGTH - 1].rstrip() + "…"
