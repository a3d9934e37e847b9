"""What a process holds of a parameter, without asking the others."""

from __future__ import annotations

from pathlib import Path

import torch
from joint_loops import WRAPPED, Small, note, noted, run_together
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from safelight.monitors.shards import WHOLE, is_sharded, local_of, pieces_of, share_data, spans


def test_alone_everything_is_whole() -> None:
    model = Small()
    parameters = list(model.parameters())
    assert not is_sharded(model)
    assert pieces_of(parameters) == [WHOLE] * len(parameters)
    assert not share_data(parameters)
    assert not spans(parameters, 1)
    assert local_of(parameters[0]) is parameters[0]


def test_pieces_are_known_by_all_processes(tmp_path: Path) -> None:
    """Both of two hold others under FSDP, the same in copies and under DDP; and data is shared under tensor
    parallelism only."""

    def act(rank: int, size: int) -> None:
        told = {}
        for kind in ("fsdp2", "fsdp1", "fsdp1-flat", "hsdp", "ddp"):
            model = WRAPPED[kind](Small())
            parameters = list(model.parameters())
            spanned = spans(parameters, size)
            told[kind] = [pieces_of(parameters), is_sharded(model), share_data(parameters), spanned]
        mesh = init_device_mesh("cpu", (size,))
        torch.manual_seed(0)
        halves = [nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, [kind])) for kind in (Shard(1), Replicate())]
        assert isinstance(halves[0], DTensor)
        assert tuple(local_of(halves[0].detach()).shape) == (4, 2)
        told["tensor-parallel"] = [pieces_of(halves), True, share_data(halves), spans(halves, size)]
        note(tmp_path, str(rank), **told)

    run_together(tmp_path, act)
    first, second = (noted(tmp_path, str(rank)) for rank in (0, 1))
    for kind in ("fsdp2", "fsdp1", "fsdp1-flat"):
        assert not set(first[kind][0]) & set(second[kind][0]), kind
        assert first[kind][1:3] == [True, False], kind
    for kind in ("hsdp", "ddp"):
        assert first[kind] == second[kind], kind
    assert [first[kind][3] for kind in ("fsdp2", "hsdp", "ddp")] == [True, True, False]
    divided, replicated = zip(first["tensor-parallel"][0], second["tensor-parallel"][0], strict=True)
    assert divided[0] != divided[1]
    assert replicated[0] == replicated[1]
    assert first["tensor-parallel"][2]
