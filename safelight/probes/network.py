"""How a copy of the network responds to other timesteps, labels and neighbours, before and after a few updates."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from safelight import checks
from safelight.model.copies import copy_without_hooks
from safelight.probes.forward_pass import Call, ForwardPass
from safelight.probes.random_state import kept_random_state

SAMPLES = 16
REHEARSAL = 4  # updates: an output layer of zeros passes gradients after the first
TINY = 1e-12
ACTIVATIONS = (nn.ReLU, nn.SiLU, nn.GELU, nn.Mish, nn.ELU, nn.LeakyReLU)
WEIGHED_LAYERS = (nn.Linear, nn.modules.conv._ConvNd, nn.GroupNorm, nn.LayerNorm)
LOUD_ACTIVATION = 1e4
ANSWERS = 4  # last layers of which one has to be heard in the output
SILENT_ACTIVATION = 1e-3  # an activation that never exceeds it is dead
SUNK = -5.0  # below it ReLU and SiLU return 0


def measure_network(
    model: nn.Module, micro_batch: ForwardPass, timesteps: int | None, old: Mapping[str, Tensor]
) -> dict[str, float]:
    """On a copy. Returns nothing where the network cannot be called again. `old`: the weights from before an update
    that was made meanwhile."""
    call, target = micro_batch.call, micro_batch.target
    if call is None or call.x is None or call.output is None:
        return {}
    call = call.of_first(SAMPLES)
    with kept_random_state(), torch.random.fork_rng():
        torch.manual_seed(0)
        network = copy_without_hooks(model)
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                if name in old:
                    parameter.copy_(old[name])
        readings = _as_built(network, call)
        if call.output is None or (target is not None and target.shape[1:] != call.output.shape[1:]):
            return readings
        aim = torch.randn_like(call.output.float()) if target is None else target[:SAMPLES].detach().float()
        readings |= _rehearse(network, call, aim)
        network.eval()
        with torch.no_grad():
            return readings | _responses(network, call, timesteps) | _bounds(network, call)


@contextmanager
def _hooked(network: nn.Module, kind: Any, hook: Callable[..., None]) -> Iterator[None]:
    """Calls a hook after every forward pass of the modules of that kind."""
    hooks = [module.register_forward_hook(hook) for module in network.modules() if isinstance(module, kind)]
    try:
        yield
    finally:
        for each in hooks:
            each.remove()


def _as_built(network: nn.Module, call: Call) -> dict[str, float]:
    """Dead units, and randomness in evaluation mode."""
    silent: list[float] = []
    sunk: list[float] = []

    def measure_units(module: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() > 1:
            if isinstance(module, ACTIVATIONS):
                silent.append(float((_highest(output.detach().abs()) < SILENT_ACTIVATION).float().mean()))
            else:
                sunk.append(float((_highest(output.detach()) < SUNK).float().mean()))

    modes = {module: module.training for module in network.modules()}
    network.eval()
    with torch.no_grad():
        with _hooked(network, (*ACTIVATIONS, *WEIGHED_LAYERS), measure_units):
            first = call.again(network)
        second = call.again(network)
    for module, training in modes.items():
        module.training = training
    dropouts = [m.p for m in network.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
    has_batch_norm = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.modules())
    matrices = [p for p in network.parameters() if p.dim() > 1]
    return {
        checks.NETWORK_FINITE: float(first.isfinite().all()),
        checks.NETWORK_SAME_SHAPE: float(call.x is not None and first.shape == call.x.shape),
        checks.NETWORK_SQUARE: float(first.float().square().mean()),
        checks.NETWORK_SILENT: max(silent, default=0.0),
        checks.NETWORK_SUNK: max(sunk, default=0.0),
        checks.NETWORK_RANDOM: _apart(second, first),
        checks.NETWORK_DROPOUT: max(dropouts, default=0.0),
        checks.NETWORK_DEPENDS_ON_MODE: float(has_batch_norm or any(dropouts)),
        checks.NETWORK_ZERO_WEIGHTS: sum(not p.detach().any() for p in matrices) / max(1, len(matrices)),
    }


def _highest(values: Tensor) -> Tensor:
    """[units]: over all samples and places."""
    return (values.float().flatten(2).amax(2) if values.dim() > 2 else values).amax(0)


def _rehearse(network: nn.Module, call: Call, aim: Tensor) -> dict[str, float]:
    """A few updates on one batch: what has no gradient then never will."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if not trained:
        return {}
    optimizer, losses = torch.optim.Adam(trained, lr=1e-3), list[float]()
    for step in range(REHEARSAL + 1):
        optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad():
            answer = call.again(network)
            if not answer.requires_grad:
                return {checks.NETWORK_REACHED: 0.0}
            loss = (answer.float() - aim).square().mean()
            loss.backward()
        losses.append(float(loss.detach()))
        if step < REHEARSAL:
            optimizer.step()
    # Convolutions only: the inputs of a linear layer may be one-hot labels.
    # Not the first one: its inputs are those of the network, such as an empty self-conditioning.
    kernels = [m.weight for m in network.modules() if isinstance(m, nn.modules.conv._ConvNd)][1:]
    reached = [p for p in trained if p.grad is not None and bool(p.grad.any())]
    matrices, matrices_reached = (sum(p.dim() > 1 for p in group) for group in (trained, reached))
    return {
        checks.NETWORK_REACHED: len(reached) / len(trained),
        checks.NETWORK_MATRICES_REACHED: matrices_reached / max(1, matrices),
        checks.NETWORK_UNUSED: max(map(_unused_inputs, kernels), default=0.0),
        checks.NETWORK_REHEARSED: losses[-1] / max(losses[0], TINY),
    }


