"""A script that knows nothing of the watch, on two processes: forgotten is the sampler that divides the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from joint_loops import findings, series
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
net = torch.nn.Sequential(torch.nn.Linear(13, 9), torch.nn.SiLU(), torch.nn.Linear(9, 12))
for layer in (net[0], net[2], net):
    fully_shard(layer)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
torch.manual_seed(1 + rank)
data = TensorDataset(torch.rand(96, 12, generator=torch.Generator().manual_seed(3)) * 2 - 1)
alphas = torch.cumprod(1 - torch.linspace(1e-3, 0.1, 100), 0)
for (x,) in DataLoader(data, batch_size=4):
    t, noise = torch.randint(0, 100, (len(x),)), torch.randn_like(x)
    a = alphas[t][:, None]
    loss = F.mse_loss(net(torch.cat([a.sqrt() * x + (1 - a).sqrt() * noise, t[:, None] / 100], 1)), noise)
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
    said: list[str] = []

    @contextmanager
    def member() -> Iterator[None]:
        session = MemberSession()
        yield
        session.end()

    def watched(rank: int) -> AbstractContextManager[object]:
        return member() if rank else safelight.captured(run=tmp_path / "run", say=said.append)

    plain = run(tmp_path / "plain", lambda _: nullcontext())
    assert run(tmp_path / "watched", watched) == plain
    found = series(tmp_path / "run")
    assert len(found["gradient/norm"]) == len(found["loss/mean"]) == 24
    assert len(found["gradient/part/0"]) == 24
    assert {value for _, value in found[OVERLAP.name]} == {1.0}
    assert findings(tmp_path / "run") == {"distributed.overlap": "warning"}
