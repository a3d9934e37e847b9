from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from safelight.config.tree import Diffusion, Prediction, Sampler, Schedule
from safelight.diffusion.draws import sample_generators
from safelight.diffusion.process import per_sample, vp
from safelight.diffusion.sampling import Solver, clamped, exact_float32, guided, make_scheduler, make_solver, sample
from safelight.diffusion.schedule import AlphasCumprod, make_process, make_schedule
from safelight.diffusion.targets import TARGETS, make_target, target_of, to_noise, to_x0
from safelight.errors import UsageError

SAMPLERS: tuple[Sampler, ...] = ("ddim", "ddpm", "dpm-solver++")
PREDICTIONS: tuple[Prediction, ...] = ("v_prediction", "epsilon", "sample")
MEAN, STD = 0.1, 0.25  # 1 is 3.6 deviations away: the clamp touches almost nothing
CPU = torch.device("cpu")
EVERY = [
    (sampler, prediction, zero)
    for sampler in SAMPLERS
    for prediction in PREDICTIONS
    for zero in (False, True)
    if not (zero and prediction == "epsilon")  # refused by config.check
]


def schedule(name: str = "cosine", *, zero: bool = False, timesteps: int = 1000) -> AlphasCumprod:
    return make_schedule(Diffusion(schedule=name, zero_terminal_snr=zero, timesteps=timesteps))  # type: ignore[arg-type]


def gaussian(prediction: Prediction, table: AlphasCumprod, mean: float = MEAN, std: float = STD) -> Callable:
    """The best answer there is to images whose pixels are N(mean, std²)."""
    signal, noise = table.signal_scale.float(), table.noise_scale.float()

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        a, s = per_sample(signal[t], x), per_sample(noise[t], x)
        off = (x - a * mean) / (a**2 * std**2 + s**2)
        return target_of(prediction, mean + a * std**2 * off, s * off, a, s)

    return denoise


def solver(scheduler: Any, table: AlphasCumprod, prediction: Prediction) -> Solver:
    return Solver(scheduler, vp(table.alphas_cumprod), TARGETS[prediction], TARGETS[prediction])


def draw(
    sampler: Sampler, prediction: Prediction, table: AlphasCumprod, denoise: Callable, steps: int = 100, **how: Any
) -> Tensor:
    generators = sample_generators(0, 0, 4)
    noise = torch.stack([torch.randn(1, 64, 64, generator=g) for g in generators])
    return sample(
        denoise,
        noise,
        solver(make_scheduler(sampler, table, prediction), table, prediction),
        steps=steps,
        generators=generators,
        **how,
    )  # type: ignore[arg-type]


# Few steps make every sampler too narrow. Measured at 100 steps: 0.972, 0.942 and 0.999 of the true deviation.
WITHIN = {"ddim": 0.04, "ddpm": 0.08, "dpm-solver++": 0.01}


@pytest.mark.parametrize(("sampler", "prediction", "zero"), EVERY)
def test_recovers_a_known_gaussian(sampler: Sampler, prediction: Prediction, zero: bool) -> None:
    table = schedule(zero=zero)
    images = draw(sampler, prediction, table, gaussian(prediction, table))
    assert float(images.mean()) == pytest.approx(MEAN, abs=0.01)
    assert float(images.std()) == pytest.approx(STD, rel=WITHIN[sampler])


@pytest.mark.parametrize("sampler", ["ddim", "ddpm"])
def test_all_steps_recover_it_closely(sampler: Sampler) -> None:
    table = schedule()
    images = draw(sampler, "v_prediction", table, gaussian("v_prediction", table), steps=1000)
    assert float(images.mean()) == pytest.approx(MEAN, abs=0.01)
    assert float(images.std()) == pytest.approx(STD, rel=0.01)


@pytest.mark.parametrize(
    ("sampled_as", "trained_on"),
    [(("epsilon", "cosine"), ("v_prediction", "cosine")), (("v_prediction", "linear"), ("v_prediction", "cosine"))],
    ids=["another prediction", "another schedule"],
)
def test_a_mismatch_between_training_and_sampling_would_be_seen(sampled_as: tuple, trained_on: tuple) -> None:
    """Negative control of the above: the diseases that `same by construction` prevents."""
    denoise = gaussian(trained_on[0], schedule(trained_on[1]))
    images = draw("ddim", sampled_as[0], schedule(sampled_as[1]), denoise)
    assert abs(float(images.mean()) - MEAN) > 0.01 or abs(float(images.std()) / STD - 1) > WITHIN["ddim"]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", get_args(Schedule))
