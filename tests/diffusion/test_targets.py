"""One algebra: every process, every target and every time, to the image, to the noise and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from safelight.config.tree import Diffusion
from safelight.diffusion.process import Process, cosine_flow, edm, linear_flow, per_sample, vp
from safelight.diffusion.schedule import make_process
from safelight.diffusion.targets import (
    TARGETS,
    Row,
    TargetCoefficients,
    convert,
    edm_target,
    error_of_x0,
    from_x0,
    row_of,
    target_of,
    to_noise,
    to_x0,
)
from tests.diffusion.test_objective import batch

PROCESSES: dict[str, Process] = {
    **{name: make_process(Diffusion(schedule=name)) for name in ("cosine", "linear", "scaled-linear", "sigmoid")},
    "few": vp(torch.tensor([0.9, 0.5, 0.1], dtype=torch.float64)),
    "flow": linear_flow(),
    "flow-3": linear_flow(3.0),
    "cosine-flow": cosine_flow(),
    "edm": edm(),
    "edm-0.2": edm(0.2, 0.01, 20.0),
    "functions": Process(lambda t: (1 - t) ** 2, lambda t: t.sqrt()),
}
EVERY: dict[str, TargetCoefficients] = {**TARGETS, "edm-0.2": edm_target(0.2), "edm-1": edm_target(1.0)}
CASES = list(itertools.product(PROCESSES, EVERY))
EXACT = 1e-12
WELL_CONDITIONED = 100.0


def times(process: Process) -> Tensor:
    """All timesteps, or 101 times between the ends; where there is both signal and noise."""
    if process.timesteps is not None:
        return torch.arange(process.timesteps)
    share = torch.linspace(0.005, 0.995, 101, dtype=torch.float64)
    return process.first * (process.last / process.first) ** share if process.first else share


def matrices(process: Process, target: TargetCoefficients, t: Tensor) -> Tensor:
    """What makes (x_t, y) of (x0, noise), at each time, both rows scaled to length 1."""
    a, s = process.at(t)
    p, q = (torch.as_tensor(each, dtype=torch.float64).expand_as(a) for each in target(a, s))
    return torch.nn.functional.normalize(torch.stack([torch.stack([a, s], 1), torch.stack([p, q], 1)], 1), dim=2)


def errors(
    process: Process, told: TargetCoefficients, understood: TargetCoefficients, t: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of the image, of the noise and of the answer itself, over their sizes, at each time: an answer that is made as
    `told`, read as `understood`, and made again."""
    x0, noise = batch(len(t))
    a, s = (per_sample(each, x0) for each in process.at(t))
    x_t, answer = a * x0 + s * noise, target_of(told, x0, noise, a, s)
    image, found = to_x0(understood, answer, x_t, a, s), to_noise(understood, answer, x_t, a, s)
    pairs = (image, x0), (found, noise), (target_of(understood, image, found, a, s), answer)
    first, second, third = ((one - other).abs().amax((1, 2, 3)) / other.abs().amax((1, 2, 3)) for one, other in pairs)
    return first, second, third


@pytest.mark.parametrize(("process", "target"), CASES)
def test_to_image_to_noise_and_back(process: str, target: str) -> None:
    t = times(PROCESSES[process])
    image, noise, again = errors(PROCESSES[process], EVERY[target], EVERY[target], t)
    condition = torch.linalg.cond(matrices(PROCESSES[process], EVERY[target], t))
    a, s = PROCESSES[process].at(t)
    assert (again <= EXACT).all()
    # What the matrix loses where the image or the noise is hardly there is not to be had by any formula.
    assert (image <= EXACT * condition.clamp(min=1) * (s / a).clamp(min=1)).all()
    assert (noise <= EXACT * condition.clamp(min=1) * (a / s).clamp(min=1)).all()
    calm = (condition < WELL_CONDITIONED) & (s / a < WELL_CONDITIONED) & (a / s < WELL_CONDITIONED)
    assert int(calm.sum()) >= len(t) // 3
    assert float(torch.maximum(image, noise)[calm].max()) <= EXACT


def flipped(target: TargetCoefficients) -> Iterator[TargetCoefficients]:
    """The same with the sign of p or of q wrong."""

    def with_signs(one: float, other: float) -> TargetCoefficients:
        def row(a: Tensor, s: Tensor) -> Row:
            p, q = target(a, s)
            return one * p, other * q

        return row

    yield with_signs(-1.0, 1.0)
    yield with_signs(1.0, -1.0)


