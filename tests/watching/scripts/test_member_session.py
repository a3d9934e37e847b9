"""`safelight run` with a launcher: a script that knows nothing of the watch, on two processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from joint_loops import findings, series
from launch import Launch

from safelight.vocabulary import OVERLAP

SCRIPT = """
import sys, torch, torch.distributed as dist, torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(13, 9), torch.nn.SiLU(), torch.nn.Linear(9, 12))
for layer in (net[0], net[2], net):
    fully_shard(layer)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
torch.manual_seed(1 + rank)
data = TensorDataset(torch.rand(96, 12, generator=torch.Generator().manual_seed(3)) * 2 - 1)
sampler = None if "same" in sys.argv else DistributedSampler(data)
alphas = torch.cumprod(1 - torch.linspace(1e-3, 0.1, 100), 0)
for (x,) in DataLoader(data, batch_size=4, sampler=sampler):
    t, noise = torch.randint(0, 100, (len(x),)), torch.randn_like(x)
    a = alphas[t][:, None]
    loss = F.mse_loss(net(torch.cat([a.sqrt() * x + (1 - a).sqrt() * noise, t[:, None] / 100], 1)), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(rank, float(sum(p.detach().to_local().double().sum() for p in net.parameters())), flush=True)
dist.destroy_process_group()
"""


def plain(folder: Path) -> str:
    """As it is, in forks: torchrun takes seconds to start."""

    def act(_: int) -> None:
        sys.argv[:] = ["train.py", "same"]
        exec(SCRIPT, {})

    ended = Launch(2, act, folder, OMP_NUM_THREADS="1")
    assert ended.codes() == [0, 0]
    return ended.said(0) + ended.said(1)


def torchrun(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def weights(said: str) -> list[str]:
    return sorted(re.findall(r"^[01] -?\d.*$", said, re.MULTILINE))


def test_a_script_with_fsdp2_is_watched_under_torchrun(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    wanted = weights(plain(tmp_path / "plain"))
    said = torchrun(tmp_path, "-m", "safelight", "run", "train.py", "same")
    assert len(wanted) == 2
    assert weights(said) == wanted
    run = tmp_path / "runs" / "watch-1"
    found = series(run)
    assert len(found["gradient/norm"]) == len(found["loss/mean"]) == 24
    assert {value for _, value in found[OVERLAP.name]} == {1.0}
    assert findings(run) == {"distributed.overlap": "warning"}
    assert said.count("target noise") == 1, "the other process prints nothing"
