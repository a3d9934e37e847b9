"""A script that knows nothing of the watch, on two processes: forgotten is the sampler that divides the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from joint_loops import findings, say_into, series
from launch import Launch

import safelight
from safelight.vocabulary import OVERLAP
from safelight.watching.scripts.member_session import MemberSession

SCRIPT = """
import torch, torch.distributed as dist, torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.time = torch.nn.Embedding(100, 9)  # stays whole until the backward pass, as all of the outermost module
        self.body, self.out = torch.nn.Linear(12, 9), torch.nn.Linear(9, 12)

    def forward(self, x, t):
        return self.out(F.silu(self.body(x) + self.time(t)))

net = Net()
for layer in (net.body, net.out, net):
    fully_shard(layer)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
torch.manual_seed(1 + rank)
data = TensorDataset(torch.rand(192, 12, generator=torch.Generator().manual_seed(3)) * 2 - 1)
alphas = torch.cumprod(1 - torch.linspace(1e-3, 0.1, 100), 0)
for (x,) in DataLoader(data, batch_size=8):
    t, noise = torch.randint(0, 100, (len(x),)), torch.randn_like(x)
    a = alphas[t][:, None]
    loss = F.mse_loss(net(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(rank, float(sum(p.detach().to_local().double().sum() for p in net.parameters())), flush=True)
dist.destroy_process_group()
"""


def run(folder: Path, around: Callable[[int], AbstractContextManager[object]]) -> list[str]:
    """What both processes print, as forks: torchrun takes seconds to start."""

    def act(rank: int) -> None:
        with around(rank):
            exec(SCRIPT, {})

    ended = Launch(2, act, folder, OMP_NUM_THREADS="1")
    assert ended.codes() == [0, 0], ended.said(0) + ended.said(1)
    return [ended.said(rank) for rank in range(2)]


def test_a_script_with_fsdp2_is_watched_on_two_processes(tmp_path: Path) -> None:
    """As `torchrun --nproc-per-node 2 -m safelight run train.py` does it."""

    @contextmanager
    def member() -> Iterator[None]:
        session = MemberSession()
        yield
        session.end()

    def watched(rank: int) -> AbstractContextManager[object]:
        return member() if rank else safelight.captured(run=tmp_path / "run", say=say_into(tmp_path / "run"))

    plain = run(tmp_path / "plain", lambda _: nullcontext())
    assert run(tmp_path / "watched", watched) == plain
    found = series(tmp_path / "run")
    assert len(found["gradient/norm"]) == len(found["loss/mean"]) == 24
    for part in ("time", "body", "out"):
        assert len([value for _, value in found[f"gradient/part/{part}"] if value > 0]) == 24, part
    assert "target noise" in (tmp_path / "run.said").read_text()
    assert {value for _, value in found[OVERLAP.name]} == {1.0}
    assert findings(tmp_path / "run") == {"distributed.overlap": "warning"}
