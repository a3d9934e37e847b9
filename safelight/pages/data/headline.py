"""The run in one sentence: what is wrong with it, or that nothing is and which way it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from safelight.config import Config
from safelight.diagnosis.convergence import progress
from safelight.diagnosis.coverage import coverage
from safelight.diagnosis.goal import find_goal
from safelight.diagnosis.rules.samples import describe_samples
from safelight.diagnosis.run_history import RunHistory
from safelight.diagnosis.verdict import MAX_SUMMARY_LENGTH, SkillSummary, shorten, skill_summary, verdict
from safelight.pages.data.numbers import as_dict, as_int, as_str
from safelight.pages.data.run_state import RunStatus
from safelight.pages.data.trend import best_distance, newest_distance
from safelight.record.history import History


class FindingOnPage(NamedTuple):
    """A finding, as far as the verdict needs it."""

    severity: str
    step: int
    summary: str
    over: int | None


def page_verdict(run_status: RunStatus, history: History | None, findings: Sequence[dict[str, Any]]) -> dict[str, str]:
    """{"tone": good, attention, bad, waiting or ended, "sentence"}."""
    tone, sentence = _judge(run_status, history, findings)
    return {"tone": tone, "sentence": sentence}


def _judge(run_status: RunStatus, history: History | None, findings: Sequence[dict[str, Any]]) -> tuple[str, str]:
    present = [each for each in findings if each["over"] is None]
    if run_status.state == "empty":
        return "waiting", "Nothing has been recorded yet: the first numbers come with the first step."
    step, worst = f"{run_status.step or 0:,}", _worst(present)
    reason = worst or as_str(run_status.facts.get("last_finding"), 200)
    if run_status.state == "crashed":
        return "bad", _crashed(run_status, step)
    if run_status.state == "stopped":
        return "bad", f"Stopped at step {step}: {reason or 'a diagnosis ended it'}"
    if run_status.state == "refused":
        return "bad", f"Not trained: {reason or 'the preflight found an error'}"
    if run_status.state == "stale":
        return "attention", _silent(run_status, step)
    if worst is not None and history is not None:
        return ("bad" if present[0]["severity"] == "error" else "attention"), _verdict(run_status, history, findings)[0]
    if run_status.state == "interrupted":
        return "ended", f"Interrupted at step {step}, everything is saved; `safelight resume` continues it."
    if history is None or not run_status.step:
        return "waiting", "Getting ready: the first numbers come with the first step."
    tone, earned = _earned(run_status, history, findings)
    if run_status.is_over:
        gains = progress(history)
        looks = describe_samples(RunHistory(history)) or ""
        parts = [_finished(run_status, history, step), earned, gains.words() if gains.bands else "", looks]
        return (tone if tone == "attention" else "ended"), " ".join(filter(None, parts))
    return tone, f"{earned} {_direction(history)}".strip()


def _earned(run_status: RunStatus, history: History, findings: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """The tone and the sentence if nothing is open: green takes a model that is better than a linear filter, and no
    error behind it."""
    words, skill = _verdict(run_status, history, findings)
    if skill is None:
        return "waiting", words
    past = any(each["severity"] == "error" for each in findings)
    return ("good" if words.startswith("Healthy") else "attention" if past or skill.is_ruined else "waiting"), words


def _verdict(
    run_status: RunStatus, history: History, findings: Sequence[dict[str, Any]]
) -> tuple[str, SkillSummary | None]:
    """The words of `safelight doctor`, and what the model is worth."""
    watched = run_status.facts.get("kind") == "watched"
    found = [
        FindingOnPage(each["severity"], each["step"], each["summary"] or each["cause"], each["over"])
        for each in findings
    ]
    skill = skill_summary(history)
    run = RunHistory(history, None if watched else Config())  # coverage counts that there is one, not what it says
    accepts_more_inputs = watched and not run_status.facts.get("captured")
    return verdict(found, coverage(run), skill, watched=accepts_more_inputs), skill


def _worst(present: list[dict[str, Any]]) -> str | None:
    """The worst that is true now; remarks are no reason for worry."""
    words = next((each["summary"] or each["cause"] for each in present if each["severity"] != "info"), None)
    return None if words is None else shorten(words)


def _direction(history: History) -> str:
    """Whether training on would pay, and whether samples get better."""
    gains, distance = progress(history), newest_distance(history)
    goal = find_goal(history)
    parts = [gains.words() if gains.bands else "", f"{distance.words()}." if distance is not None else ""]
    return " ".join(filter(None, [*parts, "" if goal is None else goal.words()]))


def _finished(run_status: RunStatus, history: History, step: str) -> str:
    distance, best = newest_distance(history), best_distance(run_status.facts)
    step = f"{step}{_impatience(history)}"
    if best is not None:
        chosen = f"the best checkpoint is that of step {best.step:,}, {best.words()} on fresh noise"
        return f"Finished at step {step}; {chosen}."
    return f"Finished at step {step}" + ("." if distance is None else f": {distance.words()}.")


def _impatience(history: History) -> str:
    """What is said of the length of a run that its patience ended; else nothing."""
    facts = as_dict(next((note.facts for note in history.events("patience", most=1)), None))
    checkpoints = as_int(facts.get("checkpoints"))
    return "" if checkpoints is None else f", after {checkpoints} checkpoints without a lower loss (train.patience)"


def _crashed(run_status: RunStatus, step: str) -> str:
    if run_status.status == "out of memory":
        return f"Out of memory at step {step}. `safelight estimate` reports what fits."
    if run_status.status == "unsaved":
        return f"Not saved at step {step}: make room on the disk, then `safelight resume`."
    error = as_str(run_status.facts.get("error"), MAX_SUMMARY_LENGTH)
    return f"Crashed at step {step}" + (f": {error}" if error else ".")


def _silent(run_status: RunStatus, step: str) -> str:
    if run_status.age is None:
        return f"No heartbeat at step {step}."
    if run_status.age < 120:
        return f"No heartbeat for {run_status.age:.0f} s at step {step}: busy with an evaluation, or killed."
    return f"No heartbeat for {_long(run_status.age)}: probably killed at step {step}; `safelight resume` continues it."


def _long(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