@pytest.mark.parametrize("zero", [False, True])
def test_betas_are_those_of_training(sampler: Sampler, name: str, zero: bool) -> None:
    table = schedule(name, zero=zero)
    scheduler = make_scheduler(sampler, table, "v_prediction")
    assert torch.equal(scheduler.betas, table.betas.float())
    assert (scheduler.alphas_cumprod - table.alphas_cumprod).abs().max() < 1e-6
    assert scheduler.config.prediction_type == "v_prediction"


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(("timesteps", "steps"), [(1000, 50), (1000, 7), (1000, 1), (100, 30), (10, 10)])
def test_starts_at_the_last_timestep_and_only_falls(sampler: Sampler, timesteps: int, steps: int) -> None:
    table, seen = schedule(timesteps=timesteps), list[float]()
    denoise = gaussian("v_prediction", table)
    draw(sampler, "v_prediction", table, denoise, steps=steps, on_step=lambda t, x: seen.append(t))
    assert seen[0] == timesteps - 1
    assert all(late < early for early, late in pairwise(seen))
    assert min(seen) >= 0
    assert len(seen) == steps


def test_the_spacing_of_others_does_not_start_there() -> None:
    """Negative control: diffusers' default begins at 981 of 999, from pure noise that it takes for a faint image."""
    from diffusers import DDIMScheduler

    theirs = DDIMScheduler(num_train_timesteps=1000)
    theirs.set_timesteps(50)
    assert int(theirs.timesteps[0]) < 999


def last_step(scheduler: Any, prediction: Prediction, table: AlphasCumprod) -> Tensor:
    """Where the scheduler ends up when the model says that the image is 3 everywhere: the x0 it took that for."""
    scheduler.set_timesteps(10)
    x, t = torch.full((1, 1, 4, 4), 0.5), scheduler.timesteps[-1]
    if scheduler.config.get("algorithm_type"):
        scheduler.set_begin_index(9)
    answer = gaussian(prediction, table, mean=3.0, std=1e-4)(x, t.expand(1))
    return scheduler.step(answer, t, x).prev_sample


@pytest.mark.parametrize(("sampler", "prediction", "zero"), EVERY)
def test_x0_is_clamped(sampler: Sampler, prediction: Prediction, zero: bool) -> None:
    table = schedule(zero=zero)
    scheduler = make_scheduler(sampler, table, prediction)
    assert torch.allclose(last_step(scheduler, prediction, table), torch.ones(1), atol=1e-5)
    scheduler.register_to_config(clip_sample=False, thresholding=False)
    assert torch.allclose(last_step(scheduler, prediction, table), torch.full((1,), 3.0), atol=0.01), "control"


@pytest.mark.parametrize(("sampler", "prediction", "zero"), EVERY)
def test_a_model_out_of_bounds_still_ends_in_range(sampler: Sampler, prediction: Prediction, zero: bool) -> None:
    table = schedule(zero=zero)
    images = draw(sampler, prediction, table, gaussian(prediction, table, mean=3.0, std=0.01), steps=20)
    assert images.isfinite().all()
    assert images.min() >= -1
    assert images.max() == 1


@pytest.mark.parametrize(("sampler", "same"), [("ddim", True), ("dpm-solver++", True), ("ddpm", False)])
def test_only_ddpm_draws_on_the_way(sampler: Sampler, same: bool) -> None:
    table = schedule()
    denoise, noise = (
        gaussian("v_prediction", table),
        torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0)),
    )

    def once(seed: int) -> Tensor:
        chosen = solver(make_scheduler(sampler, table, "v_prediction"), table, "v_prediction")
        return sample(denoise, noise, chosen, steps=10, generators=sample_generators(seed, 0, 2))

    assert torch.equal(once(0), once(0))
    assert torch.equal(once(0), once(1)) == same


def test_sampling_moves_no_global_randomness() -> None:
    table, before = schedule(), torch.random.get_rng_state()
    draw("ddpm", "v_prediction", table, gaussian("v_prediction", table), steps=3)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("scale", [0.0, 1.0, 2.0, 7.5])
