"""A run that falls ill is mended, says so, and ends where its healthy twin does; a healthy one is not touched."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import Quiet, fingerprints, journal_of, newest, tiny

from gauntlet import injections
from safelight import start
from safelight.errors import OutOfMemory, Stopped
from safelight.record.reading import read_events, read_signal

pytestmark = pytest.mark.usefixtures("no_report")

Fault = Callable[[pytest.MonkeyPatch], object]
NEAR = 0.02  # of the healthy twin's loss on the fixed set
NARROW: dict[str, Any] = {"model__widths": "8", "model__norm_groups": 4}  # where a step takes long
SETTINGS: dict[str, Any] = {"heal__enabled": True, "optimizer__lr": 1e-2, "train__preflight": "off"}


def train(folder: Path, **settings: Any) -> Quiet:
    terminal = Quiet()
    start.train(tiny(**SETTINGS | settings), run=folder, terminal=terminal)
    return terminal


class Twins:
    """Healthy runs that several tests compare with, each trained once: before there is a fault. Read them only."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, dict[str, Path]()

    def __call__(self, **settings: Any) -> Path:
        name = str(sorted(settings.items()))
        if name not in self._made:
            path = self._folder / str(len(self._made))
            train(path, **settings)
            self._made[name] = path
        return self._made[name]


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    return Twins(tmp_path_factory.mktemp("twins"))


def probe(run: Path) -> float:
    return read_signal(run / "record.sqlite", "probe/ema")[-1][1]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"model__dropout": 0.3},
        {"model__spectral_norm": True},
        {"train__accumulate": 4},
        {"train__precision": "fp16"} | NARROW,
        {"clipping__kind": "none", "optimizer__warmup": 0},
        {"train__batch_size": 2, "diffusion__timestep_sampling": "uniform"},
        {"diffusion__prediction": "epsilon", "diffusion__loss": "l1"},
        {"data__workers": 2},
    ],
    ids=lambda settings: " ".join(f"{k}={v}" for k, v in settings.items()) or "plain",
)
def test_a_healthy_run_is_not_touched(settings: dict[str, Any], tmp_path: Path) -> None:
    train(tmp_path / "with", train__steps=40, checkpoint__every=10, **settings)
    train(tmp_path / "without", train__steps=40, checkpoint__every=10, heal__enabled=False, **settings)
    assert fingerprints(tmp_path / "with") == fingerprints(tmp_path / "without")
    assert journal_of(tmp_path / "with") == []
    assert read_events(tmp_path / "with" / "record.sqlite", "healed") == []
    assert "journal" not in start.open_run(tmp_path / "with").status()


def test_a_spike_that_comes_out_again_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hard batch is not an error: it costs one replay, and nothing else."""
    done = injections.disturb_gradient(monkeypatch, [18], 1e6, once=False)
    train(tmp_path / "run", train__steps=24)
    assert done == [18, 18], "it was not looked at twice"
    assert journal_of(tmp_path / "run") == []


# The fault, the settings of the run, the act, and the steps it is expected at.
SHORT: dict[str, tuple[Fault, dict[str, Any], str, list[int]]] = {
    "flipped bit": (lambda m: injections.disturb_gradient(m, [18, 21], 1e6), {}, "redo", [18, 21]),
    "NaN that does not come again": (lambda m: injections.disturb_gradient(m, [3], math.nan), {}, "redo", [3]),
    "evaluation mode": (
        lambda m: injections.leave_train_mode(m, lambda step: step >= 18),
        {"model__dropout": 0.3},
        "restore-mode",
        [18],
    ),
}


@pytest.mark.parametrize(("fault", "settings", "kind", "at"), SHORT.values(), ids=SHORT.keys())
def test_what_is_mended_in_time_leaves_no_trace_in_the_weights(
    fault: Fault,
    settings: dict[str, Any],
    kind: str,
    at: list[int],
    twin: Twins,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    healthy = twin(train__steps=24, **settings)
    fault(monkeypatch)
    terminal = train(tmp_path / "healed", train__steps=24, **settings)
    assert fingerprints(tmp_path / "healed") == fingerprints(healthy)
    found = journal_of(tmp_path / "healed")
    assert [(act["kind"], act["step"]) for act in found] == [(kind, step) for step in at]
    assert sum(f"act {number}, {kind}" in line for line in terminal.said for number in (1, 2)) == len(at)
    events = read_events(tmp_path / "healed" / "record.sqlite", "healed")
    assert [(step, facts["act"], facts["number"]) for step, _, facts in events] == [
        (step, kind, number) for number, step in enumerate(at, 1)
    ]
    assert start.open_run(tmp_path / "healed").status()["journal"] == found


def test_without_healing_the_flip_would_have_spoilt_the_weights(
    twin: Twins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the test above."""
    healthy = twin(train__steps=24)
    injections.disturb_gradient(monkeypatch, [18], 1e6)
    monkeypatch.setattr("safelight.healing.alarms.SUSPICIOUS", 1e9)
    train(tmp_path / "spoilt", train__steps=24)
    assert fingerprints(tmp_path / "spoilt") != fingerprints(healthy)


