"""The preflight: it sees what is wrong before the first step, and nothing of it is left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import Quiet, fingerprints, lose_the_moments, parts_of, tiny
from torch import Tensor

import safelight
from safelight.cli import main
from safelight.config.tree import Optimizer
from safelight.diagnosis.rules.conditioning import GUIDANCE_TOLERANCE
from safelight.diffusion.objective import NoisedBatch, Objective
from safelight.errors import PreflightError
from safelight.record.history import open_history
from safelight.run import RunFolder
from safelight.start import resume, train
from safelight.training import preflight as module
from safelight.training.build import Setup
from safelight.training.ema import EmaWeights
from safelight.training.preflight import ON_COPIES, check_guidance, preflight
from safelight.training.state import State

pytestmark = pytest.mark.usefixtures("no_report")

ENOUGH: dict[str, Any] = {"sample.steps": 12, "train.batch_size": 16, "train.preflight": "stop"}


def enough(**settings: Any) -> Setup:
    return parts_of(**ENOUGH | settings)


def take(parts: Setup, steps: range) -> None:
    for step in steps:
        parts.stepper.step(parts.inputs(step), step)
        parts.state.counters.step = step + 1


def everything(parts: Setup) -> dict[str, Any]:
    """All that a step changes, as bytes."""
    state = parts.state
    moments = {name: dict(state.optimizer.state.get(p, {})) for name, p in state.model.named_parameters()}
    snapshot = state.snapshot()
    return {
        "weights": [v.detach().numpy().tobytes() for v in state.model.state_dict().values()],
        "averages": [v.numpy().tobytes() for track in state.ema.shadows.values() for v in track],
        "moments": {name: {k: v.numpy().tobytes() for k, v in kept.items()} for name, kept in moments.items()},
        "groups": [{k: v for k, v in g.items() if k != "params"} for g in state.optimizer.param_groups],
        "gradients": [p.grad for p in state.model.parameters()],
        "modes": [m.training for m in state.model.modules()],
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in state.model.modules()],
        "random": [torch.get_rng_state().numpy().tobytes(), str(np.random.get_state())],
        "counters": {k: repr(v) for k, v in ((n, getattr(state.counters, n)) for n in type(state.counters).__slots__)},
        "clipper": float(state.clipper.running),
        "scale": (float(state.loss_scale.value), float(state.loss_scale.good_steps)),
        "monitors": {k: v.numpy().tobytes() for k, v in state.monitors.state().items()},
        "snapshot": repr(sorted(snapshot.state.items(), key=str)),
    }


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [name for name in before if before[name] != after[name]]


SOUND: list[dict[str, Any]] = [
    {},
    {"train.accumulate": 2},
    {"train.precision": "bf16"},
    {"model.conditional": True},
    {"model.dropout": 0.3},
    {"clipping.kind": "none"},
    {"ema.kind": "exponential"},
    {"diffusion.prediction": "epsilon"},
    {"diffusion.prediction": "sample"},
    {"diffusion.prediction": "v_prediction"},
    {"diffusion.weighting": "min-snr"},
    {"diffusion.prediction": "epsilon", "diffusion.weighting": "min-snr"},
    {"diffusion.process": "flow", "diffusion.prediction": "flow", "diffusion.density": "logit-normal"},
    {"diffusion.process": "flow", "diffusion.prediction": "flow", "diffusion.shift": 3.0, "sample.sampler": "heun"},
    {"diffusion.process": "edm", "diffusion.prediction": "edm", "diffusion.density": "log-normal"},
    {"diffusion.process": "edm", "diffusion.prediction": "edm", "sample.sampler": "euler", "model.conditional": True},
    {"diffusion.process": "edm", "diffusion.prediction": "sample", "diffusion.weighting": "edm"},
    {"diffusion.process": "flow", "diffusion.weighting": "min-snr", "sample.sampler": "euler"},
    {"diffusion.loss": "l1"},
    {"diffusion.loss": "huber"},
    {"diffusion.schedule": "linear"},
    {"model.gradient_checkpointing": True},
    {"data.balance": True},
    {"train.batch_size": 4},
    {"train.batch_size": 8},
    {"optimizer.lr": 1e-6},
]


def words(settings: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items()) or "plain"


@pytest.mark.parametrize("settings", [
    *SOUND,
    {"sample.steps": 4},
    {"sample.steps": 2},
    {"model.spectral_norm": True},
], ids=words)  # fmt: skip
def test_sound_runs_pass_and_nothing_is_left_behind(settings: dict[str, Any]) -> None:
    parts = enough(**settings)
    before = everything(parts)
    found = preflight(parts, lambda _: None)
    assert [finding.cause for finding in found.findings] == []
    assert differences(before, everything(parts)) == []
    assert any(name.startswith("check/network/") for name in found.constants)
    assert any(name.startswith("check/sampler/") for name in found.constants)
    assert any("check/replay/cosine" in readings for readings in found.readings.values())


def test_nothing_is_left_behind_in_the_middle_of_a_run() -> None:
    parts = enough(**{"model.dropout": 0.2})
    take(parts, range(5))
    parts.state.optimizer.zero_grad(set_to_none=True)
    before = everything(parts)
    found = preflight(parts, lambda _: None)
    assert found.findings == []
    assert sorted(found.readings) == [5, 6, 7]
    assert differences(before, everything(parts)) == []


FORGETFUL: dict[str, Callable[[Any], None]] = {
    "moments": lambda kept: kept._moments.clear(),
    "averages": lambda kept: kept._tensors.pop(),
    "weights": lambda kept: kept._tensors.pop(0),
    "monitors": lambda kept: kept._copied[-1].clear(),
    "random": lambda kept: setattr(kept, "_random", torch.Generator().get_state()),
}


@pytest.mark.parametrize("forgotten", FORGETFUL)
def test_a_copy_that_forgets_something_would_be_noticed(forgotten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the tests above."""
    true = module._StateCopy.__init__

    def forget(kept: Any, state: State) -> None:
        true(kept, state)
        FORGETFUL[forgotten](kept)

    parts = enough()
    take(parts, range(5))
    parts.state.optimizer.zero_grad(set_to_none=True)
    before = everything(parts)
    monkeypatch.setattr(module._StateCopy, "__init__", forget)
    try:
        preflight(parts, lambda _: None)
    except (KeyError, ValueError, RuntimeError):
        return  # noticed as well
    assert forgotten in differences(before, everything(parts))