def test_guidance_goes_past_the_label_and_away_from_none(scale: float) -> None:
    """Answer = label + 10·x, so the formula can be read off; 4 stands for “no label”."""
    asked = list[Tensor]()

    def predict(x: Tensor, t: Tensor, labels: Tensor) -> Tensor:
        asked.append(labels)
        return labels.view(-1, 1) + 10 * x

    labels, x = torch.tensor([0, 3]), torch.ones(2, 1)
    answer = guided(predict, labels, null=4, scale=scale)(x, torch.zeros(2).long())
    wanted = 10 * x + 4 + scale * (labels.view(-1, 1) - 4)
    assert torch.allclose(answer, wanted)
    assert len(asked) == (1 if scale == 1 else 2), "without guidance the model is asked once"
    assert torch.equal(asked[0], labels)


def test_guidance_of_one_is_the_label_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(5, 16, generator=generator)
    answer = guided(lambda x, t, labels: table[labels], torch.tensor([1, 2]), null=4, scale=1.0)
    assert torch.equal(answer(torch.zeros(2, 16), torch.zeros(2).long()), table[1:3])


def _linear_denoiser() -> tuple[Callable, list[torch.dtype]]:
    generator = torch.Generator().manual_seed(0)
    layer, kinds = nn.Linear(64, 64), list[torch.dtype]()
    with torch.no_grad():
        layer.weight.copy_(torch.randn(64, 64, generator=generator) / 8)

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        answer = layer(x)
        kinds.append(answer.dtype)
        return answer

    return denoise, kinds


def test_fp32_even_inside_autocast() -> None:
    table = schedule()
    denoise, kinds = _linear_denoiser()
    plain = draw("ddim", "v_prediction", table, denoise, steps=5)
    with torch.autocast("cpu", torch.bfloat16):
        inside = draw("ddim", "v_prediction", table, denoise, steps=5)
    assert set(kinds) == {torch.float32}
    assert torch.equal(inside, plain)


