"""The journal, what it changes at a step, and the alarms: plain functions of plain numbers."""

from __future__ import annotations

import math
import random

import pytest

from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.errors import CheckpointError, UsageError
from safelight.healing.alarms import ENOUGH, STORM, SUSTAINED, DivergenceWatch, RecentRange, is_good, is_lost
from safelight.healing.journal import Act, Journal, read_journal
from safelight.healing.rates import choose_cut, longer_warmup
from safelight.healing.replays import Replays
from safelight.healing.step_settings import next_micro_batches, settings_at


def act(kind: str, since: int = 10, undone: int | None = None, **facts: object) -> Act:
    return Act(1, kind, 20, since, "a reason", facts, undone)  # type: ignore[arg-type]


def config(**settings: object) -> Config:
    return resolve(settings={key.replace("__", "."): value for key, value in settings.items()})


def test_without_acts_a_step_is_made_as_the_config_says() -> None:
    found = settings_at(config(train__accumulate=4, train__precision="fp16"), (), 0)
    assert found.optimizer is not None
    assert (found.precision, found.micro_batches, found.quarantined, found.keeps_train_mode) == (
        "fp16",
        4,
        frozenset(),
        False,
    )


EFFECTS = {
    "lower rate": (act("lower-rate", factor=0.5, warmup=None), lambda t: t.optimizer.lr, 1e-3, 5e-4),
    "longer warmup": (act("lower-rate", factor=0.5, warmup=99), lambda t: t.optimizer.warmup, None, 99),
    "quarantine": (act("quarantine", samples=[3, 5]), lambda t: t.quarantined, frozenset(), frozenset({3, 5})),
    "precision": (act("change-precision", to="bf16"), lambda t: t.precision, "fp32", "bf16"),
    "micro-batches": (act("halve-batch", micro_batches=2), lambda t: t.micro_batches, 1, 2),
    "mode": (act("restore-mode"), lambda t: t.keeps_train_mode, False, True),
}


@pytest.mark.parametrize(("done", "look", "before", "after"), EFFECTS.values(), ids=EFFECTS.keys())
def test_an_act_holds_from_its_step_until_it_is_undone(done: Act, look, before: object, after: object) -> None:
    journal = Journal([done])
    seen = {step: look(settings_at(config(), journal.acts, step)) for step in (0, 9, 10, 50)}
    assert seen == {0: before, 9: before, 10: after, 50: after}
    journal.undo(1, 30)
    seen = {step: look(settings_at(config(), journal.acts, step)) for step in (9, 10, 29, 30)}
    assert seen == {9: before, 10: after, 29: after, 30: before}


def test_a_redone_step_changes_nothing_that_comes_after() -> None:
    assert settings_at(config(), [act("redo")], 10) == settings_at(config(), (), 10)


def test_cuts_multiply_and_micro_batches_do_not() -> None:
    acts = [act("lower-rate", factor=0.5, warmup=None), act("lower-rate", factor=0.25, warmup=None)]
    acts += [act("halve-batch", micro_batches=2), act("halve-batch", micro_batches=4)]
    found = settings_at(config(optimizer__lr=1.0), acts, 10)
    assert (found.optimizer.lr, found.micro_batches) == (0.125, 4)


def test_the_journal_comes_back_from_json() -> None:
    journal = Journal()
    journal.write("quarantine", step=4, since=4, reason="bad", facts={"samples": [1]})
    journal.write("lower-rate", step=9, since=4, reason="diverged", facts={"factor": 0.5, "warmup": None})
    journal.undo(1, 7)
    assert read_journal(journal.to_json()).acts == journal.acts
    assert read_journal(None).acts == ()
    assert [each.number for each in journal.of("lower-rate")] == [2]
    assert journal.of("quarantine") == []


@pytest.mark.parametrize("found", [[{"number": 1}], [{"step": 1, "surprise": 2}], 3])
def test_a_journal_that_cannot_be_read_ends_in_words(found: object) -> None:
    with pytest.raises(CheckpointError, match="journal"):
        read_journal(found)


