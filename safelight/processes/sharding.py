"""Weights divided among the processes by PyTorch's FSDP2: each holds some rows of every tensor and of all that goes
with it, and a block is gathered only while it is at work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.tensor import DTensor

from safelight.errors import UsageError
from safelight.model.unet import units_of
from safelight.monitors.parameters import trainable_parameters
from safelight.processes.group import ProcessGroup
from safelight.processes.local_weights import LocalWeights
from safelight.processes.reduction import Reduction
from safelight.processes.slices import Shard


def shard_weights(model: nn.Module, group: ProcessGroup, device: torch.device) -> ShardedWeights:
    """In place. Block by block: on a device there is never more than one whole block."""
    _refuse(model)
    mesh = init_device_mesh(device.type, (group.size,))
    for unit in (*units_of(model), model):
        # Resharded after every pass, also by the outermost module: what stays gathered would be the old weights in a
        # pass with others (`swapped_in`).
        fully_shard(unit, mesh=mesh, reshard_after_forward=True)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # Losses are divided by the whole batch: their gradients are to be added, not averaged.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
            if device.type == "cpu":
                module.set_custom_all_gather(_Gather(group))
                module.set_custom_reduce_scatter(_Scatter(group))
    return ShardedWeights(model, group)


def _refuse(model: nn.Module) -> None:
    if not hasattr(FSDPModule, "set_custom_all_gather"):
        raise UsageError(f"train.weights is divided, which needs torch 2.9 or newer; this is {torch.__version__}.")
    named = dict(model.named_parameters())
    if len(named) != len(list(model.named_parameters(remove_duplicate=False))):
        raise UsageError("train.weights cannot be divided: layers of the model share a weight. Leave it whole.")
    if kinds := {str(p.dtype).removeprefix("torch.") for p in named.values()} - {"float32"}:
        raise UsageError(f"train.weights cannot be divided: some are {', '.join(sorted(kinds))}, not float32.")
    if bare := [name for name, p in named.items() if not p.dim()]:
        raise UsageError(f"train.weights cannot be divided: {bare[0]} is a single number. Give it a shape of (1,).")
    with torch.no_grad():
        for parameter in named.values():
            parameter.data = parameter.data.contiguous()  # rows must lie one after the other


class ShardedWeights(LocalWeights, Reduction):
    """The rows of this process, as plain tensors that share memory with FSDP's. Passes of the model take all processes:
    what one of them calls, the others must call too."""

    def __init__(self, model: nn.Module, group: ProcessGroup) -> None:
        self._model = model
        shapes = {name: tuple(value.shape) for name, value in model.state_dict().items() if isinstance(value, DTensor)}
        self.shard = Shard(group.rank, group.size, shapes)
        self.sum_over_processes = lambda numbers: group.all_gather(numbers).sum(0)
        self.reduction = self
        self._sharded = [parameter for _, parameter in trainable_parameters(model)]
        self.named_parameters = [
            (name, nn.Parameter(_local(parameter))) for name, parameter in trainable_parameters(model)
        ]

    def tensors(self) -> dict[str, Tensor]:
        return {name: _local(value) for name, value in self._model.state_dict().items()}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, value in self.tensors().items():
            value.copy_(tensors[name])

    @contextmanager
    def swapped_in(self, weights: Mapping[str, Tensor]) -> Iterator[Mapping[str, Tensor] | None]:
        own = [(parameter, parameter.detach().clone()) for _, parameter in self.named_parameters]
        try:
            with torch.no_grad():
                for name, parameter in self.named_parameters:
                    parameter.copy_(weights[name])
            yield None
        finally:
            with torch.no_grad():
                for parameter, value in own:
                    parameter.copy_(value)

    # --- the gradients of a step: see `Reduction` -----------------------------------------------------------------

    def begin(self) -> None:
        for parameter in self._sharded:
            parameter.grad = None  # of a pass that did not become a step

    # Every micro-batch is added over the processes: to wait for the last would keep whole gradients.

    def finish(self) -> None:
        for parameter, (_, held) in zip(self._sharded, self.named_parameters, strict=True):
            held.grad = None if parameter.grad is None else _local(parameter.grad)
            parameter.grad = None


@torch.no_grad()
def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class _Waiting:
    """On CPUs the group waits for everything, because it knows who is gone; FSDP would wait for two hours."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _Gather(_Waiting, AllGather):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> None:
        self._group.wait(self._group.start_all_gather_into(output_tensor, input_tensor))


class _Scatter(_Waiting, ReduceScatter):
    """Every process is sent the pieces of its own rows and adds them in the order of the processes: no ring decides,
    and a restart changes nothing. As much traffic as a ring has."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> None:
        count = self._group.size
        sizes, got = [output_tensor.numel()] * count, torch.empty_like(input_tensor)
        self._group.wait(self._group.start_all_to_all(input_tensor, sizes, got, sizes))
        torch.sum(got.view(count, -1), 0, out=output_tensor)