def test_autocast_would_change_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of the above: without exact_float32 the same call answers in bf16."""
    from contextlib import nullcontext

    from safelight.diffusion import sampling

    table = schedule()
    denoise, kinds = _linear_denoiser()
    plain = draw("ddim", "v_prediction", table, denoise, steps=5)
    monkeypatch.setattr(sampling, "exact_float32", lambda device: nullcontext())
    with torch.autocast("cpu", torch.bfloat16):
        inside = draw("ddim", "v_prediction", table, denoise, steps=5)
    assert torch.bfloat16 in kinds
    assert not torch.equal(inside, plain)


@pytest.mark.parametrize("enabled", [True, False])
def test_exact_float32_changes_tf32_and_nothing_else(enabled: bool) -> None:
    """`cudnn.flags(allow_tf32=False)` alone would also turn cuDNN off."""
    cudnn = torch.backends.cudnn

    def state() -> tuple:
        return (
            cudnn.enabled,
            cudnn.benchmark,
            cudnn.deterministic,
            cudnn.allow_tf32,
            torch.get_float32_matmul_precision(),
        )

    torch.set_float32_matmul_precision("high")
    try:
        with cudnn.flags(enabled=enabled, benchmark=True, deterministic=True, allow_tf32=True):
            before = state()
            with exact_float32(CPU):
                assert state() == (enabled, True, True, False, "highest")
            assert state() == before == (enabled, True, True, True, "high")
    finally:
        torch.set_float32_matmul_precision("highest")


def test_no_gradient_is_kept() -> None:
    table = schedule()
    denoise, _ = _linear_denoiser()
    assert not draw("ddim", "v_prediction", table, denoise, steps=2).requires_grad


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_clamped_answer_stands_for_a_clamped_image_with_the_noise_that_agrees(prediction: Prediction) -> None:
    table = schedule()
    x, t = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([10, 400, 900])
    far = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(1)) * 5
    answer = clamped(lambda x, t: far, vp(table.alphas_cumprod), prediction)(x, t)
    a, s = (per_sample(each[t].float(), x) for each in (table.signal_scale, table.noise_scale))
    image, noise = to_x0(prediction, answer, x, a, s), to_noise(prediction, answer, x, a, s)
    assert image.abs().max() <= 1 + 1e-4
    torch.testing.assert_close(a * image + s * noise, x, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(image, to_x0(prediction, far, x, a, s).clamp(-1, 1), atol=1e-3, rtol=1e-3)


# Continuous time. Few steps make every sampler too narrow.
CONTINUOUS = [
    (process, prediction, sampler)
    for process in ("flow", "edm")
    for prediction in get_args(Prediction)
    for sampler in ("euler", "heun", "dpm-solver++")
    if (process, prediction) != ("flow", "epsilon")  # refused by config.check
]
NARROWER = {"euler": 0.06, "heun": 0.015, "dpm-solver++": 0.015}  # measured at 100 steps: 0.04, 0.01, 0.01


def best_answer(settings: Diffusion, mean: float = MEAN, std: float = STD) -> Callable:
    """Of the best denoiser there is for images whose pixels are N(mean, std²)."""
    process, target = make_process(settings), make_target(settings.prediction, settings.sigma_data)

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        a, s = (per_sample(each, x).to(x) for each in process.at(t))
        off = (x - a * mean) / (a**2 * std**2 + s**2)
        return target_of(target, mean + a * std**2 * off, s * off, a, s)

    return denoise


def draw_continuous(settings: Diffusion, sampler: Sampler, steps: int = 100, **how: Any) -> Tensor:
    noise = torch.randn(4, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    return sample(best_answer(settings, **how), noise, make_solver(sampler, settings), steps=steps)


@pytest.mark.parametrize(("process", "prediction", "sampler"), CONTINUOUS)
def test_continuous_time_recovers_a_known_gaussian(process: str, prediction: Prediction, sampler: Sampler) -> None:
    images = draw_continuous(Diffusion(process=process, prediction=prediction), sampler)  # type: ignore[arg-type]
    assert float(images.mean()) == pytest.approx(MEAN, abs=0.01)
    assert float(images.std()) == pytest.approx(STD, rel=NARROWER[sampler])


@pytest.mark.parametrize("process", ["flow", "edm"])
def test_the_second_half_of_a_step_pays(process: str) -> None:
    settings = Diffusion(process=process, prediction=process)  # type: ignore[arg-type]
    euler, heun = (abs(float(draw_continuous(settings, which, 20).std()) / STD - 1) for which in ("euler", "heun"))  # type: ignore[arg-type]
    assert heun < euler / 2


@pytest.mark.parametrize("prediction", ["flow", "edm"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_table_takes_the_targets_of_other_processes(prediction: Prediction, sampler: Sampler) -> None:
    images = draw_continuous(Diffusion(prediction=prediction), sampler)
    assert float(images.std()) == pytest.approx(STD, rel=WITHIN[sampler])


def test_a_wrong_sign_between_training_and_sampling_would_be_seen() -> None:
    settings = Diffusion(process="flow", prediction="flow")
    noise = torch.randn(4, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    right = best_answer(settings)
    images = sample(lambda x, t: -right(x, t), noise, make_solver("euler", settings), steps=20)
    assert abs(float(images.std()) / STD - 1) > 0.5


def test_times_of_a_flow_are_even_before_the_shift() -> None:
    seen = list[float]()
    settings = Diffusion(process="flow", prediction="flow", shift=3.0)
    solver, noise = make_solver("euler", settings), torch.zeros(1, 1, 2, 2)
    sample(lambda x, t: x, noise, solver, steps=4, on_step=lambda t, x: seen.append(t))
    assert seen == pytest.approx([1, 0.9, 0.75, 0.5])


@pytest.mark.parametrize(("process", "sampler"), [("flow", "ddim"), ("edm", "ddpm"), ("vp", "euler"), ("vp", "heun")])
def test_a_sampler_of_another_process_is_refused_in_words(process: str, sampler: Sampler) -> None:
    with pytest.raises(UsageError, match=f"sampler is {sampler}, but a process of kind {process} has"):
        make_solver(sampler, Diffusion(process=process))  # type: ignore[arg-type]


@pytest.mark.parametrize("process", ["flow", "edm"])
def test_a_clamped_answer_of_continuous_time(process: str) -> None:
    settings = Diffusion(process=process, prediction=process)  # type: ignore[arg-type]
    made, target = make_process(settings), make_target(process)
    x, t = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0.1, 0.5, 0.9])
    far = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(1)) * 5
    a, s = (per_sample(each, x).float() for each in made.at(t))
    image = to_x0(target, clamped(lambda x, t: far, made, target)(x, t), x, a, s)
    torch.testing.assert_close(image, to_x0(target, far, x, a, s).clamp(-1, 1), atol=1e-4, rtol=1e-4)