def test_an_unknown_kind_ends_in_words() -> None:
    journal = Journal([act("redo")]).to_json()
    journal[0]["kind"] = "pray"
    with pytest.raises(CheckpointError, match="pray"):
        read_journal(journal)


@pytest.mark.parametrize(
    ("acts", "number", "words"), [(1, 2, "acts 1 to 1"), (0, 1, "Nothing was done"), (1, 0, "1 to 1")]
)
def test_undoing_what_was_not_done_ends_in_words(acts: int, number: int, words: str) -> None:
    journal = Journal([act("redo")][:acts])
    with pytest.raises(UsageError, match=words):
        journal.undo(number, 5)


def test_an_act_is_undone_once() -> None:
    journal = Journal([act("redo")])
    assert "Undone from step 50" in journal.undo(1, 50).describe()
    with pytest.raises(UsageError, match="already"):
        journal.undo(1, 60)


@pytest.mark.parametrize(
    ("losses", "factor"),
    [
        ({0.5: 1.7, 0.25: 0.9, 0.125: 0.5, 0.0625: 0.55}, 0.125),  # a valley
        ({0.5: 0.509, 0.25: 0.505, 0.125: 0.50}, 0.5),  # hardly a difference: the largest
        ({0.5: 0.52, 0.25: 0.505, 0.125: 0.50}, 0.25),
        ({0.5: math.nan, 0.25: math.inf, 0.125: 0.5}, 0.125),
        ({0.5: math.nan, 0.25: math.nan}, 0.25),
    ],
)
def test_the_rate_is_the_largest_that_is_hardly_worse_than_the_best(losses: dict[float, float], factor: float) -> None:
    assert choose_cut(losses) == factor


@pytest.mark.parametrize(
    ("warmup", "step", "steps", "expected"),
    [
        (24, 19, 300, 48),  # within
        (24, 47, 300, 48),  # right after
        (24, 48, 300, None),  # long after
        (0, 3, 300, 48),  # there was none
        (100, 120, 300, 150),  # at most half of the run
        (200, 120, 300, 200),  # never shorter
    ],
)
def test_the_warmup_grows_where_the_run_fell_ill_in_it(
    warmup: int, step: int, steps: int, expected: int | None
) -> None:
    assert longer_warmup(warmup, step, steps) == expected


@pytest.mark.parametrize(("batch", "now", "expected"), [(8, 1, 2), (12, 2, 4), (9, 1, 3), (8, 8, None), (7, 1, 7)])
def test_micro_batches_share_the_batch_evenly(batch: int, now: int, expected: int | None) -> None:
    assert next_micro_batches(batch, now) == expected


def history(count: int, spread: float = 0.1) -> RecentRange:
    usual, draw = RecentRange(), random.Random(0)
    for _ in range(count):
        usual.remember(0.4 * math.exp(draw.gauss(0, spread)), math.exp(draw.gauss(0, spread)))
    return usual


@pytest.mark.parametrize(
    ("usual", "loss", "norm", "odd"),
    [
        (history(64), 0.4, 1e5, True),
        (history(64), 4000.0, 1.0, True),
        (history(64), 0.4, 1e-6, True),
        (history(64), 0.4, 3.0, True),
        (history(64), 0.6, 1.6, False),  # a hard batch
        (history(64, spread=0.6), 0.4, 8.0, False),  # in a run that is like that
        (history(ENOUGH - 1), 0.4, 1e5, False),  # too early to say
        (history(64), 0.0, 1.0, True),
    ],
)
def test_a_spike_is_told_from_the_run_s_own_past(usual: RecentRange, loss: float, norm: float, odd: bool) -> None:
    assert usual.is_odd(loss, norm) == odd


def losses_of(*parts: tuple[int, float]) -> list[float]:
    return [loss for count, loss in parts for _ in range(count)]


