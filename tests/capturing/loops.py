"""Training loops as people write them; none knows anything of Safelight."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
STEPS, BATCH = 4, 16
IMAGES = torch.rand(64, 2, 4, 4, generator=torch.Generator().manual_seed(7))
LABELS = torch.randint(0, 5, (64,), generator=torch.Generator().manual_seed(8))
ONE_DRAW = torch.randn(BATCH, 2, 8, 8, generator=torch.Generator().manual_seed(9))
ALPHAS = torch.cumprod(1 - torch.linspace(1e-3, 0.2, 100), 0)


class Net(nn.Module):
    """Of (x, t), with a label if it is given one."""

    def __init__(self, channels: int = 2, out: int = 2, *, labelled: bool = False) -> None:
        super().__init__()
        self.inner: nn.Module = nn.Conv2d(channels, 8, 3, padding=1)
        self.out = nn.Conv2d(8, out, 3, padding=1)
        self.time, self.label = nn.Linear(1, 8), nn.Embedding(5, 8) if labelled else None

    def forward(self, x: Tensor, t: Tensor, y: Tensor | None = None) -> Tensor:
        h = self.inner(x) + self.time(t.reshape(-1, 1).float() / 100).view(len(x), 8, 1, 1)
        h = h if y is None or self.label is None else h + self.label(y).view(len(x), 8, 1, 1)
        return self.out(F.silu(h))


def wide(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), 1e-3)


def batches(steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    made = 0
    while True:
        for images, labels in DataLoader(TensorDataset(IMAGES, LABELS), BATCH, shuffle=True):
            if made == steps:
                return
            made += 1
            yield images, labels


def train(loss_of: Loss, model: nn.Module | None = None, *, steps: int = STEPS) -> nn.Module:
    """From a loader, with `* 2 - 1` between it and the noise."""
    model = model or Net()
    optimizer = optimizer_of(model)
    for images, labels in batches(steps):
        loss = loss_of(model, images * 2 - 1, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def noised(x0: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(x_t, t, noise, kept)."""
    t, noise = torch.randint(0, 100, (len(x0),)), torch.randn_like(x0)
    kept = wide(ALPHAS[t])
    return kept.sqrt() * x0 + (1 - kept).sqrt() * noise, t, noise, kept


# --- processes and targets ---------------------------------------------------------------------------------------