@pytest.mark.parametrize(("process", "target"), CASES)
def test_a_wrong_sign_of_any_coefficient_is_seen(process: str, target: str) -> None:
    """Negative control of the above: with one sign wrong, what comes out is not what went in."""
    chosen, t = PROCESSES[process], times(PROCESSES[process])
    a, s = chosen.at(t)
    clear = (s / a < 5) & (a / s < 5)
    p, q = EVERY[target](a, s)
    for wrong, coefficient in zip(flipped(EVERY[target]), (p, q), strict=True):
        if isinstance(coefficient, Tensor) or coefficient != 0:
            image, noise, _ = errors(chosen, EVERY[target], wrong, t)
            assert float(torch.maximum(image, noise)[clear].min()) > 1e-3
    for wrong in (
        Process(lambda t: -chosen.signal_scale(t), chosen.noise_scale, chosen.table),
        Process(chosen.signal_scale, lambda t: -chosen.noise_scale(t), chosen.table),
    ):
        x0, noise = batch(len(t))
        wide, bad = ([per_sample(each, x0) for each in made.at(t)] for made in (chosen, wrong))
        x_t = bad[0] * x0 + bad[1] * noise
        answer = target_of(EVERY[target], x0, noise, *wide)
        image = to_x0(EVERY[target], answer, x_t, *wide), to_noise(EVERY[target], answer, x_t, *wide)
        apart = torch.maximum((image[0] - x0).abs(), (image[1] - noise).abs()).amax((1, 2, 3))
        assert float(apart[clear].min()) > 1e-3


def test_definitions_are_those_of_the_papers() -> None:
    """Independent of the rows: derivatives, a gradient and the formulas of EDM."""
    x0, noise = batch(1)
    t, tiny = torch.tensor([0.3], dtype=torch.float64), 1e-6

    def x_at(process: Process, t: Tensor) -> Tensor:
        a, s = process.at(t)
        return a * x0 + s * noise

    def answer(target: str | TargetCoefficients, process: Process) -> Tensor:
        return target_of(target, x0, noise, *process.at(t))

    def slope(process: Process) -> Tensor:
        return (x_at(process, t + tiny) - x_at(process, t - tiny)) / (2 * tiny)

    assert torch.allclose(answer("flow", linear_flow()), slope(linear_flow()), atol=1e-8)
    assert torch.allclose(answer("reverse_flow", linear_flow()), -slope(linear_flow()), atol=1e-8)
    turning = answer("v_prediction", cosine_flow()) * torch.pi / 2
    assert torch.allclose(turning, slope(cosine_flow()), atol=1e-8)

    a, s = linear_flow().at(t)
    x_t = x_at(linear_flow(), t).requires_grad_()
    density = -(x_t - a * x0).square().sum() / (2 * s**2)
    assert torch.allclose(answer("score", linear_flow()), torch.autograd.grad(density.sum(), x_t)[0])

    sigma, deviation = 0.3, 0.7
    skip, out = deviation**2 / (sigma**2 + deviation**2), sigma * deviation / (sigma**2 + deviation**2) ** 0.5
    wanted = (x0 - skip * (x0 + sigma * noise)) / out
    assert torch.allclose(answer(edm_target(deviation), edm(deviation)), wanted, atol=1e-14)
    assert torch.allclose(answer(edm_target(1.0), cosine_flow()), -answer("v_prediction", cosine_flow()), atol=1e-14)


@pytest.mark.parametrize(("one", "other"), list(itertools.product(EVERY, EVERY)))
def test_any_answer_survives_a_conversion(one: str, other: str) -> None:
    """Also a wrong answer: what it says of image and noise, told as another target, is the same answer."""
    t = torch.linspace(0.1, 0.9, 6, dtype=torch.float64)
    x_t, answer = batch(6)
    a, s = (per_sample(each, x_t) for each in linear_flow().at(t))
    told = convert(EVERY[one], EVERY[other], answer, x_t, a, s)
    assert torch.allclose(convert(EVERY[other], EVERY[one], told, x_t, a, s), answer, rtol=0, atol=EXACT * 100)
    assert torch.allclose(from_x0(EVERY[one], to_x0(EVERY[one], answer, x_t, a, s), x_t, a, s), answer, atol=1e-11)


@pytest.mark.parametrize("target", EVERY)
def test_the_error_of_the_image_is_the_derivative(target: str) -> None:
    a, s = linear_flow().at(torch.tensor([0.3], dtype=torch.float64))
    x_t, zero, one = (torch.full((1,), number, dtype=torch.float64) for number in (0.4, 0.0, 1.0))
    slope = to_x0(EVERY[target], one, x_t, a, s) - to_x0(EVERY[target], zero, x_t, a, s)
    assert float(error_of_x0(EVERY[target], a, s)) == pytest.approx(abs(float(slope)), rel=1e-12)


def test_what_is_the_answer_itself_needs_neither_signal_nor_noise() -> None:
    zero, one, answer = torch.zeros(1), torch.ones(1), torch.tensor([0.3])
    assert torch.equal(to_noise("epsilon", answer, answer, zero, one), answer), "at zero terminal SNR"
    assert torch.equal(to_x0("sample", answer, answer, one, zero), answer)
    assert row_of("v_prediction", zero, one) == (-1, 0)