@pytest.mark.parametrize(
    ("losses", "alarm"),
    [
        (losses_of((100, 0.4), (60, 2.0)), True),
        (losses_of((100, 0.4), (60, 0.98)), True),  # back where it knew nothing
        (losses_of((20, 1.0), (60, 20.0)), True),  # it never learnt
        (losses_of((300, 0.4)), False),
        (losses_of((100, 0.4), (60, 0.8)), False),  # worse, but still something
        (losses_of((100, 0.4), (3, 5.0), (100, 0.4)), False),  # a spike
        (losses_of((100, 1.0), (100, 1.2)), False),  # data that cannot be learnt
        (losses_of((100, 100.0), (100, 1.0)), False),  # bad initial weights that heal by themselves
        (losses_of((100, 0.4), (60, math.nan)), False),  # refused updates are counted elsewhere
    ],
)
def test_divergence_is_sustained_and_worse_than_knowing_nothing(losses: list[float], alarm: bool) -> None:
    watch = DivergenceWatch()
    alarms = [watch.see(loss, 1.0) for loss in losses]
    assert any(alarms) == alarm


def test_the_alarm_comes_at_the_same_step_after_a_resume() -> None:
    losses, whole = losses_of((40, 0.4), (60, 2.0)), DivergenceWatch()
    first = next(step for step, loss in enumerate(losses) if whole.see(loss, 1.0))
    assert first >= 40 + SUSTAINED - 1
    for cut in (10, 45, first - 1):
        broken = DivergenceWatch()
        assert not any(broken.see(loss, 1.0) for loss in losses[:cut])
        broken = DivergenceWatch(**broken.to_json())
        assert next(step for step, loss in enumerate(losses[cut:], cut) if broken.see(loss, 1.0)) == first


@pytest.mark.parametrize(
    ("loss", "lowest", "lost"),
    [(2.0, 0.4, True), (math.nan, 0.4, True), (0.97, 0.4, True), (0.9, 0.4, False), (1.2, 0.9, False)],
)
def test_the_probe_has_the_last_word(loss: float, lowest: float, lost: bool) -> None:
    assert is_lost(loss, lowest, 1.0) == lost


@pytest.mark.parametrize(
    ("loss", "good"), [(0.4, True), (0.43, True), (0.45, False), (math.nan, False), (math.inf, False), (0.1, True)]
)
def test_good_weights_are_near_the_best(loss: float, good: bool) -> None:
    assert is_good(loss, 0.4) == good


@pytest.mark.parametrize(
    ("steps", "storm"),
    [
        (range(100), True),
        (range(0, 100, 2), True),
        (range(10), False),  # the search for a scale at the start
        (range(0, 1000, 3), False),
        ([*range(8), *range(2000, 2008)], False),
        (range(STORM), True),
        (range(STORM - 1), False),
    ],
)
def test_a_storm_of_overflows_is_half_of_the_steps(steps: range, storm: bool) -> None:
    watch = DivergenceWatch()
    storms = [watch.see_overflow(step) for step in steps]
    assert any(storms) == storm


NAN = math.nan


@pytest.mark.parametrize(
    ("passes", "verdicts"),
    [
        ([(0.4, 1.0)], ["continue"]),  # sound
        ([(0.4, 1e6), (0.4, 1e6)], ["again", "continue"]),  # a hard batch
        ([(0.4, 1e6), (0.4, 1.0)], ["again", "redone"]),  # an error of the machine
        ([(NAN, NAN), (0.4, 1.0)], ["again", "redone"]),
        ([(NAN, NAN), (NAN, NAN)], ["again", "isolate"]),
        ([(0.4, 1e6), (0.4, 1e5), (0.4, 1.0)], ["again", "again", "redone"]),  # two errors in a row
        ([(0.4, 1e6), (0.4, 1e5), (0.4, 1e5)], ["again", "again", "redone"]),  # the first was one, the rest is hard
        ([(0.4, 10.0**n) for n in (6, 7, 8, 9)], ["again", "again", "again", "redone"]),  # it never comes out alike
        ([(0.4, 1e6), (0.4, 1.0005e6)], ["again", "continue"]),  # arithmetic that is not exact
    ],
)
def test_passes_of_a_step_are_told_apart(passes: list[tuple[float, float]], verdicts: list[str]) -> None:
    replays = Replays()
    for _ in range(ENOUGH):
        replays.remember(0.4, 1.0)
    replays.begin()
    assert [replays.judge(*each, finite=math.isfinite(each[1])) for each in passes] == verdicts