# A whole run


def run(path: Path, **settings: Any) -> Quiet:
    screen = Quiet()
    train(tiny(**ENOUGH | settings), run=path, terminal=screen)
    return screen


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Path]]:
    """Runs with and without preflight, each trained once. Read them only."""
    folder = tmp_path_factory.mktemp("pairs")

    def pair(**settings: Any) -> tuple[Path, Path]:
        made = folder / words(settings) / "with", folder / words(settings) / "without"
        if not made[0].parent.exists():
            for path, preflight in zip(made, ("stop", "off"), strict=True):
                run(path, **settings, **{"train.preflight": preflight})
        return made

    return pair


@pytest.mark.parametrize("settings", [{}, {"model.dropout": 0.2, "train.accumulate": 2}], ids=words)
def test_with_and_without_preflight_the_bytes_are_the_same(
    pairs: Callable[..., tuple[Path, Path]], settings: dict[str, Any]
) -> None:
    checked, unchecked = pairs(**settings)
    assert fingerprints(checked) == fingerprints(unchecked)


def test_what_the_preflight_replayed_is_what_the_steps_would_have_shown(
    pairs: Callable[..., tuple[Path, Path]],
) -> None:
    """To the last bit: the first steps of a run are those of its preflight."""
    found = []
    for path in pairs():
        with open_history(path / "record.sqlite") as history:
            names = [name for name in history.signals() if name.startswith(ON_COPIES)]
            found.append({name: [each.tolist() for each in history.raw(name)] for name in names})
    assert {"check/replay/cosine", "check/update/error", "check/search/1", "check/response/time"} <= found[0].keys()
    assert found[0] == found[1]


