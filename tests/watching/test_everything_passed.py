"""A loop that shows all it has: every probe is asked, and no byte of it is another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import safelight
from safelight.record.history import open_history

STEPS = 40
ALPHAS = torch.cumprod(1 - torch.linspace(1e-3, 0.2, 100, dtype=torch.float64), 0)
DATA = torch.rand(64, 1, 4, 4, generator=torch.Generator().manual_seed(7)) * 2 - 1


class Net(nn.Module):
    """Of (x, t, label), with dropout."""

    def __init__(self, *, normed: bool = False) -> None:
        super().__init__()
        self.time, self.label = nn.Embedding(100, 16), nn.Embedding(5, 16)
        self.body, self.out, self.drop = nn.Linear(16, 16), nn.Linear(16, 16), nn.Dropout(0.3)
        self.norm = nn.BatchNorm1d(16) if normed else nn.Identity()

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        hidden = self.norm(self.body(x.flatten(1)) + self.time(t) + self.label(label))
        return self.out(self.drop(functional.silu(hidden))).view_as(x)


def refuse_words(text: str) -> None:
    """Of a loop that shows everything and is healthy: the verdict at the end, and nothing else."""
    if not text.startswith("Safelight: Nothing was found"):
        pytest.fail(text)


def sampler(model: Any, noise: Tensor) -> Tensor:
    """DDIM over all timesteps; draws random numbers of its own, as many do."""
    x = noise
    torch.rand(1)
    with torch.no_grad():
        for t in reversed(range(100)):
            kept, less = ALPHAS[t], ALPHAS[t - 1] if t else torch.ones((), dtype=torch.float64)
            epsilon = model(x, torch.full((len(x),), t))
            clean = (x - (1 - kept).sqrt() * epsilon) / kept.sqrt()
            x = (less.sqrt() * clean + (1 - less).sqrt() * epsilon).to(noise.dtype)
    return x


def loop(path: Path | None, *, accumulate: int = 1, normed: bool = False, **how: Any) -> tuple[list[bytes], Any]:
    torch.manual_seed(0)
    model, average = Net(normed=normed), Net(normed=normed)
    average.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, **how)
    watch = None
    if path is not None:
        watch = safelight.watch(model, optimizer, run=path, ema=average, schedule=ALPHAS, prediction="epsilon",
                                sampler=sampler, data=DATA, say=refuse_words)  # fmt: skip
    for number in range(STEPS * accumulate):
        x0 = DATA[torch.randint(0, 64, (16,))]
        noise, t, label = torch.randn_like(x0), torch.randint(0, 100, (16,)), torch.randint(0, 5, (16,))
        kept = ALPHAS[t].float().view(-1, 1, 1, 1)
        x_t = kept.sqrt() * x0 + (1 - kept).sqrt() * noise
        pred = model(x_t, t, label)
        loss = functional.mse_loss(pred, noise)
        (loss / accumulate).backward()
        if (number + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for shadow, live in zip(average.parameters(), model.parameters(), strict=True):
                    shadow.lerp_(live, 0.1)
        if watch is not None:
            watch.step(loss, t=t, x0=x0, noise=noise, x_t=x_t, target=noise, pred=pred, labels=label)
    moments = [v for entry in optimizer.state.values() for v in entry.values() if isinstance(v, Tensor)]
    tensors = [*model.state_dict().values(), *average.state_dict().values(), *moments, torch.get_rng_state()]
    if watch is not None:
        watch.close()
    return [tensor.detach().numpy().tobytes() for tensor in tensors], watch


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"accumulate": 3},
        {"fused": True},
        {"normed": True},
    ],
    ids=str,
)
def test_with_and_without_watch_everything_is_the_same_bytes(tmp_path: Path, how: dict[str, Any]) -> None:
    alone, _ = loop(None, **how)
    watched, watch = loop(tmp_path / "run", **how)
    assert watched == alone
    assert watch._probe_runner.broken == {}
    with open_history(tmp_path / "run" / "record.sqlite") as history:
        families = {name.split("/")[1] for name in history.signals() if name.startswith("check/")}
    wanted = "average batch data forward labels loss network noise optimizer replay sampler schedule search sentinel"
    assert families >= {*wanted.split(), "stream", "target", "update"}
    assert [finding.cause for finding in safelight.diagnose(tmp_path / "run")] == []


def test_a_sampler_that_drew_from_the_loop_would_be_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without the shield around it, the sampler's own random number changes the weights."""
    alone, _ = loop(None)
    monkeypatch.setattr("safelight.probes.sampler.torch.random.fork_rng", lambda *_, **__: Nothing())
    assert loop(tmp_path / "run")[0] != alone


class Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...
