"""x_t, target and noise against the formula: what is exact is reported as exact, and what is wrong by its kind."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from micro_batches import ALPHAS, batch, declared, micro_batch, noised
from torch import Tensor

from safelight import checks
from safelight.config.tree import Prediction
from safelight.diagnosis.doctor import examine
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory
from safelight.diffusion import time_mappings
from safelight.diffusion.process import Process, edm, linear_flow, vp
from safelight.diffusion.targets import make_target, target_of
from safelight.diffusion.time_units import share_of, timed
from safelight.probes.forward_pass import Call, ForwardPass, ProcessSpec
from safelight.probes.noising import measure_batch, measure_magnitudes, measure_noising, read_magnitudes

X0, NOISE, T = batch(64)
X_T = noised(X0, NOISE, T)
LINEAR = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64), 0)
OTHER_NOISE = torch.randn(X_T.shape, generator=torch.Generator().manual_seed(6))
ORDER = torch.randperm(64, generator=torch.Generator().manual_seed(5))


def look(given: ForwardPass, prediction: Prediction | None = "epsilon") -> dict[str, float]:
    return {name: float(value) for name, value in measure_noising(given, declared(prediction)).items()}


def made(**changes: Any) -> ForwardPass:
    kept: dict[str, Any] = {"x_t": X_T} | changes
    return micro_batch(size=64, **kept)


def causes(readings: dict[str, float]) -> list[str]:
    """What the rules say of an answer that was the same at three steps."""
    series = {f"check/{name}": ([0, 1, 2], [value] * 3) for name, value in readings.items()}
    starts = ("forward.", "timesteps.", "target.")
    return [f.cause for f in examine(RunHistory(InMemoryReadings(series))) if f.cause.startswith(starts)]


@pytest.mark.parametrize(("clean", "noise"), [(0.5, 0.5), (1, 0.5), (0.5, 1), (1, 1)])
def test_a_square_root_that_is_missing_is_known(clean: float, noise: float) -> None:
    kept = ALPHAS[T].float().view(-1, 1, 1, 1)
    found = look(made(x_t=kept**clean * X0 + (1 - kept) ** noise * NOISE))
    assert (found[checks.FORWARD_CLEAN_ROOT] < 1e-3) == (clean == 1)
    assert (found[checks.FORWARD_NOISE_ROOT] < 1e-3) == (noise == 1)


@pytest.mark.parametrize(
    ("name", "changes", "cause"),
    [
        ("sound", {}, None),
        ("bf16", {"x_t": X_T.bfloat16()}, None),
        ("bf16 all over", {"x_t": X_T.bfloat16(), "x0": X0.bfloat16(), "noise": NOISE.bfloat16()}, None),
        ("one per cent of something else", {"x_t": X_T + 0.01 * OTHER_NOISE}, None),
        ("another table", {"x_t": noised(X0, NOISE, T, LINEAR)}, "forward.other-schedule"),
        ("the square root forgotten", {"x_t": noised(X0, NOISE, T, ALPHAS.square())}, "forward.other-schedule"),
        ("clamped", {"x_t": X_T.clamp(-1, 1)}, "forward.clamped"),
        ("no noise", {"x_t": X0}, "forward.no-noise"),
        ("scaled, and no noise", {"x_t": 0.3 * X0}, "forward.no-noise"),
        ("timesteps of other samples", {"t": T[ORDER]}, "timesteps.shuffled"),
        ("noise of other samples", {"noise": NOISE[ORDER]}, "forward.not-the-formula"),
        ("images of other samples", {"x0": X0[ORDER]}, "forward.not-the-formula"),
        ("a second draw of noise", {"noise": OTHER_NOISE}, "forward.not-the-formula"),
    ],
)
def test_the_noised_images(name: str, changes: dict[str, Any], cause: str | None) -> None:
    readings = look(made(**changes))
    forward = {key: value for key, value in readings.items() if not key.startswith("target/")}
    assert causes(forward) == ([] if cause is None else [cause])
    assert (readings["forward/wrong"] > 0.05) == (cause is not None)


def test_exactness() -> None:
    readings = look(made())
    assert readings["forward/error"] < 1e-5
    assert readings["forward/residual"] < 1e-5
    assert readings["target/epsilon"] == 0
    assert look(made(x_t=X_T.bfloat16()))["forward/error"] < 0.01


@pytest.mark.parametrize("kind", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize("said", ["epsilon", "sample", "v_prediction"])
def test_the_three_targets(kind: Prediction, said: Prediction) -> None:
    readings = look(micro_batch(size=64, prediction=kind), said)
    assert readings[f"target/{kind}"] < 1e-6
    assert readings[f"target/{kind}_cosine"] == pytest.approx(1, abs=1e-5)
    readings["target/declared"] = float(["epsilon", "sample", "v_prediction"].index(said))
    assert causes(readings) == ([] if kind == said else ["target.other-type"])


@pytest.mark.parametrize(
    ("name", "target", "cause"),
    [
        ("bf16", NOISE.bfloat16(), None),
        ("half of it", 0.5 * NOISE, "target.wrong"),
        ("turned", -NOISE, "target.wrong"),
        ("clamped", NOISE.clamp(-1, 1), "target.wrong"),
        ("drawn anew", torch.randn(64, 1, 4, 4, generator=torch.Generator().manual_seed(9)), "target.fresh-noise"),
    ],
)
def test_wrong_targets(name: str, target: Tensor, cause: str | None) -> None:
    assert causes(look(made(target=target)) | {"target/declared": 0.0}) == ([] if cause is None else [cause])


@pytest.mark.parametrize("missing", ["x0", "noise", "t", "x_t", "target"])
def test_what_cannot_be_known_is_left_out(missing: str) -> None:
    readings = look(made(**{missing: None}))
    assert all(math.isfinite(value) for value in readings.values())
    assert ("forward/error" in readings) == (missing == "target")
    assert ("target/epsilon" in readings) == (missing == "x_t")


def test_without_a_table_only_the_noise_is_looked_at() -> None:
    readings = measure_noising(made(), declared(None, None))  # type: ignore[arg-type]
    assert {name.partition("/")[0] for name in readings} == {"batch", "noise", "forward"}
    # Of x_t itself, whatever the process is: values that were cut off, and no noise at all.
    assert {name for name in readings if name.startswith("forward/")} == {"forward/clean", "forward/at_limit"}
    continuous = measure_noising(made(t=T.float() / 1000), declared())
    assert not any(name.startswith(("forward/wrong", "forward/error", "target")) for name in continuous)


def test_whole_numbers_are_not_compared() -> None:
    assert not any(name.startswith("forward") for name in look(made(x0=(X0 * 100).long())))


@pytest.mark.parametrize(
    ("name", "noise", "between", "within", "kurtosis"),
    [
        ("normal", torch.randn(64, 1, 8, 8), 1, 1, 3),
        ("uniform", torch.rand(64, 1, 8, 8), 1 / 12, 1 / 12, 1.8),
        ("one draw for the batch", torch.randn(1, 1, 8, 8).expand(64, -1, -1, -1), 0, 1, 3),
        ("one number for an image", torch.randn(64, 1, 1, 1).expand(-1, -1, 8, 8), 1, 0, 3),
    ],
)
def test_the_noise(name: str, noise: Tensor, between: float, within: float, kurtosis: float) -> None:
    readings = {
        key: float(value)
        for key, value in measure_noising(ForwardPass(torch.ones(()), noise=noise), declared()).items()
    }
    assert readings["noise/between"] == pytest.approx(between, abs=0.5 if between == 1 else 0.05)
    assert readings["noise/within"] == pytest.approx(within, abs=0.5 if within == 1 else 0.05)
    assert readings["noise/kurtosis"] == pytest.approx(kurtosis, abs=1.5)
    assert readings["noise/count"] == noise.numel()


# What the network was called with


def call(x: Tensor, t: Tensor) -> Call:
    return Call((x, t), {})


@pytest.mark.parametrize(
    ("name", "x", "t", "error", "agreement"),
    [
        ("as said", X_T, T, 0, 1),
        ("scaled, as EDM does", 0.3 * X_T, T / 1000, 0, 1),
        ("clean images", X0, T, 0.5, 1),
        ("timesteps of others", X_T, T[ORDER], 0, 0),
        ("a timestep of nothing", X_T, torch.zeros_like(T), 0, 0),
    ],
)
def test_the_call(name: str, x: Tensor, t: Tensor, error: float, agreement: float) -> None:
    readings = look(made(call=call(x, t)))
    assert (
        readings["forward/input_error"] == pytest.approx(0, abs=1e-5)
        if not error
        else readings["forward/input_error"] > 0.05
    )
    assert (
        readings["timesteps/passed_on"] == pytest.approx(1, abs=1e-6)
        if agreement
        else readings["timesteps/passed_on"] < 0.9
    )


def test_one_timestep_for_a_whole_batch_is_passed_on() -> None:
    same = torch.full_like(T, 400)
    readings = look(made(t=same, x_t=noised(X0, NOISE, same), call=call(noised(X0, NOISE, same), same)))
    assert readings["timesteps/passed_on"] == 1
    assert readings["forward/wrong"] == 0


# Losses


def magnitudes(micro_batch: ForwardPass) -> dict[str, float]:
    return read_magnitudes({name: float(value) for name, value in measure_magnitudes(micro_batch).items()})


@pytest.mark.parametrize("loudness", [0.5, 1.0, 2.0])
def test_how_loud_answers_are(loudness: float) -> None:
    """The slope of the target on the answer: 1 wherever a squared error has nothing to gain by a factor."""
    answer = loudness * 0.6 * NOISE + 0.3 * torch.roll(NOISE, 1, 0)
    readings = magnitudes(made(pred=answer))
    assert readings["loss/slope"] == pytest.approx(float((answer * NOISE).sum() / answer.square().sum()), rel=1e-4)
    assert magnitudes(made(pred=answer * readings["loss/slope"]))["loss/slope"] == pytest.approx(1.0, rel=1e-4)
    assert "loss/slope" not in magnitudes(made(pred=torch.zeros_like(NOISE)))


def test_losses_and_what_is_not_finite() -> None:
    readings = magnitudes(made(pred=torch.zeros_like(NOISE), loss=torch.tensor(0.5)))
    assert readings["loss/error"] == pytest.approx(float(NOISE.square().mean()))
    assert readings["loss/zero"] == readings["loss/error"]
    assert readings["loss/told"] == 0.5
    assert readings["batch/reach"] == float(X0.abs().max())
    assert not [name for name in readings if name.startswith("finite/")], "reported only where something is not"


def test_large_numbers_are_finite() -> None:
    huge = torch.full((64, 1, 4, 4), 3e38)
    readings = magnitudes(made(pred=huge, x0=huge))
    assert not [name for name in readings if name.startswith("finite/")]
    half = torch.full((64, 1, 4, 4), 6e4, dtype=torch.float16)
    assert magnitudes(made(x0=half))["batch/reach"] == 6e4


def test_a_loss_that_is_no_float_is_left_out() -> None:
    assert "finite/loss" not in magnitudes(made(loss=torch.tensor(1)))
    assert measure_magnitudes(ForwardPass(torch.tensor(1))) == {}


@pytest.mark.parametrize("name", ["x0", "noise", "x_t", "target", "pred", "loss"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_where_it_is_not_finite(name: str, value: float) -> None:
    sick = torch.zeros(64, 1, 4, 4)
    sick[3, 0, 1, 1] = value
    readings = magnitudes(made(**({"pred": torch.zeros_like(sick)} | {name: sick})))
    wrong = {key for key, number in readings.items() if key.startswith("finite/") and number == 0}
    infinite = name == "loss" and value == math.inf  # reported apart: anything may make a NaN
    assert wrong == {f"finite/{name}", *(["finite/loss_number"] if infinite else [])}


def test_shapes_that_differ_are_not_compared() -> None:
    assert "loss/error" not in magnitudes(made(pred=torch.zeros(64, 1, 4, 5)))
    assert measure_batch(made(x0=None)) == {}
    assert measure_batch(made(x0=torch.zeros(4))) == {}


def test_a_target_is_what_the_objective_makes() -> None:
    a, s = (ALPHAS[T].sqrt().float().view(-1, 1, 1, 1), (1 - ALPHAS[T]).sqrt().float().view(-1, 1, 1, 1))
    v = target_of("v_prediction", X0, NOISE, a, s)
    assert look(made(target=v), "v_prediction")["target/v_prediction"] < 1e-6


# Continuous time: the same rules, by the same algebra.
PROCESSES: dict[str, tuple[Process, Prediction]] = {"flow": (linear_flow(), "flow"), "edm": (edm(), "edm")}


def seen(name: str, **changes: Any) -> list[str]:
    """What the rules say of a loop of flow matching or EDM, with something in it changed."""
    process, prediction = PROCESSES[name]
    t = torch.linspace(0.02, 0.98, 64)[ORDER]
    a, s = (each.float().view(-1, 1, 1, 1) for each in process.at(t))
    made: dict[str, Any] = {"x0": X0, "noise": NOISE, "t": t, "x_t": a * X0 + s * NOISE}
    made["target"] = target_of(make_target(prediction), X0, NOISE, a, s)
    for key, change in changes.items():
        made[key] = change(made)
    readings = measure_noising(ForwardPass(torch.tensor(1.0), **made), ProcessSpec(None, prediction, process))
    declaring = {"target/declared": float(checks.PREDICTIONS.index(prediction))}
    return causes({key: float(value) for key, value in readings.items()} | declaring)


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize(
    ("fault", "changes", "cause"),
    [
        ("sound", {}, None),
        ("bf16", {"x_t": lambda made: made["x_t"].bfloat16()}, None),
        ("target flipped", {"target": lambda made: -made["target"]}, "target."),
        ("epsilon for it", {"target": lambda made: NOISE}, "target.other-type"),
        ("the image for it", {"target": lambda made: X0}, "target.other-type"),
        ("fresh noise in the target", {"target": lambda made: torch.randn_like(NOISE)}, "target.fresh-noise"),
        ("fresh noise in x_t", {"noise": lambda made: torch.randn_like(NOISE)}, "forward.not-the-formula"),
        ("no noise", {"x_t": lambda made: X0}, "forward.no-noise"),
        ("shuffled times", {"t": lambda made: made["t"].roll(7)}, "timesteps.shuffled"),
    ],
)
def test_faults_of_continuous_time(name: str, fault: str, changes: dict[str, Any], cause: str | None) -> None:
    causes_seen = seen(name, **changes)
    assert any(each.startswith(cause) for each in causes_seen) if cause else causes_seen == []


def test_the_opposite_velocity_has_a_name() -> None:
    assert "target.other-type" in seen("flow", target=lambda made: -made["target"])
    assert "target.wrong" in seen("edm", target=lambda made: -made["target"])


def test_swapped_ends_and_another_formula_of_a_flow_are_seen() -> None:
    t = torch.linspace(0.02, 0.98, 64)[ORDER].view(-1, 1, 1, 1)
    swapped = seen("flow", x_t=lambda made: t * X0 + (1 - t) * NOISE)
    assert any(cause.startswith(("forward.", "timesteps.")) for cause in swapped)
    angle = t * math.pi / 2
    other = seen("flow", x_t=lambda made: angle.cos() * X0 + angle.sin() * NOISE)
    assert "forward.other-schedule" in other


@pytest.mark.parametrize(("lowest", "highest"), [(9, 999), (0, 900), (9, 900)])
def test_a_recognised_process_is_not_known_at_times_that_were_not_seen(lowest: int, highest: int) -> None:
    """A loop that draws the first and the last timesteps for the first time after it was recognised."""
    own = torch.arange(lowest, highest + 1, 3).double()
    share = share_of(vp(ALPHAS), own.long()).numpy()
    clock = time_mappings.measured(own.numpy(), share)
    assert clock is not None
    known = ProcessSpec(None, "epsilon", timed("vp", clock, ends=(0.0, 1.0)), draws=own.numpy(), is_seen=True)
    t = T.clone()
    t[:16], t[-16:] = 0, 999
    right = {"x0": X0, "noise": NOISE, "t": t, "x_t": noised(X0, NOISE, t)}
    readings = measure_noising(ForwardPass(torch.tensor(1.0), **right), known)
    assert float(readings[checks.FORWARD_WRONG]) == 0
    wrong = measure_noising(ForwardPass(torch.tensor(1.0), **right | {"x_t": X0}), known)
    assert float(wrong[checks.FORWARD_WRONG]) >= 0.5, "the control: what is known is still looked at"


def test_integer_times_of_a_flow_are_not_measured() -> None:
    """Nothing is known of what they stand for."""
    process, prediction = PROCESSES["flow"]
    given = ForwardPass(torch.tensor(1.0), x0=X0, noise=NOISE, t=T, x_t=X_T, target=NOISE)
    assert "forward/wrong" not in measure_noising(given, ProcessSpec(None, prediction, process))
