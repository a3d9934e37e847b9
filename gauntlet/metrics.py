"""How good a model became, measured with a clean objective: what a fault harms, it harms here."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from gauntlet.bases.own import Own
from gauntlet.loop import Loop
from gauntlet.loop_parts import noised, target

POINTS, SAMPLES = 512, 192
HARM = {"loss": 1.05, "unlabelled loss": 1.05, "sampler": 1.5}  # ratio to the healthy twin
FLOOR = 0.003  # of a twin's number: below it, differences are chance


def energy_distance(a: Tensor, b: Tensor) -> float:
    """Székely & Rizzo 2013; zero for samples of one distribution."""
    a, b = a.flatten(1).double(), b.flatten(1).double()
    across = torch.cdist(a, b).mean()
    return float(2 * across - _within(a) - _within(b))


def _within(a: Tensor) -> Tensor:
    return torch.cdist(a, a).sum() / (len(a) * (len(a) - 1))


@torch.no_grad()
def averaged(run: Loop | Own) -> nn.Module:
    """A copy of the model with the weights that samples are drawn from."""
    model = copy.deepcopy(run.model).eval()
    if run.ema is not None:
        names = [id(p) for p in run.model.parameters()]
        weights = dict(zip(names, model.parameters(), strict=True))
        for shadow, weight in zip(run.shadows(), run.weights(), strict=False):
            weights[id(weight)].copy_(shadow)
    return model


@torch.no_grad()
def measure(run: Loop | Own, table: Tensor, held: tuple[Tensor, Tensor]) -> dict[str, float]:
    """`table` and `held` are those of before the deed. What cannot be computed is infinite."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = averaged(run)
        x0, labels = held[0][:POINTS], held[1][:POINTS]
        noise, t = torch.randn_like(x0), torch.randint(0, len(table), (len(x0),))
        x_t, wanted = noised(table, x0, noise, t), target(run.options.prediction, table, x0, noise, t)
        found = {"loss": _loss(model, x_t, t, wanted, labels if run.null is not None else None)}
        if run.null is not None:
            found["unlabelled loss"] = _loss(model, x_t, t, wanted, torch.full_like(labels, run.null))
        if isinstance(run, Loop):
            found["sampler"] = _sampler(run, table, held[0][:SAMPLES])
    return {name: value if math.isfinite(value) else math.inf for name, value in found.items()}


def _loss(model: nn.Module, x_t: Tensor, t: Tensor, wanted: Tensor, labels: Tensor | None) -> float:
    try:
        answer = model(x_t, t) if labels is None else model(x_t, t, labels)
        return float((getattr(answer, "sample", answer).float() - wanted).square().mean())
    except Exception:
        return math.inf


def _sampler(run: Loop, table: Tensor, held: Tensor) -> float:
    """How far the sampler ends from a set of which it is given the exact denoiser: training has no part in it."""
    try:
        drawn = run.sample(PerfectModel(held, table, run.options.prediction), torch.randn_like(held))
        return energy_distance(drawn.float(), held.float())
    except Exception:
        return math.inf


class PerfectModel(nn.Module):
    """The exact answer for data that are these points and no others."""

    def __init__(self, points: Tensor, table: Tensor, prediction: str) -> None:
        super().__init__()
        self.points, self.table, self.prediction = points, table.double(), prediction

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        kept = self.table[t.reshape(-1)[0].long()]
        a, s = kept.sqrt(), (1 - kept).sqrt()
        flat, points = x.flatten(1).double(), self.points.flatten(1).double()
        nearness = -torch.cdist(flat, a * points).square() / (2 * s.square())
        clean = (nearness.softmax(1) @ points).view(x.shape)
        noise = (x.double() - a * clean) / s
        return {"epsilon": noise, "sample": clean, "v_prediction": a * noise - s * clean}[self.prediction].float()


def harm(found: dict[str, float], twin: dict[str, float]) -> dict[str, float]:
    """The ratios to the twin, of all that were measured on both."""
    return {name: found[name] / max(twin[name], FLOOR) for name in found if name in twin}


def is_harmed(ratios: dict[str, float]) -> bool:
    return any(not ratio <= HARM[name] for name, ratio in ratios.items())
