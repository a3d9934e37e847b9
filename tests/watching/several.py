"""One of several processes that train together, for test_watch: once without and once with the watch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from loops import Denoiser, batches
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import safelight


def train(folder: Path, *, watched: bool) -> list[float]:
    torch.manual_seed(0)
    rank, norms = distributed.get_rank(), []
    inner = Denoiser().eval()
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watch = safelight.watch(model, optimizer, run=folder / "run") if watched else None
    for number, (x, noise, t) in enumerate(batches(24)):
        if number % 2 != rank:
            continue
        last = number % 4 >= 2  # two micro-batches of each process in a step
        model.require_backward_grad_sync = last
        loss = (model(x, t) - noise).square().mean()
        loss.backward()
        if last:
            gradients = [p.grad for p in inner.parameters() if p.grad is not None]
            norms.append(float(torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients]))))
            optimizer.step()
            optimizer.zero_grad()
        if watch is not None:
            watch.step(loss)
    if watch is not None:
        watch.close()
    flat = torch.cat([p.detach().reshape(-1) for p in inner.parameters()])
    (folder / f"{rank}{watched}.weights").write_bytes(flat.numpy().tobytes())
    return norms


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    place = Path(sys.argv[1])
    train(place, watched=False)
    found = train(place, watched=True)
    if distributed.get_rank() == 0:
        (place / "norms.json").write_text(json.dumps(found))
    distributed.destroy_process_group()
