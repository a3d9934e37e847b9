"""Samplers: diffusers' schedulers on our schedule, driven in fp32 from per-image noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from safelight.config.tree import Prediction, Sampler
from safelight.diffusion.objective import per_sample
from safelight.diffusion.schedule import NoiseSchedule
from safelight.diffusion.targets import from_x0, to_x0

Denoiser = Callable[[Tensor, Tensor], Tensor]  # (x_t, t [batch]) -> the model's answer
OnStep = Callable[[int, Tensor], None]  # gets (t, x_t), before it is denoised


def make_scheduler(sampler: Sampler, schedule: NoiseSchedule, prediction: Prediction) -> Any:
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
            scheduler = DDPMScheduler(**shared, clip_sample=True, variance_type="fixed_small")
        case "dpm-solver++":
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
    scheduler: Any,
    *,
    steps: int,
    generators: list[torch.Generator] | None = None,
    on_step: Callable[[int, Tensor], None] | None = None,
) -> Tensor:
    """Images in [-1, 1] from noise. `on_step` gets the image at each timestep."""
    scheduler.set_timesteps(steps, device=noise.device)
    extra = {} if generators is None else {"generator": generators}
    x = noise.float() * scheduler.init_noise_sigma
    with exact_float32(noise.device):
        for t in scheduler.timesteps:
            if on_step is not None:
                on_step(int(t), x)
            answer = denoise(x, t.expand(len(x))).float()
            x = scheduler.step(answer, t, x, **extra).prev_sample
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


def clamped(denoise: Denoiser, schedule: NoiseSchedule, prediction: Prediction) -> Denoiser:
    """Answers whose clean image stays in [-1, 1], and whose noise agrees with it.

    Schedulers clamp the image but keep the noise of the unclamped one. Guidance leaves [-1, 1] so far that this
    pushes samples away from their class.
    """

    def answer(x: Tensor, t: Tensor) -> Tensor:
        a, s = (per_sample(table.to(x)[t], x) for table in (schedule.signal, schedule.noise))
        image = to_x0(prediction, denoise(x, t), x, a, s)
        return from_x0(prediction, image.clamp(-1, 1), x, a, s)

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