def _unused_inputs(weight: Tensor) -> float:
    """The longest run of a layer's inputs that are 0 for every sample, as a share of them: their weights have a
    gradient of exactly 0. What a cut connection leaves lies together; units that are off by chance are scattered."""
    if weight.grad is None or weight.shape[1] < 4:
        return 0.0
    is_used = (weight.grad.abs().transpose(0, 1).flatten(1).amax(1) > 0).tolist()
    runs = [len(list(group)) for used, group in itertools.groupby(is_used) if not used]
    return max(runs, default=0) / len(is_used) if any(is_used) else 0.0


def _responses(network: nn.Module, call: Call, timesteps: int | None) -> dict[str, float]:
    x, t, labels, readings = call.x, call.t, call.labels, dict[str, float]()
    assert x is not None
    plain = call.again(network)
    if t is not None:
        readings |= _response_to_time(network, call, t, timesteps)
    if labels is not None and not labels.is_floating_point() and len(labels) > 1:
        # Of the label embedding: the smallest one that has room for the labels.
        sizes = [m.num_embeddings for m in network.modules() if isinstance(m, nn.Embedding)]
        rows = min((size for size in sizes if size > int(labels.max())), default=0)
        readings[checks.NETWORK_LABEL_ROWS] = float(rows)
        others = (labels + 1) % max(rows, 2)
        readings[checks.NETWORK_LABEL_RESPONSE] = _apart(call.with_changes(labels=others).again(network), plain)
    if len(x) > 1:
        other = x.clone()
        other[-1] = torch.randn_like(x[-1]) if x.is_floating_point() else x[0]
        moved = call.with_changes(x=other).again(network)
        readings[checks.NETWORK_COUPLING] = _apart(moved[:-1], plain[:-1])
        readings[checks.NETWORK_RESPONSE] = _apart(moved[-1:], plain[-1:])
    return readings


def _response_to_time(network: nn.Module, call: Call, t: Tensor, timesteps: int | None) -> dict[str, float]:
    low, high = float(t.min()), float(t.max())
    if timesteps is not None and high > 1:
        low, high = 0.0, float(timesteps - 1)
    elif high == low:
        low, high = 0.0, max(high, 1.0)
    first, last = (call.with_changes(t=torch.full_like(t, end)).again(network) for end in (low, high))
    readings: dict[str, float] = {
        checks.NETWORK_TIME_RESPONSE: _apart(last, first),
        checks.NETWORK_TIME_HIGHEST: float(t.max()),
    }
    places = torch.linspace(low, high, len(t), device=t.device)
    if float(t.max()) == float(t.min()) and t.is_floating_point():
        return readings  # one time only: what others would be is not known
    codes = _embedding_of_time(network, call, (places if t.is_floating_point() else places.round()).to(t.dtype))
    if codes is not None and len(codes) > 2:  # the least cosine of any two timesteps: near 1 where all are alike
        unit = nn.functional.normalize(codes, dim=1)
        readings[checks.NETWORK_TIME_COLLISION] = float((unit @ unit.T).min())
    return readings


def _embedding_of_time(network: nn.Module, call: Call, t: Tensor) -> Tensor | None:
    """The first input of a linear layer that depends on the timestep and not on the images."""
    assert call.x is not None
    inputs_of: dict[nn.Module, list[Tensor]] = {}

    def keep_input(layer: nn.Module, inputs: tuple[Any, ...], _: Any) -> None:
        if inputs and isinstance(inputs[0], Tensor) and inputs[0].dim() == 2 and len(inputs[0]) == len(t):
            inputs_of.setdefault(layer, []).append(inputs[0].detach().float())

    with _hooked(network, nn.Linear, keep_input):
        call.with_changes(t=t).again(network)
        call.with_changes(t=t, x=torch.randn_like(call.x)).again(network)
        call.with_changes(t=t.flip(0)).again(network)
    for values in inputs_of.values():
        if len(values) != 3 or values[0].shape[1] < 2 or not torch.equal(values[0], values[1]):
            continue  # it depends on the images
        if torch.allclose(values[0], values[2].flip(0), atol=1e-5) and not torch.equal(values[0], values[2]):
            return values[0]
    return None


def _bounds(network: nn.Module, call: Call) -> dict[str, float]:
    """With a very strong last layer: an output that stays small, or on one side of 0, cannot reach every target."""
    order: list[nn.Module] = []
    with _hooked(network, (nn.Linear, nn.modules.conv._ConvNd), lambda module, *_: order.append(module)):
        call.again(network)
    found = _loudest(network, call, list(reversed(order)))
    if found is None:
        return {}
    weight, loud = found
    weight.neg_()  # an output that may have any sign flips with it
    both = torch.cat([loud, call.again(network).float()])
    if not both.isfinite().all():
        return {}
    return {
        checks.NETWORK_LOUDEST: float(loud.abs().max()),
        checks.NETWORK_ONE_SIDED: float(((both >= 0).all() | (both <= 0).all()).float()),
    }


def _loudest(network: nn.Module, call: Call, layers: Sequence[nn.Module]) -> tuple[Tensor, Tensor] | None:
    """(weight, output) of the first of these layers that the output answers to: one that is called last may be there
    only to be used at all, as in `out + 0 * unused(x)`."""
    usual = call.again(network)
    for layer in layers[:ANSWERS]:
        weight = layer.weight
        assert isinstance(weight, Tensor)
        kept = weight.clone()
        weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)).to(weight) * LOUD_ACTIVATION)
        output = call.again(network)
        if not torch.equal(output, usual):
            return weight, output.float()
        weight.copy_(kept)
    return None


def _apart(a: Tensor, b: Tensor) -> float:
    """Distance over the length of the second; 0 where both are 0."""
    a, b = a.float(), b.float()
    length = float(b.norm())
    apart = float((a - b).norm())
    return apart / length if length > TINY else apart
