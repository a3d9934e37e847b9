from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor

from safelight.config.tree import Diffusion, Loss, Prediction, Schedule
from safelight.diffusion.objective import Objective, loss_of
from safelight.diffusion.process import per_sample
from safelight.diffusion.schedule import make_process, make_schedule
from safelight.diffusion.targets import target_of

PREDICTIONS = get_args(Prediction)  # also those of other processes
CPU = torch.device("cpu")
CASES = [
    Diffusion(schedule=schedule, prediction=prediction, zero_terminal_snr=zero)
    for schedule in get_args(Schedule)
    for prediction in PREDICTIONS
    for zero in (False, True)
    if not (zero and prediction == "epsilon")
]


def objective(**settings: object) -> Objective:
    chosen = Diffusion(**settings)  # type: ignore[arg-type]
    return Objective(chosen, make_process(chosen), CPU)


def batch(count: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x0 = torch.rand(count, 1, 4, 4, generator=generator, dtype=torch.float64) * 2 - 1
    return x0, torch.randn(count, 1, 4, 4, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("settings", CASES, ids=lambda s: f"{s.schedule}-{s.prediction}-{s.zero_terminal_snr}")
def test_noising_is_a_x0_plus_s_noise(settings: Diffusion) -> None:
    schedule = make_schedule(settings)
    x0, noise = batch(8)
    t = torch.tensor([0, 1, 9, 250, 500, 750, 998, 999])
    noised = Objective(settings, make_process(settings), CPU).add_noise(x0.float(), noise.float(), t)
    a, s = per_sample(schedule.signal_scale[t], x0), per_sample(schedule.noise_scale[t], x0)
    assert torch.allclose(noised.x_t.double(), a * x0 + s * noise, atol=1e-6)
    assert torch.allclose(noised.target.double(), target_of(settings.prediction, x0, noise, a, s), atol=1e-6)
    assert torch.equal(noised.t, t)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_noising_stays_in_fp32_for_a_half_precision_model(dtype: torch.dtype) -> None:
    x0, noise = (each.to(dtype) for each in batch(2))
    with torch.autocast("cpu", torch.bfloat16):
        noised = objective().add_noise(x0, noise, torch.tensor([0, 5]))
    assert noised.x_t.dtype == torch.float32
    assert noised.target.dtype == torch.float32


@pytest.mark.parametrize("schedule", get_args(Schedule))
def test_noise_table_is_right_to_six_digits(schedule: str) -> None:
    kept = objective(schedule=schedule)
    exact = make_schedule(Diffusion(schedule=schedule))  # type: ignore[arg-type]
    for ours, truth in ((kept.noise_scale, exact.noise_scale), (kept.signal_scale, exact.signal_scale)):
        assert ((ours.double() - truth) / truth).abs().max() < 1e-6


@pytest.mark.parametrize(("dtype", "without_noise"), [(torch.bfloat16, 10), (torch.float16, 2)])
def test_half_precision_tables_add_no_noise_at_all(dtype: torch.dtype, without_noise: int) -> None:
    """Negative control: √(1 − ᾱ) from ᾱ in half precision is exactly 0 at the first timesteps of `linear`,
    which is what a common recipe trains on (research/peers.md §1, "Verified arithmetic")."""
    exact = make_schedule(Diffusion(schedule="linear"))
    half = (1 - exact.alphas_cumprod.to(dtype)).sqrt()
    assert int((half == 0).sum()) == without_noise
    assert (half[:without_noise] == 0).all()
    assert ((half.double() - exact.noise_scale) / exact.noise_scale).abs().max() == 1
    assert (objective(schedule="linear").noise_scale > 0).all()


@pytest.mark.parametrize("kind", get_args(Loss))
def test_losses_are_kept_per_sample(kind: Loss) -> None:
    answer, target = batch(5)
    answer[3] += 100
    loss = loss_of(kind, answer, target, 0.1)
    alone = torch.cat([loss_of(kind, answer[i : i + 1], target[i : i + 1], 0.1) for i in range(5)])
    assert loss.shape == (5,)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, alone)
    assert int(loss.argmax()) == 3
    assert (loss_of(kind, target, target, 0.1) == 0).all()


@pytest.mark.parametrize(
    ("kind", "error", "expected"),
    [
        ("l2", 0.5, 0.25),
        ("l2", -2.0, 4.0),
        ("l1", 0.5, 0.5),
        ("l1", -2.0, 2.0),
        ("huber", 0.05, 0.05**2),  # below delta it is L2 …
        ("huber", 0.1, 0.1**2),
        ("huber", 2.0, 2 * 0.1 * (2.0 - 0.05)),  # … and above it a straight line of the same slope
        ("huber", -2.0, 2 * 0.1 * (2.0 - 0.05)),
    ],
)
def test_loss_of_a_known_error(kind: Loss, error: float, expected: float) -> None:
    target = batch(2)[0]
    assert loss_of(kind, target + error, target, 0.1).tolist() == pytest.approx([expected] * 2, rel=1e-5)


@pytest.mark.parametrize(("size", "meets"), [(0.01, True), (0.099, True), (0.3, False)])
def test_huber_meets_l2_for_small_errors(size: float, meets: bool) -> None:
    target = batch(4)[0]
    error = torch.rand(target.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * size
    huber, l2 = (loss_of(kind, target + error, target, 0.1) for kind in ("huber", "l2"))
    assert torch.allclose(huber, l2, rtol=1e-4) == meets


def test_loss_is_taken_in_fp32() -> None:
    """A bf16 answer near its target: squares below 1e-3 of the sum would vanish in bf16."""
    target = torch.zeros(1, 1, 64, 64)
    answer = torch.full_like(target, 0.01, dtype=torch.bfloat16)
    assert float(loss_of("l2", answer, target, 0.1)) == pytest.approx(float(answer[0, 0, 0, 0]) ** 2, rel=1e-6)


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_plain_loss_carries_no_weight(prediction: Prediction) -> None:
    x0, noise = (each.float() for each in batch(4))
    t = torch.tensor([1, 200, 600, 999])
    chosen = objective(weighting="min-snr", prediction=prediction)
    noised = chosen.add_noise(x0, noise, t)
    plain, weighted = chosen.loss(torch.zeros_like(x0), noised)
    assert torch.allclose(plain, noised.target.square().flatten(1).mean(1))
    assert torch.allclose(weighted, plain * chosen.weights[t])
    assert plain.shape == weighted.shape == (4,)
    unweighted = objective(prediction=prediction)
    assert torch.equal(*unweighted.loss(torch.zeros_like(x0), unweighted.add_noise(x0, noise, t)))
