"""Samplers: diffusers' schedulers on our schedule, driven in fp32 from per-image noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from safelight.config.check import sampler_problem
from safelight.config.tree import Diffusion, Sampler
from safelight.diffusion.process import HIGHEST_SIGMA, LOWEST_SIGMA, Process, per_sample
from safelight.diffusion.schedule import AlphasCumprod, make_process, make_schedule
from safelight.diffusion.targets import TargetCoefficients, convert, from_x0, make_target, to_x0
from safelight.errors import UsageError

Denoiser = Callable[[Tensor, Tensor], Tensor]  # (x_t, t [batch]) -> the model's answer
Variance = Literal["small", "large"]
OnStep = Callable[[float, Tensor], None]  # gets (t, x_t), before it is denoised

NATIVE = ("epsilon", "sample", "v_prediction")  # what diffusers' schedulers of a table take


@dataclass(frozen=True, slots=True)
class Solver:
    """A scheduler of diffusers, and the way from a network's answers to what it expects."""

    scheduler: Any
    process: Process
    target: TargetCoefficients
    """What the network predicts."""
    expected: TargetCoefficients
    """What the scheduler takes."""
    slope: TargetCoefficients | None = None
    """dx_t / dt, where the second half of every step corrects the first (Heun)."""

    def begin(self, steps: int, device: torch.device) -> None:
        """Times are σ, which the scheduler keeps: `timesteps` are what networks are told, and may be rounded."""
        if isinstance(getattr(self.scheduler, "shift", None), float):  # a flow's: evenly spaced before the shift
            self.scheduler.set_timesteps(sigmas=[1 - step / steps for step in range(steps)], device=device)
        else:
            self.scheduler.set_timesteps(steps, device=device)
        if self.process.table is None:
            self.scheduler.set_begin_index(0)

    def times(self) -> list[Tensor]:
        """As the process has them."""
        return list(self.scheduler.timesteps if self.process.table is not None else self.scheduler.sigmas[:-1])

    def step(self, denoise: Denoiser, place: int, x: Tensor, extra: dict[str, Any]) -> Tensor:
        t = self.times()[place].to(x.device)
        told = self.scheduler.timesteps[place]
        if self.process.c_in is not None:
            self.scheduler.scale_model_input(x, told)  # only so that it does not warn: the denoiser scales
        answer = denoise(x, t.expand(len(x))).float()
        found = self.scheduler.step(self._converted(answer, x, t, self.expected), told, x, **extra).prev_sample
        following = self.scheduler.sigmas[place + 1].to(x.device) if self.slope is not None else t
        if self.slope is None or following == 0:
            return found
        second = self._converted(denoise(found, following.expand(len(x))).float(), found, following, self.slope)
        return x + ((found - x) + (following - t) * second) / 2

    def _converted(self, answer: Tensor, x: Tensor, t: Tensor, other: TargetCoefficients) -> Tensor:
        if self.target is other:
            return answer
        a, s = (per_sample(each, x).to(x) for each in self.process.at(t.reshape(1)))
        return convert(self.target, other, answer, x, a, s)


def make_solver(sampler: Sampler, settings: Diffusion, variance: Variance = "small") -> Solver:
    """x0 is clamped where the scheduler can. `variance`: of the noise that ddpm adds."""
    if problem := sampler_problem(settings.process, sampler):
        raise UsageError(f"The sampler is {sampler}, {problem}")
    process, target = make_process(settings), make_target(settings.prediction, settings.sigma_data)
    if settings.process == "vp":
        native = settings.prediction if settings.prediction in NATIVE else "v_prediction"
        expected = target if native == settings.prediction else make_target(native)
        scheduler = make_scheduler(sampler, make_schedule(settings), native, variance)
        return Solver(scheduler, process, target, expected)
    expected = make_target(settings.process, settings.sigma_data)
    if settings.prediction == settings.process:
        expected = target
    slope = make_target("flow" if settings.process == "flow" else "epsilon")
    return Solver(
        make_continuous_scheduler(sampler, settings), process, target, expected, slope if sampler == "heun" else None
    )


def make_continuous_scheduler(sampler: Sampler, settings: Diffusion) -> Any:
    """A scheduler of a flow or of EDM, with the shift and the deviation of training. Heun's second half is ours:
    diffusers has none for EDM, and its own for flows shifts twice."""
    from diffusers import (
        DPMSolverMultistepScheduler,
        EDMDPMSolverMultistepScheduler,
        EDMEulerScheduler,
        FlowMatchEulerDiscreteScheduler,
    )

    # With a largest value of 1, "thresholding" is a plain clamp of x0 to [-1, 1].
    clamp: dict[str, Any] = {"thresholding": True, "sample_max_value": 1.0}
    ends: dict[str, Any] = {"sigma_min": LOWEST_SIGMA, "sigma_max": HIGHEST_SIGMA, "sigma_data": settings.sigma_data}
    if sampler == "dpm-solver++":
        if settings.process == "edm":
            return EDMDPMSolverMultistepScheduler(**ends, **clamp)
        return DPMSolverMultistepScheduler(
            **clamp, prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=settings.shift
        )
    if settings.process == "edm":
        return EDMEulerScheduler(**ends)
    return FlowMatchEulerDiscreteScheduler(shift=settings.shift)


