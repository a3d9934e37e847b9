"""Which findings of all rules are reported, in which order; and the page of a rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from histories import HEALTHY, LABELS, Event, Series, checks
from loss_curves import healthy_curve, rising, spiked
from rule_rows import HEALTHY_ROWS, Row, case_of, check_row, every_row, parameters

from safelight.diagnosis.doctor import CONSEQUENCE_LAG, diagnose, examine, explain
from safelight.diagnosis.finding import Evidence, Severity
from safelight.diagnosis.rule import Detection, Rule
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory
from safelight.errors import UsageError


@pytest.mark.parametrize("given", parameters(HEALTHY_ROWS))
def test_nothing_is_found_in_a_healthy_run(given: Row) -> None:
    check_row(given)


def row_of(name: str) -> Row:
    return next(each for each in every_row() if each.name == name)


def causes_of(series: Series, *events: Event) -> list[str]:
    return [finding.cause for finding in examine(RunHistory(InMemoryReadings(HEALTHY | series, events)))]


@pytest.mark.parametrize(
    ("name", "step", "over", "severity"),
    [
        ("one refused update", 40, 41, "warning"),
        ("stopped", 120, 122, "error"),
        ("starved", 32, None, "warning"),
        ("one process drifts", 128, None, "error"),
        ("a drift that was mended", 64, 128, "error"),
        ("a straggler", 0, None, "warning"),
        ("copies", 127, None, "warning"),
        ("halved without end", 96, None, "error"),
        ("another table", 0, None, "error"),
        ("another table for a while", 2, 4, "error"),
        ("other images from step 80 on", 80, None, "warning"),
        ("a sentinel that stands still late", 90, None, "error"),
        ("too high", 16, None, "error"),
        ("a jump", 60, None, "warning"),
        ("over too early", 60, None, "warning"),
        ("diverged", 62, None, "error"),
        ("a batch that kicks", 60, None, "warning"),
    ],
)
def test_since_when_and_whether_it_is_over(name: str, step: int, over: int | None, severity: str) -> None:
    [finding] = examine(case_of(row_of(name)))
    assert (finding.step, finding.over, finding.severity) == (step, over, severity)


def test_what_is_over_comes_last_and_errors_come_first() -> None:
    series = row_of("another table for a while").series | row_of("starved").series | row_of("the sign is turned").series
    assert causes_of(series) == ["loss.sign", "system.starved-loader", "forward.other-schedule"]


@pytest.mark.parametrize(
    ("cause", "consequence"),
    [
        ("a batch that is not finite", "a foreign loop"),
        ("the sign is turned", "a gradient of something else, and more"),
        ("[0, 255]", "too loud"),
        ("another model", "an average that stands still"),
        ("tanh at the end", "too high"),
        ("a part of the network is ignored", "a part without gradient"),
        ("too high", "diverged"),  # a star: yields to whatever is found
        ("the same batch", "eight images"),
        ("zeros everywhere", "blind to the timestep"),
    ],
)
def test_what_follows_from_another_finding_is_not_reported(cause: str, consequence: str) -> None:
    more = {
        "a gradient of something else, and more": checks(replay__cosine=[-1.0, 0.02, 0.02]),
        "a part of the network is ignored": LABELS | checks(network__label_response=0),
    }
    found = [more[name] if name in more else row_of(name).series for name in (consequence, cause)]
    events = [event for name in (consequence, cause) if name not in more for event in row_of(name).events]
    alone = causes_of(found[0], *events)
    assert alone, "the control: by itself the consequence is reported"
    reported = causes_of(found[0] | found[1], *events)
    assert len(reported) == 1
    assert reported == causes_of(found[1])


def rule(
    cause: str, step: int | None, *explained_by: str, severity: Severity = "error", ended_at: int | None = None
) -> Rule:
    """One that says the same of every history; nothing where `step` is None."""

    def detect(_: RunHistory) -> Detection | None:
        evidence = (Evidence(cause, 1.0),)
        return None if step is None else Detection(step, f"{cause}.", evidence, severity=severity, ended_at=ended_at)

    return Rule(cause, cause, "", "", "", "Fix it.", detect, explained_by=" ".join(explained_by))


@pytest.mark.parametrize(
    ("rules", "reported"),
    [
        ([rule("a.x", 0), rule("b.y", 0)], "a.x b.y"),
        ([rule("a.x", 0), rule("b.y", 0, "a.")], "a.x"),
        ([rule("a.x", 0), rule("b.y", 0, "a.z")], "a.x b.y"),
        ([rule("a.x", None), rule("b.y", 0, "a.")], "b.y"),
        ([rule("a.x", 9), rule("b.y", 40, "a.")], "a.x"),
        ([rule("a.x", 40 + CONSEQUENCE_LAG), rule("b.y", 40, "a.")], "a.x"),
        ([rule("a.x", 41 + CONSEQUENCE_LAG), rule("b.y", 40, "a.")], "b.y a.x"),  # what came later explains nothing
        ([rule("a.x", 0, severity="info"), rule("b.y", 0, "a.")], "b.y a.x"),
        ([rule("a.x", 0), rule("b.y", 0, "*")], "a.x"),
        ([rule("a.x", 0, "*"), rule("b.y", 0, "*")], "a.x b.y"),  # nothing that yields to all explains another such
        ([rule("a.x", 0, "b."), rule("b.y", 0, "a.")], "a.x"),
        ([rule("a.x", 0, "*"), rule("b.y", 0, "a.")], "a.x"),
        ([rule("a.x", 0, "a.")], "a.x"),  # itself is no reason
        ([rule("a.x", 0, "b."), rule("b.y", 0, "c."), rule("c.z", 0)], "c.z"),  # a chain has one end
        # what ended explains what began with it, and nothing that came after it and is there still
        ([rule("a.x", 0, ended_at=9), rule("b.y", 9 + CONSEQUENCE_LAG, "a.")], "a.x"),
        ([rule("a.x", 0, ended_at=9), rule("b.y", 10 + CONSEQUENCE_LAG, "a.")], "b.y a.x"),
        ([rule("a.x", 0, ended_at=9), rule("b.y", 10 + CONSEQUENCE_LAG, "a.", ended_at=300)], "a.x"),
        ([rule("generalisation.x", 0, ended_at=9), rule("generalisation.y", 5, "generalisation.x")],
         "generalisation.y generalisation.x"),
        ([rule("generalisation.x", 0), rule("generalisation.y", 5, "generalisation.x")], "generalisation.x"),
    ],
)  # fmt: skip
def test_consequences(rules: list[Rule], reported: str) -> None:
    found = examine(RunHistory(InMemoryReadings({})), tuple(rules))
    assert [finding.cause for finding in found] == reported.split()


@pytest.mark.parametrize(
    ("rules", "reported"),
    [
        # what has become of the run is not hidden by a milder cause: that is as severe, and says so
        ([rule("a.x", 0, severity="warning"), rule("b.y", 5, "*")], ("a.x", "error", "a.x. b.y.")),
        ([rule("a.x", 0, severity="warning"), rule("b.y", 5, "*", severity="warning")], ("a.x", "warning", "a.x.")),
        ([rule("a.x", 0, severity="warning"), rule("b.y", 5, "*", ended_at=9)], ("a.x", "warning", "a.x.")),
        ([rule("a.x", 0), rule("b.y", 5, "*")], ("a.x", "error", "a.x.")),
        # another name for the same is hidden
        ([rule("a.x", 0, severity="warning"), rule("b.y", 5, "a.")], ("a.x", "warning", "a.x.")),
        # a warning that the error explains as well is only a sign of it
        ([rule("a.x", 0, "b.", severity="warning"), rule("b.y", 5, "*")], ("b.y", "error", "b.y.")),
        # it ended, and the run has not recovered
        (
            [rule("a.x", 0, severity="warning", ended_at=3), rule("b.y", 5, "*")],
            ("a.x", "error", "The run has not recovered from steps 0 to 3: a.x. b.y."),
        ),
    ],
)
def test_what_has_become_of_the_run_is_not_hidden(rules: list[Rule], reported: tuple[str, Severity, str]) -> None:
    [finding] = examine(RunHistory(InMemoryReadings({})), tuple(rules))
    assert (finding.cause, finding.severity, finding.summary) == reported
    assert finding.over is None


@pytest.mark.parametrize("names", [("diverged", "a foreign loop"), ("too much decay", "too high")])
def test_two_findings_are_not_none(names: tuple[str, str]) -> None:
    rows = [row_of(name) for name in names]
    assert causes_of(rows[0].series | rows[1].series, *rows[0].events, *rows[1].events)


def test_a_rule_that_breaks_is_reported_and_the_others_are_checked() -> None:
    def break_down(_: RunHistory) -> None:
        raise ZeroDivisionError("oh")

    broken = replace(RULES[0], detect=break_down)
    found = examine(case_of(row_of("a part without gradient")), (broken, *RULES[1:]))
    assert [finding.cause for finding in found] == ["model.no-gradient", "data.rule-broken"]
    assert "ZeroDivisionError: oh" in found[1].summary


def test_a_page_is_found_by_code_or_cause() -> None:
    assert explain("los001").cause == explain("loss.nonfinite").cause == "loss.nonfinite"
    with pytest.raises(UsageError, match=r"no finding or symptom 'LOS01'.*LOS001"):
        explain("LOS01")


@pytest.mark.parametrize(
    ("make", "causes"),
    [
        (lambda losses: losses, []),
        (lambda losses: list(map(float, losses)), []),
        (lambda losses: np.where(np.arange(len(losses)) == 50, np.nan, losses), ["loss.nonfinite"]),
        (spiked, ["loss.spike"]),
        (rising, ["loss.rise"]),
        (lambda losses: losses * np.where(np.arange(len(losses)) > 300, 1000.0, 1.0), ["loss.diverged"]),
    ],
)
def test_a_list_of_losses_is_judged_and_coverage_is_stated(make: Any, causes: list[str]) -> None:
    found = diagnose(losses=make(healthy_curve(7, steps=400, batch=64)))
    assert [finding.cause for finding in found] == causes
    assert 5 < found.coverage.looked < found.coverage.rules
    assert causes or f"the {found.coverage.looked} of {found.coverage.rules} rules" in found.verdict
    assert "`watch" not in found.verdict, "there is no watch that more could be passed to"


def test_whether_the_loss_still_falls_and_a_longer_run_is_advised_only_where_nothing_is_wrong() -> None:
    falls = 0.1 + 20 / (20 + np.arange(600.0))
    found, ill = diagnose(losses=falls), diagnose(losses=[*falls[:-1], np.nan])
    assert str(found.progress) == "Loss still falling at all noise levels: train longer."
    assert [band.state for band in found.progress.bands] == ["falling"]
    assert (len(ill), str(ill.progress)) == (1, "Loss still falling at all noise levels.")


@pytest.mark.parametrize("losses", [[], [[1.0], [2.0]], ["a", "b"], "ab"])
def test_losses_that_are_none_are_refused(losses: Any) -> None:
    with pytest.raises(UsageError, match="losses"):
        diagnose(losses=losses)


def test_either_a_run_or_losses() -> None:
    for given in ({}, {"run": "runs/x", "losses": [1.0]}):
        with pytest.raises(UsageError, match="either"):
            diagnose(**given)
