"""Two processes that train together, for test_watch: once without and once with the watch."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import torch
from loops import Denoiser, batches
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import safelight

COUNT = 2
PATIENCE = timedelta(seconds=300)


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


def main(place: Path, rank: int) -> None:
    """What one process does. They meet in a file: a port that was free a moment ago may be another's by now."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(COUNT)}  # as a launcher tells them
    store = distributed.FileStore(str(place / "meeting"), COUNT)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=COUNT, timeout=PATIENCE)
    train(place, watched=False)
    found = train(place, watched=True)
    if rank == 0:
        (place / "norms.json").write_text(json.dumps(found))
    store.set(f"done {rank}", "")  # who hangs up first would take the other's last answer along
    store.wait([f"done {each}" for each in range(COUNT)], PATIENCE)
    distributed.destroy_process_group()


def fork(place: Path, rank: int) -> int:
    """Starts one process after the imports, which take seconds; its id."""
    if child := os.fork():
        return child
    code = 1
    try:
        main(place, rank)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    torch.set_num_threads(1)  # before any operation: the threads of a pool do not survive a fork
    living = {fork(Path(sys.argv[1]), rank) for rank in range(COUNT)}
    while living:
        child, status = os.wait()
        living.discard(child)
        if status:  # the other would wait for it
            for other in living:
                os.kill(other, signal.SIGKILL)
            sys.exit(f"a process ended with {os.waitstatus_to_exitcode(status)}")