def test_what_was_found_sound_is_in_the_record(pairs: Callable[..., tuple[Path, Path]]) -> None:
    checked, unchecked = pairs()
    with open_history(checked / "record.sqlite") as history:
        names = history.signals()
        assert [name for name in names if name.startswith("check/checkpoint/")]
        steps, numbers = history.raw("check/sampler/left")
        assert (steps.tolist(), bool(numbers[0] < 1e-3)) == ([0], True)
        assert history.raw("check/network/finite")[0].tolist() == [0]
    with open_history(unchecked / "record.sqlite") as history:
        assert not [name for name in history.signals() if name.startswith(("check/sampler/", "check/checkpoint/"))]


# The learning rate


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_a_rate_that_is_too_high_stops_the_run_with_one_that_holds(rate: float) -> None:
    parts = enough(**{"optimizer.lr": rate, "train.steps": 1000})
    before = everything(parts)
    found = preflight(parts, lambda _: None)
    assert [finding.cause for finding in found.findings] == ["lr.too-high"]
    assert differences(before, everything(parts)) == []
    advised = found.findings[0].fix.set["optimizer.lr"]
    assert preflight(enough(**{"optimizer.lr": advised, "train.steps": 1000}), lambda _: None).findings == []
    assert advised == pytest.approx(0.01, rel=0.5)


def test_every_rate_is_tried_from_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    worst: list[float] = []

    def try_twice(settings: Optimizer, worst_error: Callable[[Optimizer, int, float], float]) -> dict[str, float]:
        worst.extend(worst_error(settings, 2, float("inf")) for _ in range(2))
        return {}

    monkeypatch.setattr(module, "find_rate", try_twice)
    preflight(enough(**{"optimizer.lr": 1.0, "optimizer.warmup": 0}), lambda _: None)
    assert worst[0] == worst[1] > 1.5


def test_the_rate_is_tried_at_the_first_step_only() -> None:
    parts = enough(**{"optimizer.lr": 1.0, "train.steps": 1000})
    take(parts, range(1))
    assert not [name for name in preflight(parts, lambda _: None).constants if "/trial/" in name]


# Something is wrong


def corrupt_by_another_table(patch: pytest.MonkeyPatch) -> None:
    true = Objective.add_noise

    def add_noise(objective: Objective, x0: Tensor, noise: Tensor, t: Tensor) -> NoisedBatch:
        made = true(objective, x0, noise, t)
        a = objective.signal_scale[t].square().view(-1, 1, 1, 1)
        return NoisedBatch(a * x0 + (1 - a.square()).sqrt() * noise, made.target, t)

    patch.setattr(Objective, "add_noise", add_noise)


def lose_the_average(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EmaWeights, "load", lambda *_: None)


def freeze_the_average(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EmaWeights, "update", lambda *_: None)


def change_the_target(patch: pytest.MonkeyPatch) -> None:
    true = Objective.add_noise

    def add_noise(objective: Objective, x0: Tensor, noise: Tensor, t: Tensor) -> NoisedBatch:
        made = true(objective, x0, noise, t)
        return NoisedBatch(made.x_t, torch.randn_like(made.target), t)

    patch.setattr(Objective, "add_noise", add_noise)


def turn_the_loss(patch: pytest.MonkeyPatch) -> None:
    true = Objective.loss

    def loss(objective: Objective, answer: Tensor, noised: NoisedBatch) -> tuple[Tensor, Tensor]:
        plain, weighted = true(objective, answer, noised)
        return plain, -weighted

    patch.setattr(Objective, "loss", loss)


def add_noise_at_the_end(patch: pytest.MonkeyPatch) -> None:
    true = module.draw_from
    patch.setattr(module, "draw_from", lambda *given: true(*given) + 0.1 * torch.randn_like(given[1]))


