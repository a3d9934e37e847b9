"""Loops on several processes as people write them, with what goes wrong there: tiny, and the same in every process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from launch import Launch
from loops import ALPHAS
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import safelight
from safelight.record.history import open_history
from safelight.record.reading import read_signal

CPU = torch.device("cpu")
PROCESSES, STEPS = 2, 12
Fault = Callable[[int, dict[str, Any]], None]


class Small(nn.Module):
    """Of (x, t), with sizes that no number of processes divides."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.time, self.body, self.out = nn.Embedding(100, 7), nn.Linear(12, 7), nn.Linear(7, 12)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.out(nn.functional.silu(self.body(x) + self.time(t)))


def sharded(model: Any, mesh: Any = None) -> nn.Module:
    for layer in (model.body, model.out, model):
        fully_shard(layer, mesh=mesh)
    return model


def replicated_shards(model: nn.Module) -> nn.Module:
    """Each of two processes holds all pieces."""
    return sharded(model, init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("copies", "pieces")))


WRAPPED: dict[str, Callable[[nn.Module], nn.Module]] = {
    "fsdp2": sharded,
    "hsdp": replicated_shards,
    "fsdp1": lambda model: FullyShardedDataParallel(model, use_orig_params=True, device_id=CPU),
    "fsdp1-flat": lambda model: FullyShardedDataParallel(model, use_orig_params=False, device_id=CPU),
    "ddp": DistributedDataParallel,
    "by-hand": lambda model: model,
}


@contextmanager
def group() -> Iterator[tuple[int, int]]:
    dist.init_process_group("gloo")
    try:
        yield dist.get_rank(), dist.get_world_size()
        dist.barrier()
    finally:
        dist.destroy_process_group()


def batches(rank: int, size: int, steps: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The share of one process of batches that do not depend on their number."""
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        x = torch.rand(12, 12, generator=generator) * 2 - 1
        noise, t = torch.randn(12, 12, generator=generator), torch.randint(0, 100, (12,), generator=generator)
        yield x[rank::size], noise[rank::size], t[rank::size]


def loop(
    model: nn.Module,
    rank: int,
    size: int,
    attach: Callable[[nn.Module, torch.optim.Optimizer], Any] | None,
    *,
    steps: int = STEPS,
    before_step: Callable[[int, nn.Module], None] = lambda step, model: None,
    change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda x, noise: (x, noise),
    call: Callable[[nn.Module], nn.Module] = lambda model: model,
    prepare: Callable[[nn.Module], None] = lambda model: None,
    adam: bool = True,
) -> list[Tensor]:
    """The weights that this process holds in the end. `call`: what the loop calls of its model."""
    prepare(model)
    optimizer: torch.optim.Optimizer
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3) if adam else torch.optim.SGD(model.parameters(), 1e-3)
    watch = attach(model, optimizer) if attach is not None else None
    for step, (x, noise, t) in enumerate(batches(rank, size, steps)):
        x, noise = change(x, noise)
        alpha = ALPHAS[t][:, None]
        x_t = alpha.sqrt() * x + (1 - alpha).sqrt() * noise
        answer = call(model)(x_t, t)
        loss = nn.functional.mse_loss(answer, noise)
        loss.backward()
        before_step(step, model)
        optimizer.step()
        optimizer.zero_grad()
        if watch is not None:
            watch.step(loss, t=t, x0=x, noise=noise, x_t=x_t, target=noise, pred=answer)
    if watch is not None:
        watch.close()
    return held(model)


def held(model: nn.Module) -> list[Tensor]:
    return [getattr(p, "to_local", lambda p=p: p)().detach().clone() for p in model.parameters()]


def watching(folder: Path, **how: Any) -> Callable[[nn.Module, torch.optim.Optimizer], Any]:
    return lambda model, optimizer: safelight.watch(
        model, optimizer, run=folder, process=ALPHAS, prediction="epsilon", say=say_into(folder), **how
    )


def say_into(folder: Path) -> Callable[[str], None]:
    def say(words: str) -> None:
        with folder.with_suffix(".said").open("a") as file:
            file.write(words + "\n")

    return say


def run_together(folder: Path, act: Callable[[int, int], object], processes: int = PROCESSES) -> Launch:
    """`act(rank, size)` in every process, inside of a process group."""

    def inside(_: int) -> None:
        torch.set_num_threads(1)
        with group() as (rank, size):
            act(rank, size)

    ended = Launch(processes, inside, folder)
    codes = ended.codes()
    assert codes == [0] * processes, "\n".join(ended.said(rank) for rank in range(processes))
    return ended


def series(run: Path) -> dict[str, list[tuple[int, float]]]:
    """All readings, by name."""
    with open_history(run / "record.sqlite") as history:
        names = history.signals()
    return {name: read_signal(run / "record.sqlite", name) for name in names}


def findings(run: Path) -> dict[str, str]:
    """The severity of what was found of the processes, by cause; and of whatever else is an error."""
    found = {each.cause: each.severity for each in safelight.diagnose(run)}
    return {cause: how for cause, how in found.items() if cause.startswith("distributed.") or how == "error"}


def note(folder: Path, name: str, **facts: Any) -> None:
    (folder / f"{name}.json").write_text(json.dumps(facts))


def noted(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / f"{name}.json").read_text())
