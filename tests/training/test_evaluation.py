"""Evaluations while training: when they are due, what they record, which one is the best, and that no weight moves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import Crash, Own, Quiet, fingerprints, tiny

from safelight import start
from safelight.checkpoints.folder import steps
from safelight.checkpoints.reader import load
from safelight.checkpoints.snapshot import Snapshot
from safelight.checkpoints.writer import Writer, write
from safelight.diagnosis import diagnose_run
from safelight.evaluate import examination
from safelight.evaluate import features as features_module
from safelight.evaluate.features import Extractor, load_extractor, own_extractor
from safelight.observing import sample_judge
from safelight.observing.sample_judge import SIGNALS, USUAL_EVALUATIONS, SampleJudge
from safelight.record.history import open_history
from safelight.record.reading import read_events, read_signal
from safelight.training import evaluation
from safelight.training.evaluation import Evaluator, evaluation_steps
from safelight.training.state import Counters
from safelight.vocabulary import COPIES, COPIES_CHANCE, DISTANCE, DISTANCE_ERROR, EVALUATION, KERNEL, KERNEL_ERROR

pytestmark = pytest.mark.usefixtures("no_report")

WANTED: dict[str, Any] = {
    "evaluate__every": 4,
    "evaluate__samples": 64,
    "evaluate__components": 8,
    "evaluate__references": 64,
    "sample__count": 8,
    "sample__steps": 2,
}
FULL = {"evaluate__references": 128}  # from 100 on there are all figures
RECORDED = {
    signal.name for signal in (DISTANCE, DISTANCE_ERROR, KERNEL, KERNEL_ERROR, COPIES, COPIES_CHANCE, EVALUATION)
}
RECORDED |= {signal.name for signal in SIGNALS.values()}


class Fields(torch.nn.Module):
    """Sixteen fields of the picture and how much they vary: an eye that costs nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Parameter(torch.randn(16, 24, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fields = torch.nn.functional.adaptive_avg_pool2d(x[:, :1], 4).flatten(1)
        return (fields @ self.mix).tanh()


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another network than the real one, and fewer images to search: what is tested here does not depend on them."""
    eye = own_extractor(Fields(), name="fields", side=8)
    monkeypatch.setattr(sample_judge, "load_extractor", lambda *_, **__: eye)
    monkeypatch.setattr(sample_judge, "MAX_SEARCHED_IMAGES", 150)


def small() -> torch.nn.Module:
    """A single convolution: the same at every start."""
    torch.manual_seed(0)
    return Own()


def train(folder: Path, *, crash_after: int | None = None, model: torch.nn.Module | None = None, **more: Any) -> Quiet:
    terminal = Quiet(crash_after=crash_after)
    config, model = tiny(**WANTED | more), model or small()
    if crash_after is None:
        start.train(config, run=folder, terminal=terminal, model=model)
    else:
        with pytest.raises(Crash):
            start.train(config, run=folder, terminal=terminal, model=model)
    return terminal


def resume(folder: Path, **settings: Any) -> Quiet:
    terminal = Quiet()
    start.resume(folder, terminal=terminal, settings=settings, model=small())
    return terminal


def counters(folder: Path) -> dict[str, Any]:
    return load(folder / "checkpoints" / f"step_{max(steps(folder / 'checkpoints')):08d}").state


def events(folder: Path, kind: str) -> list[tuple[int, dict[str, Any]]]:
    """(completed steps, facts). Events about samples bear the number of the update before them, as readings do."""
    late = kind in ("evaluated", "rescored")
    return [(step + late, facts) for step, _, facts in read_events(folder / "record.sqlite", kind)]


def distances(folder: Path) -> list[tuple[int, float]]:
    return read_signal(folder / "record.sqlite", DISTANCE.name)


def status(folder: Path) -> dict[str, Any]:
    return start.open_run(folder).status()


# When


@pytest.mark.parametrize(
    ("count", "every", "expected"),
    [
        (100, None, {6, 25, 56, 100}),
        (1000, None, {62, 250, 562, 1000}),
        (6, None, {1, 2, 3, 6}),
        (3, None, {1, 2, 3}),
        (1, None, {1}),
        (100, 0, set()),
        (100, 1, set(range(1, 101))),
        (100, 30, {30, 60, 90, 100}),
        (100, 50, {50, 100}),
        (100, 100, {100}),
        (100, 101, {100}),
    ],
)
def test_the_steps_that_are_planned(count: int, every: int | None, expected: set[int]) -> None:
    found = evaluation_steps(tiny(train__steps=count, evaluate__every=every))
    assert found == expected
    if every is None:
        assert len(found) <= USUAL_EVALUATIONS
        assert max(found) == count


def test_a_run_too_short_is_told_once_and_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safelight.training.step_reporter.TrainingSession.seconds", lambda self: (0.1, 1.2))
    terminal = train(tmp_path / "run", evaluate__every=None)
    told = [text for text in terminal.said if "samples are not evaluated" in text]
    assert len(told) == 1
    assert told[0].startswith("Step 1: ")
    assert "5% of the training time (evaluate.budget)" in told[0]
    assert "--evaluate-every N" in told[0]
    [(step, facts)] = events(tmp_path / "run", "evaluation_skipped")
    assert (step, facts) == (1, {"budget": 0.05, "spent": 0.0})
    assert not distances(tmp_path / "run")
    assert not events(tmp_path / "run", "rescored")
    assert status(tmp_path / "run")["status"] == "finished"


def test_a_run_with_time_enough_is_evaluated_without_being_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The near miss: the same run, if a step took a day."""
    monkeypatch.setattr("safelight.training.step_reporter.TrainingSession.seconds", lambda self: (1.0, 1e6))
    terminal = train(tmp_path / "run", evaluate__every=None)
    assert [step for step, _ in events(tmp_path / "run", "evaluated")] == [1, 3, 7, 12]
    assert not any("not evaluated" in text for text in terminal.said)


def test_none_are_made_where_none_are_wanted(tmp_path: Path) -> None:
    terminal = train(tmp_path / "run", evaluate__every=0)
    assert not distances(tmp_path / "run")
    assert not any("valuat" in text for text in terminal.said)
    state = counters(tmp_path / "run")
    assert (state["best_evaluated"], state["evaluation_seconds"]) == (False, 0.0)
    assert state["best_step"] is not None, "the loss of the probe chooses"


# What is left behind


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Quiet]:
    """An undisturbed run that was evaluated after steps 4, 8 and 12. Read it only."""
    folder = tmp_path_factory.mktemp("evaluated") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("safelight.monitors.reading_buffer.HOST_SECONDS", 0.0)
        patch.setattr(sample_judge, "load_extractor", lambda *_, **__: own_extractor(Fields(), name="fields", side=8))
        patch.setattr(sample_judge, "MAX_SEARCHED_IMAGES", 150)
        return folder, train(folder, **FULL)


def test_every_signal_is_recorded_at_the_right_steps(whole: tuple[Path, Quiet]) -> None:
    with open_history(whole[0] / "record.sqlite") as history:
        assert set(history.signals()) >= RECORDED
    for name in RECORDED:
        readings = read_signal(whole[0] / "record.sqlite", name)
        assert [step for step, _ in readings] == [3, 7, 11], name  # of the step just done, as all signals are
        assert all(math.isfinite(value) for _, value in readings), name
    shares = [value for _, value in read_signal(whole[0] / "record.sqlite", EVALUATION.name)]
    assert all(0 < share < 1 for share in shares)


def test_events_say_what_was_found_and_against_what(whole: tuple[Path, Quiet]) -> None:
    folder, _ = whole
    found = events(folder, "evaluated")
    assert [step for step, _ in found] == [4, 8, 12]
    read = dict(distances(folder))
    gaussian, floor, unbiased = (
        dict(read_signal(folder / "record.sqlite", f"quality/{name}"))
        for name in ("gaussian_distance", "real_distance", "unbiased")
    )
    best = 4
    for step, facts in found:
        assert facts["distance"]["value"] == pytest.approx(read[step - 1], rel=1e-6)
        assert facts["distance"]["real"] == pytest.approx(floor[step - 1], rel=1e-6)
        assert facts["unbiased"]["value"] == pytest.approx(unbiased[step - 1], rel=1e-6)
        assert facts["extractor"]["extractor"] == "fields"
        assert (facts["label"], facts["count"], facts["reference_count"]) == ("FD-fields", 64, 128)
        assert facts["copies"]["held_out"] is True
        assert facts["gaussian"] == found[0][1]["gaussian"], "measured once"
        assert facts["gaussian"]["unbiased"]["value"] == pytest.approx(gaussian[step - 1], rel=1e-6)
        if step == 4:
            assert "against" not in facts
            continue
        assert facts["against"]["step"] == best
        assert facts["against"]["better"] == (facts["against"]["p"] <= 0.05)
        best = step if facts["against"]["better"] else best
    assert counters(folder)["best_step"] == best
    [(step, facts)] = events(folder, "rescored")
    assert (step, facts["best_step"], facts["count"]) == (12, best, 64)
    assert 0 < facts["share_of_time"] < 1
    kept = status(folder)["evaluation"]
    assert kept == {
        "step": best,
        "label": facts["label"],
        "distance": facts["distance"]["value"],
        "error": facts["distance"]["error"],
        "real": facts["distance"]["real"],
        "samples": 64,
    }


@pytest.mark.parametrize(("target", "reached"), [(1e6, 4), (1e-6, None)])
def test_a_target_is_recorded_and_when_it_was_reached(
    whole: tuple[Path, Quiet], tmp_path: Path, target: float, reached: int | None
) -> None:
    folder = tmp_path / "run"
    said = train(folder, **FULL, evaluate__target=target).said
    assert status(folder)["evaluation"] == status(whole[0])["evaluation"] | {"target": target, "reached": reached}
    assert dict(read_signal(folder / "record.sqlite", "quality/target_distance")) == pytest.approx(
        {3: target, 7: target, 11: target}
    )
    words = "is not reached" if reached is None else "is reached"
    assert sum(f"the target of {target:g} {words}" in line for line in said) == 3
    found = diagnose_run(folder).samples or ""
    assert ("was reached at step 4." in found) == (reached is not None)
    assert ("was not reached: the lowest was" in found) == (reached is None)


def test_the_last_score_is_of_other_noise(whole: tuple[Path, Quiet]) -> None:
    chosen = dict(distances(whole[0]))
    [(_, facts)] = events(whole[0], "rescored")
    assert not math.isclose(facts["distance"]["value"], chosen[facts["best_step"] - 1], rel_tol=1e-4)


def test_pictures_of_the_closest_pairs(whole: tuple[Path, Quiet]) -> None:
    with open_history(whole[0] / "record.sqlite") as history:
        pictures = history.pictures("closest")
    assert [(picture.step, str(picture.path)) for picture in pictures] == [
        (step, f"samples/closest_{step:08d}.png") for step in (4, 8, 12)
    ]
    for picture in pictures:
        with Image.open(whole[0] / picture.path) as image:
            assert image.size == (picture.width, picture.height)


@pytest.mark.parametrize(("seconds", "is_said"), [(4.0, False), (70.0, True)])
def test_what_an_evaluation_will_take_is_said_before_it(seconds: float, is_said: bool) -> None:
    said: list[str] = []
    evaluator: Any = SimpleNamespace(
        _group=SimpleNamespace(is_main=True), price=lambda: seconds, _say=said.append, _config=tiny(),
        _state=SimpleNamespace(counters=SimpleNamespace(step=4)),
    )  # fmt: skip
    Evaluator.announce(evaluator)
    assert [text.partition(", which takes about ")[2].startswith("70 s") for text in said] == [True] * is_said


def test_the_screen_is_told_in_one_line_each(whole: tuple[Path, Quiet]) -> None:
    said = [text for text in whole[1].said if text.startswith("Step ")]
    lines = [text for text in said if "evaluating" not in text]
    assert [line.split(":")[0] for line in lines] == ["Step 4", "Step 8", "Step 12"]
    assert all("FD-fields " in line and "(N = 64, real images " in line for line in lines)
    assert "better than" not in lines[0]
    assert all("better than step" in line and "(p = " in line for line in lines[1:])
    [best] = [text for text in whole[1].said if text.startswith("Best: step ")]
    assert "on fresh noise" in best


def test_no_step_is_saved_twice_nor_called_skipped_while_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of the two it is depends on how fast the disk is."""
    submit, tried = Writer.submit, list[int]()

    def watch(self: Writer, snapshot: Snapshot, *kept: Any) -> bool:
        if self._folder.name == "checkpoints":
            tried.append(snapshot.step)
        return submit(self, snapshot, *kept)

    monkeypatch.setattr(Writer, "submit", watch)
    train(tmp_path / "run")
    tried += [step for step, _ in events(tmp_path / "run", "checkpoint_skipped")]
    assert sorted(tried) == [4, 8, 12]


def test_a_small_grid_does_not_prevent_the_evaluation(tmp_path: Path) -> None:
    terminal = train(tmp_path / "run", sample__count=4)
    assert not any("could not be made" in text for text in terminal.said)
    assert len(distances(tmp_path / "run")) == 3


def test_the_network_that_comes_with_safelight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_judge, "load_extractor", load_extractor)
    train(tmp_path / "run", evaluate__every=12)
    [(_, facts)] = events(tmp_path / "run", "evaluated")
    assert facts["label"] == "FD-lite0"
    assert facts["extractor"]["extractor"] == "lite0"


# No weight is changed


def test_weights_are_the_same_bytes_with_and_without(tmp_path: Path, whole: tuple[Path, Quiet]) -> None:
    train(tmp_path / "without", evaluate__every=0)
    train(tmp_path / "other", evaluate__every=5, evaluate__samples=33)
    assert fingerprints(whole[0]) == fingerprints(tmp_path / "without") == fingerprints(tmp_path / "other")


def test_an_evaluation_that_touches_a_weight_would_be_noticed(
    tmp_path: Path, whole: tuple[Path, Quiet], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: equal hashes are not equal for want of looking."""
    judge = SampleJudge.judge

    def clumsy(self: SampleJudge, samples: torch.Tensor) -> object:
        for parameter in models[-1].parameters():
            parameter.data.mul_(1 + 1e-6)
        return judge(self, samples)

    models: list[torch.nn.Module] = []
    build = Evaluator.__init__

    def watch(self: Any, session: Any) -> None:
        models.append(session.setup.state.model)
        build(self, session)

    monkeypatch.setattr(Evaluator, "__init__", watch)
    monkeypatch.setattr(SampleJudge, "judge", clumsy)
    train(tmp_path / "run")
    assert fingerprints(tmp_path / "run")["model.safetensors"] != fingerprints(whole[0])["model.safetensors"]


# The best one


def test_the_best_checkpoint_stays_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step 4 is the best because all that follow are ties; with keep_last = 1 nothing else would keep it."""
    same(monkeypatch)
    train(tmp_path / "run", train__steps=16, checkpoint__keep_last=1, checkpoint__every=100)
    state = counters(tmp_path / "run")
    assert (state["best_step"], state["best_evaluated"]) == (4, True)
    assert steps(tmp_path / "run" / "checkpoints") == [4, 16]
    [(_, facts)] = events(tmp_path / "run", "rescored")
    assert facts["best_step"] == 4


def same(monkeypatch: pytest.MonkeyPatch) -> None:
    """All evaluations see the same features, whatever was drawn."""
    numbers = np.random.default_rng(0).normal(size=(64, 24)).astype(np.float32)
    monkeypatch.setattr(SampleJudge, "features", lambda self, samples: numbers)


def test_a_better_one_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the tie: features that come nearer to real ones each time."""
    calls = iter([3.0, 2.0, 1.0, 1.0, 1.0])
    noise = np.random.default_rng(0).normal(size=(64, 24)).astype(np.float32)
    monkeypatch.setattr(SampleJudge, "features", lambda self, samples: self.real.features.mean(0) + next(calls) * noise)
    train(tmp_path / "run", train__steps=16, checkpoint__keep_last=1, checkpoint__every=100)
    assert counters(tmp_path / "run")["best_step"] == 12, "the third is better than the second, the fourth a tie"
    assert steps(tmp_path / "run" / "checkpoints") == [12, 16]
    assert [facts.get("against", {}).get("step") for _, facts in events(tmp_path / "run", "evaluated")] == [
        None, 4, 8, 12
    ]  # fmt: skip


def test_the_best_points_to_a_checkpoint_that_exists(tmp_path: Path) -> None:
    train(tmp_path / "run", checkpoint__keep_last=1, checkpoint__every=5, evaluate__every=6)
    best = counters(tmp_path / "run")["best_step"]
    assert best in steps(tmp_path / "run" / "checkpoints")
    assert best % 6 == 0


def test_the_best_exists_also_where_the_picture_of_pairs_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    same(monkeypatch)
    monkeypatch.setattr(sample_judge, "save_png", full)
    train(tmp_path / "run", checkpoint__every=5, checkpoint__keep_last=1)
    assert counters(tmp_path / "run")["best_step"] in steps(tmp_path / "run" / "checkpoints")


# Resume


def drawn_features(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What `keep` is given: the features of the best."""
    kept: list[np.ndarray] = []
    keep = SampleJudge.keep

    def watch(self: SampleJudge, features: np.ndarray) -> None:
        kept.append(features)
        keep(self, features)

    monkeypatch.setattr(SampleJudge, "keep", watch)
    return kept


@pytest.mark.parametrize("crash_after", [6, 10])
def test_the_best_is_recalled_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: tuple[Path, Quiet], crash_after: int
) -> None:
    kept = drawn_features(monkeypatch)
    train(tmp_path / "run", crash_after=crash_after, **FULL)
    before = counters(tmp_path / "run")
    assert before["best_evaluated"]
    spent = before["evaluation_seconds"]
    assert spent > 0
    last = kept[-1]
    kept.clear()
    resume(tmp_path / "run")
    assert np.array_equal(kept[0], last), "the samples drawn again are the same"
    after = counters(tmp_path / "run")
    assert after["best_step"] == counters(whole[0])["best_step"]
    assert after["evaluation_seconds"] > spent
    assert fingerprints(tmp_path / "run") == fingerprints(whole[0])
    assert distances(tmp_path / "run") == distances(whole[0])
    ours, theirs = (
        [(step, facts.get("against")) for step, facts in events(folder, "evaluated") if step > before["step"]]
        for folder in (tmp_path / "run", whole[0])
    )
    assert ours == theirs


def test_what_was_found_before_a_crash_stays_in_the_record(tmp_path: Path, whole: tuple[Path, Quiet]) -> None:
    train(tmp_path / "run", crash_after=6)
    assert [step for step, _ in events(tmp_path / "run", "evaluated")] == [4]
    resume(tmp_path / "run")
    assert [step for step, _ in events(tmp_path / "run", "evaluated")] == [4, 8, 12]


def test_a_best_drawn_from_other_noise_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: tuple[Path, Quiet]
) -> None:
    """The negative control of the test above."""
    train(tmp_path / "run", crash_after=6, **FULL)
    draw = Evaluator._draw
    monkeypatch.setattr(Evaluator, "_draw", lambda self, step, seed: draw(self, step, seed + 1))
    resume(tmp_path / "run")
    ours, theirs = (dict(events(folder, "evaluated"))[8]["against"] for folder in (tmp_path / "run", whole[0]))
    assert ours["step"] == theirs["step"] == 4
    assert ours["difference"] != theirs["difference"]


def test_the_first_tie_is_kept_over_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same(monkeypatch)
    train(tmp_path / "run", crash_after=10)
    resume(tmp_path / "run")
    assert counters(tmp_path / "run")["best_step"] == 4
    assert 4 in steps(tmp_path / "run" / "checkpoints")


def test_what_was_spent_before_counts_after_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = (1.0, 1e6)  # 50,000 s may be spent
    monkeypatch.setattr("safelight.training.step_reporter.TrainingSession.seconds", lambda self: seconds)
    train(tmp_path / "run", crash_after=7, evaluate__every=None)
    assert 0 < counters(tmp_path / "run")["evaluation_seconds"] < 50_000
    wasted(tmp_path / "run", 49_999.9)
    terminal = resume(tmp_path / "run")
    assert sum("samples are not evaluated" in text for text in terminal.said) == 1
    assert [step for step, _ in distances(tmp_path / "run")] == [0, 2]


def test_a_budget_that_is_not_spent_is_left_after_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The near miss: the same crash, and nothing wasted."""
    monkeypatch.setattr("safelight.training.step_reporter.TrainingSession.seconds", lambda self: (1.0, 1e6))
    train(tmp_path / "run", crash_after=7, evaluate__every=None)
    resume(tmp_path / "run")
    assert [step for step, _ in distances(tmp_path / "run")] == [0, 2, 6, 11]


def wasted(folder: Path, seconds: float) -> None:
    change_state(folder, lambda state: state | {"evaluation_seconds": seconds})


def change_state(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Writes the newest checkpoint anew with other small numbers, and its manifest with them."""
    path = folder / "checkpoints" / f"step_{max(steps(folder / 'checkpoints')):08d}"
    found = load(path)
    write(path.parent, Snapshot(found.step, found.tensors, change(found.state), found.manifest["environment"]))


def test_checkpoints_of_before_there_were_evaluations_are_carried_on(tmp_path: Path, whole: tuple[Path, Quiet]) -> None:
    train(tmp_path / "run", crash_after=6, evaluate__every=0)
    new = {"best_evaluated", "evaluation_seconds"}
    change_state(tmp_path / "run", lambda state: {name: state[name] for name in state.keys() - new})
    assert not new & counters(tmp_path / "run").keys()
    resume(tmp_path / "run", **{"evaluate.every": 4})
    state = counters(tmp_path / "run")
    assert fingerprints(tmp_path / "run") == fingerprints(whole[0])
    assert (state["best_evaluated"], state["best_step"] in (8, 12)) == (True, True)
    assert state.keys() >= Counters().to_json().keys()


@pytest.mark.parametrize(
    "settings",
    [
        {"evaluate.samples": 48, "evaluate.references": 90, "evaluate.components": 4},
        {"sample.steps": 3, "sample.sampler": "ddim"},
    ],
    ids=str,
)
def test_how_it_is_evaluated_may_change_over_a_resume(tmp_path: Path, settings: dict[str, Any]) -> None:
    """The best is drawn again in the new way, so like is compared with like."""
    train(tmp_path / "run", crash_after=6)
    terminal = resume(tmp_path / "run", **settings)
    assert not any("could not be made" in text for text in terminal.said)
    assert dict(events(tmp_path / "run", "evaluated"))[8]["against"]["step"] == 4


def test_a_grid_larger_than_the_evaluation_is_recalled_too(tmp_path: Path) -> None:
    train(tmp_path / "run", crash_after=6, sample__count=70)
    terminal = resume(tmp_path / "run")
    assert dict(events(tmp_path / "run", "evaluated"))[8]["count"] == 64
    assert not any("could not be made" in text for text in terminal.said)


@pytest.mark.parametrize("how", ["not kept", "damaged"])
def test_a_best_that_is_gone_costs_one_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    same(monkeypatch)
    more = {"checkpoint__keep_best": False, "checkpoint__keep_last": 1} if how == "not kept" else {}
    train(tmp_path / "run", crash_after=10, **more)
    if how == "damaged":
        (tmp_path / "run" / "checkpoints" / "step_00000004" / "ema.safetensors").write_bytes(b"")
    resume(tmp_path / "run")
    assert [step for step, _ in distances(tmp_path / "run")] == [3, 7, 11]


# What goes wrong


@pytest.mark.parametrize("error", [RuntimeError("no kernel"), TypeError("not a tensor")])
def test_an_evaluation_that_fails_is_told_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: tuple[Path, Quiet], error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(sample_judge, "extract", fail)
    terminal = train(tmp_path / "run")
    told = [text for text in terminal.said if "The evaluation could not be made" in text]
    assert len(told) == 3
    assert all(f"({type(error).__name__}: {error})" in text and "training continues" in text for text in told)
    assert status(tmp_path / "run")["status"] == "finished"
    assert fingerprints(tmp_path / "run") == fingerprints(whole[0])
    assert not distances(tmp_path / "run")
    state = counters(tmp_path / "run")
    assert not state["best_evaluated"]
    assert state["best_step"] in steps(tmp_path / "run" / "checkpoints"), "the loss of the probe chooses again"
    assert not events(tmp_path / "run", "rescored")


def test_one_that_fails_once_is_no_matter_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge, calls = SampleJudge.judge, list[int]()

    def stumble(self: SampleJudge, samples: torch.Tensor) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("once")
        return judge(self, samples)

    monkeypatch.setattr(SampleJudge, "judge", stumble)
    train(tmp_path / "run")
    assert [step for step, _ in distances(tmp_path / "run")] == [3, 11]
    assert events(tmp_path / "run", "evaluated")[-1][1]["against"]["step"] == 4


def test_a_last_score_that_fails_is_told_and_the_run_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examine = evaluation.examine
    # Only the final evaluation is given no copies.
    monkeypatch.setattr(
        evaluation, "examine", lambda *given, **named: examine(*given, **named) if len(given) == 3 else 1 / 0
    )
    terminal = train(tmp_path / "run")
    assert sum("The final evaluation could not be made (ZeroDivisionError" in text for text in terminal.said) == 1
    assert status(tmp_path / "run")["status"] == "finished"


class Silent(torch.nn.Module):
    """Trains well, and makes nothing but NaN when it is asked for samples."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.net = torch.nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.net(x) if self.training else self.net(x) * torch.nan


@pytest.mark.parametrize("channels", [3, 1])
def test_samples_that_are_not_finite_do_not_end_the_run(tmp_path: Path, channels: int) -> None:
    terminal = train(tmp_path / "run", model=Silent(channels), data__channels=channels)
    assert status(tmp_path / "run")["status"] == "finished"
    assert not distances(tmp_path / "run")
    assert not counters(tmp_path / "run")["best_evaluated"]
    told = [text for text in terminal.said if "The evaluation could not be made" in text]
    assert len(told) == 3
    assert all("64 of 64 images have pixels that are not finite" in text for text in told)


def test_features_that_are_not_finite_do_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = features_module._run

    def overflow(extractor: Extractor, batch: torch.Tensor) -> torch.Tensor:
        return run(extractor, batch) * torch.inf

    monkeypatch.setattr(features_module, "_run", overflow)
    monkeypatch.setattr(examination, "real_features", lambda *_, **__: np.random.default_rng(0).normal(size=(128, 24)))
    terminal = train(tmp_path / "run")
    assert sum("are not finite" in text for text in terminal.said) == 3
    assert status(tmp_path / "run")["status"] == "finished"


def test_the_record_of_events_is_json_without_holes(whole: tuple[Path, Quiet]) -> None:
    for kind in ("evaluated", "rescored"):
        assert json.dumps([facts for _, facts in events(whole[0], kind)], allow_nan=False)