def ddpm_epsilon(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    x_t, t, noise, _ = noised(x0)
    return F.mse_loss(model(x_t, t), noise)


def ddpm_v(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    x_t, t, noise, kept = noised(x0)
    return F.mse_loss(model(x_t, t), kept.sqrt() * noise - (1 - kept).sqrt() * x0)


def ddpm_v_before(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    x_t, t, noise, kept = noised(x0)
    target = kept.sqrt() * noise - (1 - kept).sqrt() * x0
    return F.mse_loss(model(x_t, t), target)


def ddpm_x0(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    x_t, t, _, _ = noised(x0)
    return (model(x_t, t) - x0).square().mean()


def flow_to_noise(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    t, noise = torch.rand(len(x0)), torch.randn(x0.shape)
    target = noise - x0
    x_t = (1 - wide(t)) * x0 + wide(t) * noise
    return ((model(x_t, t * 1000) - target) ** 2).mean()


def flow_to_data(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    t, start = torch.sigmoid(torch.randn(len(x0))), torch.randn_like(x0)
    x_t = torch.lerp(start, x0, wide(t))
    return F.mse_loss(model(x_t, t), x0 - start)


def drawn(draw: Callable[[Tensor], Tensor]) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    """With noise that is drawn in another way."""

    def loss(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
        t, noise = torch.rand(len(x0)), draw(x0)
        return F.mse_loss(model((1 - wide(t)) * x0 + wide(t) * noise, t), noise - x0)

    return loss


def with_noise(noise_of: Callable[[Tensor], Tensor], *, limit: float = 100.0) -> Callable[..., Tensor]:
    """DDPM on larger images, with noise that is made in another way, or x_t that is cut off."""

    def loss(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
        x0 = x0.repeat(1, 1, 2, 2)
        t, noise = torch.randint(0, 100, (len(x0),)), noise_of(x0)
        kept = wide(ALPHAS[t])
        x_t = kept.sqrt() * x0 + (1 - kept).sqrt() * noise
        return F.mse_loss(model(x_t if limit == 100 else x_t.clamp(-limit, limit), t), noise)

    return loss


def of_numpy(x0: Tensor) -> Tensor:
    generator = np.random.default_rng(int(torch.randint(1 << 30, ())))  # the same noise after torch.manual_seed
    return torch.from_numpy(generator.standard_normal(x0.shape, dtype="float32"))


def drawn_into(x0: Tensor) -> Tensor:
    noise = torch.empty_like(x0)
    torch.normal(torch.zeros_like(x0), 1.0, out=noise)
    return noise


def sigmas(count: int) -> Tensor:
    return (torch.randn([count, 1, 1, 1]) * 1.2 - 1.2).exp()


class Preconditioned(nn.Module):
    """As EDM's."""

    def __init__(self, *, scaled: bool = True) -> None:
        super().__init__()
        self.model, self.scaled = Net(), scaled

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        sigma = wide(sigma)
        c_skip, c_out = 0.25 / (sigma**2 + 0.25), sigma * 0.5 / (sigma**2 + 0.25).sqrt()
        c_in, c_noise = 1 / (0.25 + sigma**2).sqrt(), sigma.log() / 4
        return c_skip * x + c_out * self.model(c_in * x if self.scaled else x, c_noise.flatten())


def edm_outside(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    """The optimizer holds the preconditioned network."""
    sigma = sigmas(len(x0))
    weight = (sigma**2 + 0.25) / (sigma * 0.5) ** 2
    noise = torch.randn_like(x0) * sigma
    return (weight * (model(x0 + noise, sigma) - x0) ** 2).sum().mul(1 / len(x0))


def edm_inside(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    """The preconditioning is written into the loop."""
    sigma = sigmas(len(x0))
    x_t = x0 + torch.randn_like(x0) * sigma
    c_skip, c_out = 0.25 / (sigma**2 + 0.25), sigma * 0.5 / (sigma**2 + 0.25).sqrt()
    denoised = c_skip * x_t + c_out * model(x_t / (0.25 + sigma**2).sqrt(), sigma.log().flatten() / 4)
    weight = (sigma**2 + 0.25) / (sigma * 0.5) ** 2
    return (weight * (denoised - x0) ** 2).mean()


def exploding(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    """Score matching: the network answers with the noise over its size."""
    sigma = 0.01 * (50 / 0.01) ** torch.rand(len(x0))
    noise = torch.randn_like(x0)
    score = model(x0 + wide(sigma) * noise, sigma)
    return torch.mean(torch.sum((score * wide(sigma) + noise) ** 2, dim=(1, 2, 3)))


def fresh_noise(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    x_t, t, _, _ = noised(x0)
    return F.mse_loss(model(x_t, t), torch.randn_like(x0))


def weighted(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    x_t, t, noise, kept = noised(x0)
    each = F.mse_loss(model(x_t, t), noise, reduction="none").mean(dim=(1, 2, 3))
    return (each * torch.minimum(kept / (1 - kept), torch.tensor(5.0)).flatten()).mean()


def masked(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    x_t, t, noise, _ = noised(x0)
    mask = torch.ones_like(x0)
    mask[:, :, :2] = 0
    return ((noise - model(x_t, t)).abs() * mask).sum() / mask.sum()


def labelled(model: nn.Module, x0: Tensor, y: Tensor) -> Tensor:
    x_t, t, noise, _ = noised(x0)
    return nn.MSELoss()(model(x=x_t, t=t, y=y), noise)


def half(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    x_t, t, noise, _ = noised(x0)
    with torch.autocast("cpu", torch.bfloat16):
        pred = model(x_t, t)
    return F.mse_loss(pred.float(), noise.float())


def shared_noise(*shape: int) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    """One draw for all samples of a batch."""

    def loss(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
        t, noise = torch.randint(0, 100, (len(x0),)), torch.randn(shape)
        kept = wide(ALPHAS[t])
        return F.mse_loss(model(kept.sqrt() * x0 + (1 - kept).sqrt() * noise, t), noise.expand(x0.shape))

    return loss


def offset_noise(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    noise = torch.randn_like(x0)
    noise += 0.1 * torch.randn(len(x0), 2, 1, 1)
    t = torch.randint(0, 100, (len(x0),))
    kept = wide(ALPHAS[t])
    return F.mse_loss(model(kept.sqrt() * x0 + (1 - kept).sqrt() * noise, t), noise)


def perturbed_input(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    noise = torch.randn_like(x0)
    shown = noise + 0.1 * torch.randn_like(noise)
    t = torch.randint(0, 100, (len(x0),))
    kept = wide(ALPHAS[t])
    return F.mse_loss(model(kept.sqrt() * x0 + (1 - kept).sqrt() * shown, t), noise)


def inpainting(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    """Mask and masked image are further channels."""
    x_t, t, noise, _ = noised(x0)
    mask = torch.ones(len(x0), 1, 4, 4)
    mask[:, :, 1:3, 1:3] = 0
    return F.mse_loss(model(torch.cat([x_t, mask, x0 * mask], dim=1), t), noise)


class Sequence(nn.Module):
    """Of packed tokens [samples, tokens, width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, 16), nn.Linear(16, width)

    def forward(self, x: Tensor, timestep: Tensor) -> Tensor:
        return self.last(F.silu(self.first(x) + timestep.view(-1, 1, 1)))


def packed(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    """As Flux: 2 × 2 pixels are one token, the loss is taken on images."""
    t, noise = torch.rand(len(x0)), torch.randn_like(x0)
    x_t = (1 - wide(t)) * x0 + wide(t) * noise
    tokens = x_t.view(-1, 2, 2, 2, 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(-1, 4, 8)
    answer = model(tokens, timestep=t).reshape(-1, 2, 2, 2, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(x0.shape)
    return F.mse_loss(answer, noise - x0)


def one_time(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    """One time for the whole batch, as a number."""
    t, noise = torch.randint(0, 100, (1,)), torch.randn_like(x0)
    kept = ALPHAS[t]
    return F.mse_loss(model(kept.sqrt() * x0 + (1 - kept).sqrt() * noise, t.expand(len(x0))), noise)


def classifier(model: nn.Module, x0: Tensor, y: Tensor) -> Tensor:
    """No diffusion at all."""
    return F.cross_entropy(model(x0, torch.zeros(len(x0))).mean(dim=(2, 3)), y % 2)


# --- tables -------------------------------------------------------------------------------------------------------


def clamped(read: Callable[[Tensor, Tensor], Tensor]) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    """The last entry is clamped, and not drawn; the table is made in the step, so that the one before is seen, too."""

    def loss(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
        angle = (torch.arange(100) + 1) / 100 * torch.pi / 2
        table = torch.cos(angle).square().clamp(1e-3, 1)
        t, noise = torch.randint(0, 98, (len(x0),)), torch.randn_like(x0)
        kept = wide(read(table, t))
        return F.mse_loss(model(kept.sqrt() * x0 + (1 - kept).sqrt() * noise, t), noise)

    return loss


def rounded(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    """Of the two tables that are read, one tells nothing of how little signal is left at the end."""
    alphas = torch.cat([ALPHAS, torch.tensor([1e-10])])
    signal, spread = alphas.sqrt(), (1 - alphas).sqrt()
    t, noise = torch.randint(0, 99, (len(x0),)), torch.randn_like(x0)
    return F.mse_loss(model(wide(signal[t]) * x0 + wide(spread[t]) * noise, t), noise)


def unrooted(clean: float, noise: float) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    """Powers of a and s: 1 where a square root is missing."""

    def loss(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
        t, drawn = torch.randint(0, 100, (len(x0),)), torch.randn_like(x0)
        kept = wide(ALPHAS[t])
        return F.mse_loss(model(kept**clean * x0 + (1 - kept) ** noise * drawn, t), drawn)

    return loss


def flow_by_table(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
    """Noise levels that are read of a table."""
    t, noise = torch.randint(0, 100, (len(x0),)), torch.randn_like(x0)
    kept = wide(ALPHAS[t])
    return F.mse_loss(model(kept * x0 + (1 - kept) * noise, t), noise - x0)


# --- loops of another make ---------------------------------------------------------------------------------------


class Wrapper(nn.Module):
    """As denoising-diffusion-pytorch: its forward takes images and returns a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Net()
        self.register_buffer("alphas", ALPHAS)

    def p_losses(self, x: Tensor, t: Tensor) -> Tensor:
        noise = torch.randn_like(x)
        kept = wide(self.get_buffer("alphas").gather(-1, t))
        out = self.model(kept.sqrt() * x + (1 - kept).sqrt() * noise, t)
        return F.mse_loss(out, noise, reduction="none").flatten(1).mean(1).mean()

    def forward(self, images: Tensor) -> Tensor:
        return self.p_losses(images * 2 - 1, torch.randint(0, 100, (len(images),)).long())


def wrapped(steps: int = STEPS, *, blur: float = 0.0) -> nn.Module:
    """`blur`: noise that is added to images as an augmentation."""
    model = Wrapper()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for images, _ in batches(steps):
        optimizer.zero_grad()
        model(images + blur * torch.randn_like(images) if blur else images).backward()
        optimizer.step()
    return model


def indexed(steps: int = STEPS) -> nn.Module:
    """A data set that is one tensor."""
    model, data = Net(), IMAGES * 2 - 1
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(steps):
        loss = ddpm_epsilon(model, data[torch.randint(0, 64, (BATCH,))], LABELS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def accumulated(steps: int = STEPS, loss_of: Loss = ddpm_epsilon, *, in_training: bool = True) -> nn.Module:
    model = Net().train(in_training)
    optimizer = optimizer_of(model)
    for number, (images, labels) in enumerate(batches(3 * steps)):
        loss = loss_of(model, images * 2 - 1, labels) / 3
        loss.backward()
        if number % 3 == 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.5)
            optimizer.step()
            optimizer.zero_grad()
    return model


def scaled(steps: int = STEPS) -> nn.Module:
    model, scaler = Net(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = optimizer_of(model)
    for images, labels in batches(steps):
        loss = ddpm_epsilon(model, images * 2 - 1, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return model


def closed(steps: int = STEPS) -> nn.Module:
    """Backward inside of the optimizer's step, as Lightning does it."""
    model = Net()
    optimizer = optimizer_of(model)
    for images, labels in batches(steps):

        def closure(images: Tensor = images, labels: Tensor = labels) -> Tensor:
            optimizer.zero_grad()
            loss = ddpm_epsilon(model, images * 2 - 1, labels)
            loss.backward()
            return loss

        optimizer.step(closure)  # pyright: ignore[reportCallIssue, reportArgumentType]
    return model


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(2, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def latent(steps: int = STEPS) -> nn.Module:
    """Samples of a frozen encoder, times a latent scale."""
    model, encoder = Net(4, 4), Encoder().requires_grad_(False)
    optimizer = optimizer_of(model)
    for images, labels in batches(steps):
        with torch.no_grad():
            mean, spread = encoder(images * 2 - 1).chunk(2, dim=1)
        latents = (mean + spread.exp() * torch.randn_like(mean)) * 0.18215
        loss = ddpm_epsilon(model, latents, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


class Autoencoder(nn.Module):
    """As that of diffusers: `encode` calls its layers, and never itself."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.out = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.SiLU()), nn.Conv2d(8, 4, 1)

    def encode(self, x: Tensor) -> Tensor:
        return self.out(self.encoder(x))


def latent_of_autoencoder(steps: int = STEPS) -> nn.Module:
    """Nothing of it is frozen: it is called without gradients."""
    model, autoencoder = Net(4, 4), Autoencoder()
    optimizer = optimizer_of(model)
    for images, labels in batches(steps):
        with torch.no_grad():
            latents = autoencoder.encode(images * 2 - 1) * 0.18215
        loss = ddpm_epsilon(model, latents, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def noised_by_scheduler(declared: str, trained: str, steps: int = 20) -> nn.Module:
    """By one of diffusers that says `declared`, and a target that is `trained`."""
    from diffusers import DDPMScheduler

    model, scheduler = Net(), DDPMScheduler(100, prediction_type=declared)
    optimizer = optimizer_of(model)
    for images, _ in batches(steps):
        x0, noise, t = images * 2 - 1, torch.randn(images.shape), torch.randint(0, 100, (len(images),))
        x_t = scheduler.add_noise(x0, noise, t)  # pyright: ignore[reportArgumentType]
        targets = {"epsilon": noise, "sample": x0, "v_prediction": scheduler.get_velocity(x0, noise, t)}  # type: ignore[arg-type]
        loss = F.mse_loss(model(x_t, t), targets[trained])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def averaged(kind: str, steps: int = 12) -> nn.Module:
    """With an EMA of one of several kinds, 0.9 each."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    held: Any
    if kind == "module":
        held = copy.deepcopy(model).requires_grad_(False)
    elif kind == "diffusers":
        from diffusers.training_utils import EMAModel

        held = EMAModel(model.parameters(), decay=0.9, use_ema_warmup=False, min_decay=0.9)
    else:
        held = {name: value.detach().clone() for name, value in model.named_parameters()}
    for images, labels in batches(steps):
        loss = ddpm_epsilon(model, images * 2 - 1, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            if kind == "module":
                for shadow, live in zip(held.parameters(), model.parameters(), strict=True):
                    shadow.lerp_(live, 0.1)
            elif kind == "diffusers":
                held.step(model.parameters())
            else:
                for name, live in model.named_parameters():
                    held[name] = 0.9 * held[name] + 0.1 * live
    return model


class Lora(nn.Module):
    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base
        self.down, self.up = nn.Conv2d(2, 1, 1), nn.Conv2d(1, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


def adapted_late(steps: int = STEPS) -> nn.Module:
    """Adapters are added, and all else frozen, after the optimizer was made."""
    model = Net()
    optimizer = optimizer_of(model)
    model.requires_grad_(False)
    model.inner = Lora(model.inner)
    for images, labels in batches(steps):
        loss = ddpm_epsilon(model, images * 2 - 1, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def in_parts(steps: int = STEPS) -> nn.Module:
    """A function calls the parts of a network, and nobody the network."""
    parts = nn.ModuleDict({"first": nn.Conv2d(2, 8, 3, padding=1), "last": nn.Conv2d(8, 2, 5, padding=2)})

    def model(x: Tensor, t: Tensor) -> Tensor:
        return parts["last"](parts["first"](x) + t.float().view(-1, 1, 1, 1) / 100)

    optimizer = optimizer_of(parts)
    for images, labels in batches(steps):
        loss = ddpm_epsilon(model, images * 2 - 1, labels)  # pyright: ignore[reportArgumentType]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parts


def by_two_optimizers(steps: int = STEPS) -> nn.Module:
    model = Net()
    matrices, others = ([p for p in model.parameters() if (p.dim() > 1) == flag] for flag in (True, False))
    optimizers = torch.optim.AdamW(matrices, 1e-3), torch.optim.SGD(others, 1e-2)
    for images, labels in batches(steps):
        loss = ddpm_epsilon(model, images * 2 - 1, labels)
        for each in optimizers:
            each.zero_grad()
        loss.backward()
        for each in optimizers:
            each.step()
    return model


def still_ema(updates_at: int | None = None, *, sampled: bool = False, steps: int = 20) -> nn.Module:
    """With a copy that is an EMA by name: updated from some step on, or never."""
    model = Net()
    ema = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for step, (images, labels) in enumerate(batches(steps)):
        loss = ddpm_epsilon(model, images * 2 - 1, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for shadow, live in zip(ema.parameters(), model.parameters(), strict=True):
                if updates_at is not None and step >= updates_at:
                    shadow.lerp_(live, 0.1)
            for t in reversed(range(8)) if sampled and step == 10 else ():
                ema(images, torch.full((len(images),), t))
    return model


def packed_model() -> nn.Module:
    return Sequence(8)
