"""Base `plain`: a loop of diffusers' own parts over handwritten digits of 8 px, as a tutorial would have it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gauntlet.hyperparameters import make_optimizer
from gauntlet.loop import Loop
from gauntlet.options import Options

CLASSES, SAMPLING_STEPS = 10, 20


class Conditioned(nn.Module):
    """The U-Net called as model(x, t[, label]); no label is a label of its own."""

    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        nothing = torch.full((len(x),), CLASSES, device=x.device)
        return self.unet(x, t, class_labels=nothing if labels is None else labels).sample


@functools.cache
def digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    found: Any = load_digits()
    order = np.random.default_rng(0).permutation(len(found.images))
    images = torch.from_numpy(found.images[order]).float()[:, None] / 8 - 1
    return images, torch.from_numpy(found.target[order]).long()


def make_unet(options: Options) -> nn.Module:
    from diffusers.models.unets.unet_2d import UNet2DModel

    unet = UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        add_attention=False,
        dropout=options.dropout,
        num_class_embeds=CLASSES + 1 if options.conditional else None,
    )
    if options.zero_init:
        nn.init.zeros_(unet.conv_out.weight)
    return unet


def walk(loop: Loop, model: nn.Module, noise: Tensor, scheduler: Any = None) -> Tensor:
    """A sampler over a scheduler of diffusers that shares the betas of training."""
    scheduler = make_sampler(loop) if scheduler is None else scheduler
    scheduler.set_timesteps(SAMPLING_STEPS)
    x = noise
    with torch.no_grad():
        for t in scheduler.timesteps:
            answer = model(x, t.expand(len(x)))
            x = scheduler.step(getattr(answer, "sample", answer), t, x).prev_sample
    return x


def make_sampler(loop: Loop, **changes: Any) -> Any:
    from diffusers.schedulers.scheduling_ddim import DDIMScheduler

    said = {
        "num_train_timesteps": loop.options.timesteps,
        "beta_schedule": "linear" if loop.options.schedule == "linear" else "squaredcos_cap_v2",
        "prediction_type": loop.options.prediction,
        "timestep_spacing": "trailing",
        "clip_sample_range": max(1.0, loop.options.spread),
    }
    scheduler: Any = DDIMScheduler(**{**said, **changes})
    if "beta_schedule" not in changes:
        scheduler.alphas_cumprod = loop.table.clone()
    return scheduler


def build_plain(options: Options, seed: int) -> Loop:
    from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
    from diffusers.training_utils import EMAModel

    torch.manual_seed(seed)
    unet = make_unet(options)
    model = unet if options.bare or not options.conditional else Conditioned(unet)
    if options.frozen:
        unet.get_submodule("time_embedding").requires_grad_(False)
    images, labels = digits()
    images = images * options.spread
    beta_schedule = "linear" if options.schedule == "linear" else "squaredcos_cap_v2"
    return Loop(
        "plain",
        options,
        seed,
        model=model,
        optimizer=make_optimizer(options, [p for p in model.parameters() if p.requires_grad]),
        ema=None if options.ema is None else EMAModel(model.parameters(), decay=options.ema),
        schedule=DDPMScheduler(num_train_timesteps=options.timesteps, beta_schedule=beta_schedule),
        data=(images[: options.count].clone(), labels[: options.count].clone()),
        held=(images[1500:], labels[1500:]),
        null=CLASSES,
        sampler=walk,
    )
