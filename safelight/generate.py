"""Images from weights: raw or EMA, sampled in fp32; the model is left unchanged."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from safelight.config.tree import Config, Sampler
from safelight.diffusion.draws import sample_generators
from safelight.diffusion.sampling import Denoiser, OnStep, Variance, clamped, guided, make_solver, sample
from safelight.diffusion.schedule import make_process
from safelight.diffusion.targets import make_target
from safelight.errors import UsageError
from safelight.model.unet import predict

LARGEST_BATCH = 256


@dataclass(frozen=True, slots=True)
class Request:
    """Which images: the same request gives the same images from the same weights."""

    count: int
    seed: int
    sampler: Sampler = "ddim"
    steps: int = 50
    guidance: float = 1.0
    label: int | None = None  # of conditional models; None: all classes in turn
    eta: float = 0.0  # of ddim: share of the noise of ddpm that is added at every step
    temperature: float = 1.0  # deviation of the noise that images begin as
    variance: Variance = "small"  # of ddpm's noise: beta, or the smaller one of the posterior

    def __post_init__(self) -> None:
        if self.eta and self.sampler != "ddim":
            raise UsageError(f"eta is {self.eta:g}, but only the sampler ddim has it, and this is {self.sampler}.")
        if not 0 <= self.eta <= 1 or not 0 < self.temperature <= 10:
            raise UsageError("eta goes from 0 to 1, and temperature is above 0 and at most 10; 1 is usual.")
        if self.variance != "small" and self.sampler != "ddpm":
            raise UsageError(f"variance belongs to the sampler ddpm, and this is {self.sampler}.")


def generate(
    model: nn.Module,
    config: Config,
    request: Request,
    *,
    weights: Mapping[str, Tensor] | None = None,
    on_step: OnStep | None = None,
    rows: tuple[int, int] | None = None,
) -> Tensor:
    """[count, channels, side, side] in [-1, 1], on the host. `weights` stand in for the model's own parameters
    during the call only; `on_step` is shown every batch at every timestep. `rows`: only these of the images."""
    device = next(model.parameters()).device
    done = []
    first, last = rows or (0, request.count)
    with evaluation_mode(model):
        for start in range(first, last, LARGEST_BATCH):
            stop = min(start + LARGEST_BATCH, last)
            generators = sample_generators(request.seed, start, stop)
            shape = (config.data.channels or 3, config.data.image_size, config.data.image_size)
            noise = torch.stack([torch.randn(shape, generator=g) for g in generators]).to(device)
            index = torch.arange(start, stop, device=device)
            denoise = make_denoiser(model, weights, config, request, index)
            solver = make_solver(request.sampler, config.diffusion, request.variance)
            noise = noise if request.temperature == 1 else noise * request.temperature
            images = sample(
                denoise, noise, solver, steps=request.steps, generators=generators, on_step=on_step, eta=request.eta
            )
            done.append(images.cpu())
    return torch.cat(done)


def draw_from(model: nn.Module, noise: Tensor, config: Config, request: Request) -> Tensor:
    """As `generate` does it, from given noise: what a probe drives with a network that knows the answer."""
    index = torch.arange(len(noise), device=noise.device)
    generators = sample_generators(request.seed, 0, len(noise))
    denoise, solver = make_denoiser(model, None, config, request, index), make_solver(request.sampler, config.diffusion)
    return sample(denoise, noise, solver, steps=request.steps, generators=generators)


def counting(request: Request, advance: Callable[[int, int], None]) -> OnStep:
    """An `on_step` that updates a progress bar: (image steps done, total)."""
    done = 0

    def tick(_: float, x: Tensor) -> None:
        nonlocal done
        done += len(x)
        advance(done, request.count * request.steps)

    return tick


def columns_for(config: Config) -> int | None:
    """A grid with one column per class, where there are few enough; else the grid's own choice."""
    classes = config.data.classes or 0
    return classes if config.model.conditional and 2 <= classes <= 16 else None


def make_denoiser(
    model: nn.Module, weights: Mapping[str, Tensor] | None, config: Config, request: Request, index: Tensor
) -> Denoiser:
    """The denoiser of a sampler, for the images at these places of a request."""
    network, process = model if weights is None else WithWeights(model, weights), make_process(config.diffusion)

    def answer(x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        return predict(network, *process.input(x, t), labels)

    if not config.model.conditional:
        return answer
    classes = config.data.classes or 0
    labels = index % classes if request.label is None else torch.full_like(index, request.label)
    denoise = guided(answer, labels, null=classes, scale=request.guidance)
    if request.guidance == 1:
        return denoise  # exactly what a diffusers pipeline would compute
    return clamped(denoise, process, make_target(config.diffusion.prediction, config.diffusion.sigma_data))


class WithWeights(nn.Module):
    """The model with other weights: called like it, sharing nothing that could leak back."""

    def __init__(self, model: nn.Module, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._call = functools.partial(functional_call, model, dict(weights))

    def forward(self, *inputs: Tensor) -> object:
        return self._call(inputs)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """As after eval() inside; afterwards every module is in the mode that it was in, frozen ones too. Modes are set
    without a call of `eval`, which some layers answer by merging weights for good."""
    modes = {module: module.training for module in model.modules()}
    try:
        for module in modes:
            module.training = False
        yield
    finally:
        for module, training in modes.items():
            module.training = training
