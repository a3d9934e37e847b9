"""A program: a loop of someone else's, trained on v and declared epsilon, until its standard input ends."""

from __future__ import annotations

import sys
import threading
import time

import torch
from diffusers import DDPMScheduler
from torch import nn

import safelight


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time, self.body, self.out = nn.Embedding(100, 32), nn.Linear(64 + 32, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.out(self.body(torch.cat([x.flatten(1), self.time(t)], 1)).relu()).view_as(x)


def main(folder: str) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, scheduler = Denoiser(), DDPMScheduler(100, beta_schedule="squaredcos_cap_v2")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    watch = safelight.watch(model, optimizer, run=folder, schedule=scheduler, prediction="epsilon")
    print(time.time(), flush=True)
    while not ended.is_set():
        x0, t = torch.randn(16, 1, 8, 8).clamp(-1, 1), torch.randint(0, 100, (16,))
        noise = torch.randn_like(x0)
        x_t, target = scheduler.add_noise(x0, noise, t), scheduler.get_velocity(x0, noise, t)
        pred = model(x_t, t)
        loss = (pred - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(loss, t=t, x0=x0, noise=noise, x_t=x_t, target=target, pred=pred)
    watch.close()


if __name__ == "__main__":
    main(sys.argv[1])
