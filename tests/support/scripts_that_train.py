"""A training script as somebody else would write it, tiny; what it does at its end is appended."""

from __future__ import annotations

LOOP = """
import sys, atexit
import torch, torch.nn.functional as F

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.time = torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.Linear(2, 8)
        self.out = torch.nn.Conv2d(8, 1, 3, padding=1)
    def forward(self, x, t):
        t = t.float()[:, None] / 1000
        return self.out(F.silu(self.inside(x) + self.time(torch.cat([t, 1 - t], 1))[:, :, None, None]))

torch.manual_seed(0)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
images = torch.rand(64, 1, 8, 8) * 2 - 1
atexit.register(print, "left")

def train(steps):
    for step in range(steps):
        x0, t = images[torch.randint(0, 64, (16,))], torch.randint(0, 1000, (16,))
        noise, a = torch.randn_like(x0), alphas[t].view(-1, 1, 1, 1)
        x_t = a.sqrt() * x0 + (1 - a).sqrt() * noise
        loss = F.mse_loss(net(x_t, t), TARGET)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def training_script(end: str, target: str = "noise") -> str:
    return LOOP.replace("TARGET", target) + end
