"""The parts of a network that have readings of their own: a dozen blocks rather than hundreds of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors

from safelight.vocabulary import Signal

MAX_NAMES_IN_EVENT = 16  # parameters that an event about gradients which are not finite names; it counts all
MAX_BLOCKS = 32  # parts of a network; more are put together
SMALL, FEW = 1024, 8  # numbers of a small tensor; small tensors that are not worth their own way
BINS = 64  # of a histogram of weights
REPLICATED = "DistributedDataParallel"
PARALLEL = (REPLICATED, "DataParallel")
WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")  # in names of parameters

SumOverProcesses = Callable[[Tensor], Tensor]
"""Adds numbers over all processes, where each holds but some rows of every parameter."""


@dataclass(frozen=True, slots=True)
class ParameterBlocks:
    """Which part each parameter belongs to, in the order of `names`."""

    names: tuple[str, ...]
    parameters: tuple[str, ...]
    index: np.ndarray
    """int64 [parameters]."""

    def total(self, per_parameter: np.ndarray) -> np.ndarray:
        """Sums over the parameters of each part."""
        return np.bincount(self.index, per_parameter, len(self.names))

    def norms(self, per_parameter: np.ndarray) -> np.ndarray:
        """The norm of each part, from those of its parameters."""
        return np.sqrt(self.total(np.square(per_parameter, dtype=np.float64)))

    def by_name(self, family: Signal, values: np.ndarray) -> dict[str, float]:
        """Readings of a family of signals, from one value for each part."""
        return {f"{family.name}/{name}": value for name, value in zip(self.names, values.tolist(), strict=True)}

    def nonfinite(self, norms: Tensor) -> list[str]:
        """The parameters whose norms are not finite; waits for the device."""
        return [name for name, bad in zip(self.parameters, (~norms.isfinite()).tolist(), strict=True) if bad]


def find_parts(named_parameters: Sequence[tuple[str, object]]) -> ParameterBlocks:
    """Blocks by the beginning of the parameters' names: `conv_in`, `down_blocks.0`, `mid_block`, …"""
    parameters = tuple(name for name, _ in named_parameters)
    paths = [name.split(".") for name in parameters]
    while paths and min(map(len, paths)) > 1 and len({path[0] for path in paths}) == 1:
        paths = [path[1:] for path in paths]  # without `module` of DDP, `model` of a wrapper
    labels = [_block(*path) for path in paths]
    names = list(dict.fromkeys(labels))
    if len(names) > MAX_BLOCKS:
        size = -(-len(names) // MAX_BLOCKS)
        joined = {name: f"{names[i // size * size]} …" for i, name in enumerate(names)}
        labels = [joined[label] for label in labels]
        names = list(dict.fromkeys(labels))
    places = {name: place for place, name in enumerate(names)}
    return ParameterBlocks(tuple(names), parameters, np.array([places[label] for label in labels], np.int64))


@torch.no_grad()
def weight_histograms(parts: ParameterBlocks, parameters: Sequence[Tensor]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(counts [BINS], edges [BINS + 1]) for each part, over its whole range. Reads every weight and waits for the
    device: only for steps with pictures. Weights that are not finite are left out: signals count them."""
    found = {}
    for index, name in enumerate(parts.names):
        chosen = [parameter for place, parameter in zip(parts.index, parameters, strict=True) if place == index]
        flat = torch.cat([parameter.detach().reshape(-1).float() for parameter in chosen])
        flat = flat[flat.isfinite()]
        if not len(flat):
            continue
        low, high = (float(edge) for edge in flat.aminmax())
        high = high if high > low else low + 1e-6
        counts = torch.histc(flat, BINS, low, high).cpu().numpy()
        found[name] = counts, np.linspace(low, high, BINS + 1)
    return found


def trainable_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


def named_without_wrappers(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """By the names that the parameters have in the network itself."""

    def bare(name: str) -> str:
        for wrapper in WRAPPERS:
            name = name.replace(wrapper, "")
        return name

    return [(bare(name), parameter) for name, parameter in model.named_parameters()]


def is_of(model: nn.Module, *names: str) -> bool:
    """Whether its class, or one that it is made of, has one of the names."""
    return any(kind.__name__ in names for kind in type(model).__mro__)


def unwrapped(model: nn.Module) -> nn.Module:
    """Without DDP, torch.compile and their like, or classes made of them: their parameters are those of the module
    inside."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and is_of(model, *PARALLEL):
            inner = getattr(model, "module", None)
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def norms_of(tensors: Sequence[Tensor]) -> Tensor:
    """[tensors] in float32, on the device of the first; sparse ones by the numbers they hold."""
    dense = [tensor.coalesce().values() if tensor.is_sparse else tensor for tensor in tensors]
    kinds = {tensor.dtype for tensor in dense}
    half = kinds <= {torch.float16, torch.bfloat16}  # would be summed up, and rounded, in half precision
    norms = torch._foreach_norm(dense, 2, torch.float32) if half else torch._foreach_norm(dense)
    return torch.stack([norm.to(norms[0].device, torch.float32) for norm in norms])


class ReadNorms:
    """Norms that are read and not used: of small tensors on the host in one piece, where a kernel for each costs more
    than its numbers. The last digits may differ from those of `norms_of`."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """Of tensors with so many numbers, in the same order every time."""
        self._small = np.array([place for place, size in enumerate(sizes) if 0 < size <= SMALL], np.int64)
        chosen = set(self._small.tolist())
        self._large = [place for place in range(len(sizes)) if place not in chosen]
        self._starts = np.cumsum([0, *(sizes[place] for place in self._small[:-1])])

    def of(self, tensors: Sequence[Tensor]) -> Tensor:
        """[tensors] in float32, on the device of the first."""
        kinds = {(tensor.dtype, tensor.is_cpu, tensor.is_sparse) for tensor in tensors}
        if len(self._small) < FEW or kinds != {(torch.float32, True, False)}:
            return norms_of(tensors)
        found = np.empty(len(tensors), np.float32)
        numbers = _flatten_dense_tensors([tensors[place] for place in self._small]).numpy()
        with np.errstate(over="ignore", invalid="ignore"):
            numbers *= numbers
            found[self._small] = np.sqrt(np.add.reduceat(numbers, self._starts))
        if self._large:
            found[self._large] = torch.stack(torch._foreach_norm([tensors[place] for place in self._large])).numpy()
        return torch.from_numpy(found)


def join_norms(norms: Tensor, sum_over_processes: SumOverProcesses | None) -> Tensor:
    """The norms of whole tensors, from those of the rows that each process holds; in float64, in which no square
    overflows."""
    if sum_over_processes is None:
        return norms
    return sum_over_processes(norms.double().square()).sqrt().to(norms.dtype)


def _block(first: str, *rest: str) -> str:
    return f"{first}.{rest[0]}" if len(rest) > 1 and rest[0].isdigit() else first
