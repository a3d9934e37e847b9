"""Samplers driven by a network that knows the answer: right ones pass, wrong ones are readings by their mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from diffusers import DDIMScheduler, DDPMScheduler, DPMSolverMultistepScheduler, UNet2DModel
from torch import Tensor, nn

from safelight.config.tree import Diffusion, Prediction
from safelight.diagnosis.doctor import examine
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory
from safelight.diffusion.process import vp
from safelight.diffusion.sampling import make_solver, sample
from safelight.diffusion.schedule import make_process
from safelight.diffusion.targets import TARGETS
from safelight.probes.forward_pass import ProcessSpec
from safelight.probes.sampler import PerfectModel, accepts, draw, is_right, measure_sampler

SHAPE = (1, 4, 4)
PLAIN = {"num_train_timesteps": 1000, "clip_sample": False}
TYPES: tuple[Prediction, ...] = ("epsilon", "sample", "v_prediction")

Draw = Callable[[nn.Module, Tensor], Any]


def sampler_of(scheduler: Any, steps: int = 20, *, skip: int = 0, finish: Any = None) -> Draw:
    def draw(model: nn.Module, noise: Tensor) -> Tensor:
        scheduler.set_timesteps(steps)
        x = noise
        with torch.no_grad():
            for t in scheduler.timesteps[skip:]:
                x = scheduler.step(model(x, t), t, x).prev_sample
        return x if finish is None else finish(x)

    return draw


def ddim(prediction: Prediction = "epsilon", **how: Any) -> DDIMScheduler:
    return DDIMScheduler(**{**PLAIN, "prediction_type": prediction, "timestep_spacing": "trailing"} | how)


def ddpm(prediction: Prediction = "epsilon", **how: Any) -> DDPMScheduler:
    return DDPMScheduler(**{**PLAIN, "prediction_type": prediction, "timestep_spacing": "trailing"} | how)


def look(sampler: Draw, prediction: Prediction = "epsilon", alphas: Tensor | None = None) -> dict[str, float]:
    table = DDPMScheduler(**PLAIN).alphas_cumprod.double() if alphas is None else alphas
    return measure_sampler(sampler, ProcessSpec(table, prediction), SHAPE, 1.0, torch.device("cpu"))


def causes(readings: dict[str, float]) -> list[str]:
    return [
        f.cause
        for f in examine(
            RunHistory(InMemoryReadings({f"check/{name}": ([0], [value]) for name, value in readings.items()}))
        )
    ]


@pytest.mark.parametrize("prediction", TYPES)
@pytest.mark.parametrize("make", [ddim, ddpm])
def test_sound_samplers_pass(make: Any, prediction: Prediction) -> None:
    readings = look(sampler_of(make(prediction)), prediction)
    assert is_right(readings)
    assert causes(readings) == []
    assert (readings["sampler/calls"], readings["sampler/first"], readings["sampler/falling"]) == (20, 1, 1)
    assert readings["sampler/left"] < 1e-5


def to_pixels(x: Tensor) -> Tensor:
    return x / 2 + 0.5


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("few steps", sampler_of(ddim(), 10)),
        ("leading", sampler_of(ddim(timestep_spacing="leading"), 20)),
        (
            "DPM-Solver++",
            sampler_of(DPMSolverMultistepScheduler(num_train_timesteps=1000, timestep_spacing="trailing")),
        ),
        ("[0, 1]", sampler_of(ddim(), finish=to_pixels)),
        ("[0, 255]", sampler_of(ddim(), finish=lambda x: 255 * to_pixels(x))),
        ("clipped at 1, where the data end", sampler_of(ddim(clip_sample=True))),
        ("channels last", sampler_of(ddim(), finish=lambda x: x.movedim(1, -1))),
        ("numpy", sampler_of(ddim(), finish=lambda x: x.numpy())),
    ],
)
def test_odd_and_sound(name: str, sampler: Draw) -> None:
    assert causes(look(sampler)) == []


def with_noise(x: Tensor) -> Tensor:
    return x + 0.05 * torch.randn_like(x)


def counting(model: nn.Module, noise: Tensor) -> Tensor:
    """The number of the step in place of the timestep."""
    scheduler: Any = ddim()
    scheduler.set_timesteps(20)
    x = noise
    with torch.no_grad():
        for number, t in enumerate(scheduler.timesteps):
            x = scheduler.step(model(x, torch.tensor(19 - number)), t, x).prev_sample
    return x


def in_training(model: nn.Module, noise: Tensor) -> Tensor:
    model.train()
    return sampler_of(ddim())(model, noise)


def with_gradients(model: nn.Module, noise: Tensor) -> Tensor:
    scheduler: Any = ddim()
    scheduler.set_timesteps(10)
    x = noise
    for t in scheduler.timesteps:
        x = scheduler.step(model(x, t), t, x).prev_sample
    return x.detach()


@pytest.mark.parametrize(
    ("name", "sampler", "cause"),
    [
        ("noise at the end", sampler_of(ddim(), finish=with_noise), "sampler.last-noise"),
        ("right for the image", sampler_of(ddim("sample")), "sampler.other-type"),
        ("right for v", sampler_of(ddim("v_prediction")), "sampler.other-type"),
        ("another table", sampler_of(ddim(beta_schedule="squaredcos_cap_v2")), "sampler.other-schedule"),
        ("clipped", sampler_of(ddim(clip_sample=True, clip_sample_range=0.4)), "sampler.clipped"),
        ("begins in the middle", sampler_of(ddim(), skip=10), "sampler.starts-late"),
        ("the number of the step", counting, "sampler.wrong"),
        ("ends in the middle", sampler_of(ddim(), finish=lambda x: 0.5 * x), "sampler.wrong"),
        ("nothing", lambda model, noise: torch.zeros_like(noise), "sampler.wrong"),
        ("in training mode", in_training, "mode.train-in-sampling"),
        ("with gradients", with_gradients, "system.sampling-with-gradients"),
    ],
)
def test_wrong_samplers_are_told_by_their_mistake(name: str, sampler: Draw, cause: str) -> None:
    assert causes(look(sampler)) == [cause]


def test_samples_that_are_not_finite() -> None:
    readings = look(sampler_of(ddim(), finish=lambda x: x * math.nan))
    assert readings["sampler/finite"] == 0
    assert causes(readings) == ["sampler.wrong"]


def test_a_sampler_that_returns_another_shape_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"noise of shape .* into"):
        look(lambda model, noise: noise[:, :, :2])


def test_a_sampler_that_never_ends_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safelight.probes.sampler.MAX_SECONDS", -1.0)
    with pytest.raises(TimeoutError, match="took more than"):
        look(sampler_of(ddim()))


def test_random_numbers_are_as_they_were() -> None:
    torch.manual_seed(3)
    random = torch.get_rng_state()
    look(sampler_of(ddpm()))
    assert torch.equal(random, torch.get_rng_state())


@pytest.mark.parametrize("prediction", TYPES)
def test_the_oracle_knows_the_answer(prediction: Prediction) -> None:
    """At little noise it returns the picture, at much noise the mean of both, which is nothing."""
    alphas = torch.tensor([0.9999, 0.5, 1e-9], dtype=torch.float64)
    picture = torch.full(SHAPE, 0.5, dtype=torch.float64)
    oracle = PerfectModel(vp(alphas), TARGETS["sample"], torch.stack([picture, -picture]), 0.0)
    near = oracle((alphas[0].sqrt() * picture)[None], torch.tensor([0]))
    assert torch.allclose(near, picture[None], atol=1e-6)
    far = oracle(torch.zeros(1, *SHAPE, dtype=torch.float64), torch.tensor([2]))
    assert torch.allclose(far, torch.zeros_like(far), atol=1e-6)
    assert [call.time for call in oracle.calls] == [0.0, 2.0]


def test_what_a_sampler_may_return() -> None:
    class Output:
        images = torch.ones(2, *SHAPE)

    noise = torch.zeros(2, *SHAPE)
    for found in (Output(), (torch.ones(2, *SHAPE),), torch.ones(2, *SHAPE), torch.ones(2, 4, 4, 1).numpy()):
        assert draw(lambda *_, found=found: found, nn.Identity(), noise).shape == noise.shape


@pytest.mark.parametrize(
    ("sampler", "fits"),
    [
        (lambda model, noise: noise, True),
        (lambda model, noise, steps=3: noise, True),
        (lambda *arguments: arguments[1], True),
        (lambda model: model, False),
        (lambda model, noise, labels: noise, False),
        (lambda model, *, noise: noise, False),
    ],
)
def test_how_a_sampler_is_called(sampler: Any, fits: bool) -> None:
    assert accepts(sampler) == fits


def own_sampler(settings: Diffusion, name: Any = "euler", wrong: Callable[[Tensor], Tensor] | None = None) -> Draw:
    """As the trainer samples, or with something wrong in between."""
    process = make_process(settings)

    def draw(model: nn.Module, noise: Tensor) -> Tensor:
        def denoise(x: Tensor, t: Tensor) -> Tensor:
            answer = model(*process.input(x, t))
            return answer if wrong is None else wrong(answer)

        return sample(denoise, noise, make_solver(name, settings), steps=20)

    return draw


@pytest.mark.parametrize("process", ["flow", "edm"])
@pytest.mark.parametrize("name", ["euler", "heun", "dpm-solver++"])
def test_sound_samplers_of_continuous_time_pass(process: Any, name: str) -> None:
    settings = Diffusion(process=process, prediction=process)
    declared = ProcessSpec(None, process, make_process(settings))
    readings = measure_sampler(own_sampler(settings, name), declared, SHAPE, 1.0, torch.device("cpu"))
    assert is_right(readings)
    assert causes(readings) == []
    assert readings["sampler/first"] == pytest.approx(1, abs=0.01)
    assert "sampler/highest_time" not in readings


@pytest.mark.parametrize("process", ["flow", "edm"])
def test_sick_samplers_of_continuous_time_are_named(process: Any) -> None:
    settings = Diffusion(process=process, prediction=process)
    declared = ProcessSpec(None, process, make_process(settings))

    def found(sampler: Draw) -> list[str]:
        return causes(measure_sampler(sampler, declared, SHAPE, 1.0, torch.device("cpu")))

    # Of EDM, schedulers take −F for a prediction type of its own, v_prediction; of a flow it is the opposite velocity.
    assert found(own_sampler(settings, wrong=lambda answer: -answer)) == ["sampler.other-type"]
    assert found(own_sampler(replace(settings, prediction="sample"))) == ["sampler.other-type"]


def unpacking(unpack: Callable[[Any], Tensor], **named: Any) -> Draw:
    """As users of diffusers write samplers."""
    scheduler = ddim()

    @torch.no_grad()
    def draw(model: nn.Module, noise: Tensor) -> Tensor:
        scheduler.set_timesteps(20)
        for t in scheduler.timesteps:
            noise = scheduler.step(unpack(model(noise, t, **named)), t, noise).prev_sample
        return noise

    return draw


@pytest.mark.parametrize(
    ("sampler", "is_of_diffusers"),
    [
        (unpacking(lambda answer: answer.sample), False),
        (unpacking(lambda answer: answer.sample), True),
        (unpacking(lambda answer: answer[0]), True),
        (unpacking(lambda answer: answer[0], return_dict=False), False),
        (unpacking(lambda answer: answer), False),
    ],
)
def test_a_sampler_may_unpack_what_the_network_answers(sampler: Draw, is_of_diffusers: bool) -> None:
    model = UNet2DModel(4, 1, 1, block_out_channels=(8,), norm_num_groups=4, down_block_types=("DownBlock2D",),
                        up_block_types=("UpBlock2D",)) if is_of_diffusers else nn.Identity()  # fmt: skip
    table = DDPMScheduler(**PLAIN).alphas_cumprod.double()
    readings = measure_sampler(sampler, ProcessSpec(table, "epsilon"), SHAPE, 1.0, torch.device("cpu"), model)
    assert causes(readings) == []
    assert is_right(readings)


def test_a_sampler_that_fails_raises_its_own_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'samples'"):
        look(unpacking(lambda answer: answer.samples))