ILLNESSES: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "another table": (corrupt_by_another_table, "forward.other-schedule"),
    "moments are lost": (lose_the_moments, "checkpoint.optimizer-lost"),
    "the average is lost": (lose_the_average, "checkpoint.average-lost"),
    "another target": (change_the_target, "target.fresh-noise"),
    "the loss is turned": (turn_the_loss, "loss.sign"),
    "noise at the end": (add_noise_at_the_end, "sampler.last-noise"),
}


@pytest.mark.parametrize("size", [
    4, 8, 16, 32,
])  # fmt: skip
def test_another_table_is_told_as_such_by_batches_of_any_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    corrupt_by_another_table(monkeypatch)
    found = preflight(enough(**{"train.batch_size": size}), lambda _: None)
    assert [finding.cause for finding in found.findings] == ["forward.other-schedule"]


@pytest.mark.parametrize("name", ILLNESSES)
def test_an_error_stops_the_run_before_its_first_step(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    infect, cause = ILLNESSES[name]
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        infect(patch)
        with pytest.raises(PreflightError, match=cause) as raised:
            run(path)
    assert raised.value.exit_code == 3
    assert "Nothing was trained" in str(raised.value)
    status = RunFolder(path).status()
    assert (status["status"], status["step"], status["last_finding"]) == ("refused", 0, cause)
    assert list((path / "checkpoints").iterdir()) == []
    with open_history(path / "record.sqlite") as history:
        assert cause in [note.facts["cause"] for note in history.findings()]
        assert not len(history.raw("loss/mean")[0]) or history.raw("loss/mean")[0].max() < 3
    assert main(["doctor", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["findings"]
    assert told[0]["cause"] == cause
    assert [finding.cause for finding in safelight.diagnose(path)] == [cause]


def test_a_refused_run_can_be_told_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corrupt_by_another_table(monkeypatch)
    with pytest.raises(PreflightError):
        run(tmp_path / "run")
    resume(tmp_path / "run", settings={"train.preflight": "tell"}, terminal=Quiet())
    assert RunFolder(tmp_path / "run").status()["status"] == "finished"
    assert [finding.cause for finding in safelight.diagnose(tmp_path / "run")] == ["forward.other-schedule"]


def test_an_average_that_stands_still_is_seen_in_the_first_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs three updates to be sure, so the preflight may not know it; the record does."""
    freeze_the_average(monkeypatch)
    run(tmp_path / "run", **{"train.preflight": "tell"})
    assert "ema.frozen" in [finding.cause for finding in safelight.diagnose(tmp_path / "run")]


def test_parts_are_named_where_the_optimizer_lacks_them() -> None:
    parts = enough()
    [group] = parts.state.optimizer.param_groups[:1]
    names = {p: name for name, p in parts.state.model.named_parameters()}
    left_out = group["params"].pop()
    found = preflight(parts, lambda _: None)
    assert "optimizer.missing-parameters" in [finding.cause for finding in found.findings]
    assert names[left_out] in " ".join(finding.summary for finding in found.findings)


def test_guidance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the very denoiser that the run's pictures are drawn with."""
    config = tiny(**{"model.conditional": True, "data.classes": 3, "data.channels": 1})
    assert check_guidance(config)["check/sampler/guidance"] < GUIDANCE_TOLERANCE / 10

    def turned(predict: Any, labels: Tensor, null: int, scale: float) -> Any:
        def answer(x: Tensor, t: Tensor) -> Tensor:
            with_label, plain = predict(x, t, labels), predict(x, t, torch.full_like(labels, null))
            return with_label + scale * (with_label - plain)

        return answer

    monkeypatch.setattr("safelight.generate.guided", turned)
    assert check_guidance(config)["check/sampler/guidance"] > 0.1
    assert check_guidance(tiny()) == {}, "nobody is guided without labels"