def make_scheduler(sampler: Sampler, schedule: AlphasCumprod, prediction: str, variance: Variance = "small") -> Any:
    """A diffusers scheduler with the very betas of training, x0 clamped, starting from the last timestep."""
    from diffusers import DDIMScheduler, DDPMScheduler, DPMSolverMultistepScheduler

    shared: dict[str, Any] = {
        "num_train_timesteps": len(schedule),
        "trained_betas": schedule.betas.tolist(),
        "prediction_type": prediction,
        # "leading", the default elsewhere, never reaches the last timesteps: it starts from noise, at a timestep that
        # stands for a faint image.
        "timestep_spacing": "trailing",
    }
    scheduler: Any
    match sampler:
        case "ddim":
            scheduler = DDIMScheduler(**shared, clip_sample=True, set_alpha_to_one=True)
        case "ddpm":
            scheduler = DDPMScheduler(
                **shared, clip_sample=True, variance_type="fixed_large" if variance == "large" else "fixed_small"
            )
        case _:  # dpm-solver++
            # With a largest value of 1, "thresholding" is a plain clamp of x0 to [-1, 1].
            scheduler = DPMSolverMultistepScheduler(
                **shared, algorithm_type="dpmsolver++", thresholding=True, sample_max_value=1.0
            )
    if schedule.alphas_cumprod[-1] == 0 and sampler == "dpm-solver++":
        scheduler.alphas_cumprod[-1] = 2**-24  # its log-SNR would be minus infinity
        scheduler.alpha_t = scheduler.alphas_cumprod.sqrt()
        scheduler.sigma_t = (1 - scheduler.alphas_cumprod).sqrt()
        scheduler.lambda_t = scheduler.alpha_t.log() - scheduler.sigma_t.log()
        scheduler.sigmas = ((1 - scheduler.alphas_cumprod) / scheduler.alphas_cumprod) ** 0.5
    return scheduler


@torch.no_grad()
def sample(
    denoise: Denoiser,
    noise: Tensor,
    solver: Solver,
    *,
    steps: int,
    generators: list[torch.Generator] | None = None,
    on_step: OnStep | None = None,
    eta: float = 0.0,
) -> Tensor:
    """Images in [-1, 1] from noise. `on_step` gets the image at each timestep. `eta`: of ddim."""
    solver.begin(steps, noise.device)
    extra: dict[str, Any] = {} if generators is None or solver.process.table is None else {"generator": generators}
    extra |= {"eta": eta} if eta else {}
    x = noise.float() * getattr(solver.scheduler, "init_noise_sigma", 1.0)
    with exact_float32(noise.device):
        for place, t in enumerate(solver.times()):
            if on_step is not None:
                on_step(t.item(), x)
            x = solver.step(denoise, place, x, extra)
    return x.clamp(-1, 1)


def guided(predict: Callable[[Tensor, Tensor, Tensor], Tensor], labels: Tensor, null: int, scale: float) -> Denoiser:
    """Classifier-free guidance: past the labelled answer, away from the unlabelled one. Scale 1 is none."""

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        labelled = predict(x, t, labels)
        if scale == 1:
            return labelled
        plain = predict(x, t, torch.full_like(labels, null))
        return plain + scale * (labelled - plain)

    return denoise


def clamped(denoise: Denoiser, process: Process, target: str | TargetCoefficients) -> Denoiser:
    """Answers whose clean image stays in [-1, 1], and whose noise agrees with it.

    Schedulers clamp the image but keep the noise of the unclamped one. Guidance leaves [-1, 1] so far that this
    pushes samples away from their class.
    """

    def answer(x: Tensor, t: Tensor) -> Tensor:
        a, s = (per_sample(each, x).to(x) for each in process.at(t))
        image = to_x0(target, denoise(x, t), x, a, s)
        return from_x0(target, image.clamp(-1, 1), x, a, s)

    return answer


@contextmanager
def exact_float32(device: torch.device) -> Iterator[None]:
    """No autocast and no TF32: what is sampled is what the weights say."""
    cudnn, matmul = torch.backends.cudnn, torch.get_float32_matmul_precision()
    # All flags by name: those left out would be set to their defaults, and that of `enabled` is False.
    kept = cudnn.flags(
        enabled=cudnn.enabled, benchmark=cudnn.benchmark, deterministic=cudnn.deterministic, allow_tf32=False
    )
    with torch.autocast(device.type, enabled=False), kept:
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(matmul)
