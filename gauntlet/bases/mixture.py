"""Base `mixture`: eight Gaussians on a ring, a small network with a class label, a sampler of its own; seconds."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from gauntlet.bases.ddim import ddim
from gauntlet.hyperparameters import make_optimizer, make_table
from gauntlet.loop import Loop
from gauntlet.options import Options

MODES, RADIUS, DEVIATION = 8, 0.75, 0.06
WIDTH = 64


class Sinusoid(nn.Module):
    """Sines and cosines of t, as in Ho et al. 2020."""

    def forward(self, t: Tensor) -> Tensor:
        rates = torch.exp(-math.log(10_000) * torch.arange(WIDTH // 2) / (WIDTH // 2))
        angles = t.float()[:, None] * rates
        return torch.cat([angles.sin(), angles.cos()], dim=1)


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm1, self.linear1 = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.time_emb_proj, self.dropout = nn.Linear(WIDTH, WIDTH), nn.Dropout(dropout)
        self.norm2, self.linear2 = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, h: Tensor, embedding: Tensor) -> Tensor:
        inner = self.linear1(nn.functional.silu(self.norm1(h))) + self.time_emb_proj(nn.functional.silu(embedding))
        return h + self.linear2(self.dropout(nn.functional.silu(self.norm2(inner))))


class Denoiser(nn.Module):
    """Its organs are named as in diffusers' U-Net, so that one operation fits both."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.conv_in = nn.Linear(2, WIDTH)
        self.time_proj = Sinusoid()
        self.time_embedding = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.class_embedding = nn.Embedding(MODES + 1, WIDTH) if options.conditional else None
        self.blocks = nn.ModuleList([Block(options.dropout) for _ in range(3)])
        self.conv_norm_out, self.conv_out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2)
        if options.zero_init:
            nn.init.zeros_(self.conv_out.weight)
            nn.init.zeros_(self.conv_out.bias)

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        embedding = self.time_embedding(self.time_proj(t))
        if self.class_embedding is not None:
            nothing = torch.full((len(x),), MODES, device=x.device)
            embedding = embedding + self.class_embedding(nothing if labels is None else labels)
        h = self.conv_in(x)
        for block in self.blocks:
            h = block(h, embedding)
        return self.conv_out(nn.functional.silu(self.conv_norm_out(h)))


class Average:
    """A copy of the model that follows it, slowly after a start."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.module, self.decay, self.count = copy.deepcopy(model).eval().requires_grad_(False), decay, 0

    @torch.no_grad()
    def step(self, parameters: Iterable[nn.Parameter]) -> None:
        self.count += 1
        decay = min(self.decay, (1 + self.count) / (10 + self.count))
        for shadow, parameter in zip(self.module.parameters(), parameters, strict=True):
            shadow.lerp_(parameter.detach(), 1 - decay)


def draw_points(count: int, seed: int, spread: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, MODES, (count,), generator=generator)
    angles = labels * (2 * math.pi / MODES)
    centres = RADIUS * torch.stack([angles.cos(), angles.sin()], dim=1)
    return spread * (centres + DEVIATION * torch.randn(count, 2, generator=generator)).clamp(-1, 1), labels


def build_mixture(options: Options, seed: int) -> Loop:
    torch.manual_seed(seed)
    model = Denoiser(options)
    if options.frozen:
        model.time_embedding.requires_grad_(False)
    return Loop(
        "mixture",
        options,
        seed,
        model=model,
        optimizer=make_optimizer(options, [p for p in model.parameters() if p.requires_grad]),
        ema=None if options.ema is None else Average(model, options.ema),
        schedule=make_table(options.schedule, options.timesteps),
        data=draw_points(options.count, seed, options.spread),
        held=draw_points(512, seed + 1_000_003, options.spread),
        null=MODES,
        sampler=lambda loop, chosen, noise: ddim(chosen, noise, loop.table, options.prediction),
    )