def test_a_bad_image_is_drawn_once_and_never_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [17, 901]
    drawn = injections.spoil_images(monkeypatch, images)
    train(tmp_path / "run", train__steps=100, train__batch_size=64, checkpoint__every=50, **NARROW)
    found = journal_of(tmp_path / "run")
    assert sorted(sample for act in found for sample in act["facts"]["samples"]) == images
    assert {act["kind"] for act in found} == {"quarantine"}
    assert sorted(set(drawn)) == sorted(act["step"] for act in found), "100 steps of 64 visit each image 3 times"
    refused = read_signal(tmp_path / "run" / "record.sqlite", "update/refused")
    assert [step for step, value in refused if value] == []


def test_bad_images_beyond_half_of_a_batch_are_not_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    injections.spoil_images(monkeypatch, range(2000))
    with pytest.raises(Stopped, match="the input images"):
        train(tmp_path / "run", train__max_refused=3, heal__budget=1)
    assert all(act["kind"] == "lower-rate" for act in journal_of(tmp_path / "run"))


@pytest.mark.parametrize("from_step", [0, 10])
def test_a_batch_that_does_not_fit_is_split(
    from_step: int, twin: Twins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = twin(model__spectral_norm=True)
    injections.limit_memory(monkeypatch, 2, from_step)
    train(tmp_path / "run", model__spectral_norm=True)
    found = journal_of(tmp_path / "run")
    assert [(act["kind"], act["step"], act["facts"]["micro_batches"]) for act in found] == [
        ("halve-batch", from_step, 2),
        ("halve-batch", from_step, 4),
    ]
    assert probe(tmp_path / "run") == pytest.approx(probe(healthy), rel=1e-2)


def test_one_image_that_does_not_fit_ends_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    injections.limit_memory(monkeypatch, 0, 4)
    with pytest.raises(OutOfMemory):
        train(tmp_path / "run")


def test_more_acts_than_the_budget_stop_the_run_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    injections.disturb_gradient(monkeypatch, [20, 24, 28], math.nan)
    with pytest.raises(Stopped, match=r"step 28: .* act 3, and heal.budget is 2") as stopped:
        train(tmp_path / "run", train__steps=40, heal__budget=2)
    assert stopped.value.exit_code == 5
    status = start.open_run(tmp_path / "run").status()
    assert (status["status"], status["step"]) == ("stopped", 28)
    assert newest(tmp_path / "run").step == 28


# A few of those that gauntlet/healing.py tries.
LONG: dict[str, tuple[Fault, dict[str, Any], set[str]]] = {
    "learning rate x 100": (lambda m: injections.raise_rate(m, 100), {}, {"lower-rate"}),
    "fp16 overflows": (
        lambda m: injections.overflow(m, range(24, 300)),
        {"train__precision": "fp16"} | NARROW,
        {"change-precision"},
    ),
    "memory": (lambda m: injections.limit_memory(m, 4, 24), {}, {"halve-batch"}),
}


@pytest.mark.parametrize(("fault", "settings", "kinds"), LONG.values(), ids=LONG.keys())
def test_a_mended_run_ends_near_its_healthy_twin(
    fault: Fault,
    settings: dict[str, Any],
    kinds: set[str],
    twin: Twins,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = {"train__steps": 80, "checkpoint__every": 10, "ema__snapshots": 0} | settings
    healthy = twin(**long)
    fault(monkeypatch)
    train(tmp_path / "healed", **long)
    found = journal_of(tmp_path / "healed")
    assert {act["kind"] for act in found} == kinds
    wanted, healed = probe(healthy), probe(tmp_path / "healed")
    print(f"healed {healed:.4f}, twin {wanted:.4f}: {healed / wanted - 1:+.2%}; {len(found)} acts")
    assert healed <= wanted * (1 + NEAR)
