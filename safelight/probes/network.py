"""How a copy of the network responds to other timesteps, labels and neighbours, before and after a few updates."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from safelight import checks
from safelight.probes.forward_pass import Call, ForwardPass

SAMPLES = 16
REHEARSAL = 4  # updates: an output layer of zeros passes gradients after the first
TINY = 1e-12
ACTIVATIONS = (nn.ReLU, nn.SiLU, nn.GELU, nn.Mish, nn.ELU, nn.LeakyReLU)
WEIGHED = (nn.Linear, nn.modules.conv._ConvNd, nn.GroupNorm, nn.LayerNorm)
LOUD = 1e4
SUNK = -5.0  # below it ReLU and SiLU return 0


def look_at_network(
    model: nn.Module, micro_batch: ForwardPass, timesteps: int | None, old: Mapping[str, Tensor] | None = None
) -> dict[str, float]:
    """On a copy. Returns nothing where the network cannot be copied or called again. `old`: the weights from before an
    update that was made meanwhile."""
    call, target = micro_batch.call, micro_batch.target
    if call is None or call.x is None or call.output is None:
        return {}
    call = call.of_first(SAMPLES)
    with torch.random.fork_rng(), _without_hooks(model):
        torch.manual_seed(0)
        network = copy.deepcopy(model)
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                if old and name in old:
                    parameter.copy_(old[name])
        told = _look_at_start(network, call)
        if call.output is None or (target is not None and target.shape[1:] != call.output.shape[1:]):
            return told
        aim = torch.randn_like(call.output.float()) if target is None else target[:SAMPLES].detach().float()
        told |= _rehearse(network, call, aim)
        network.eval()
        with torch.no_grad():
            told |= _responses(network, call, timesteps)
            told |= _bounds(network, call)
    return told


@contextmanager
def _hooked(network: nn.Module, *kinds: tuple[Any, Callable[..., None]]) -> Iterator[None]:
    """Calls a hook after every forward pass of the modules of its kind."""
    hooks = [m.register_forward_hook(hook) for kind, hook in kinds for m in network.modules() if isinstance(m, kind)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _without_hooks(model: nn.Module) -> Iterator[None]:
    """Hooks of a watch must not be copied: they would observe the copy."""
    kept = [(module, module._forward_hooks, module._forward_pre_hooks) for module in model.modules()]
    for module, _, _ in kept:
        module._forward_hooks, module._forward_pre_hooks = type(kept[0][1])(), type(kept[0][2])()
    try:
        yield
    finally:
        for module, after, before in kept:
            module._forward_hooks, module._forward_pre_hooks = after, before


def _look_at_start(network: nn.Module, call: Call) -> dict[str, float]:
    """As it was built: dead units, and randomness in evaluation mode."""
    x = call.x
    assert x is not None
    silent: list[float] = []
    sunk: list[float] = []

    def see_activation(_: nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() > 1:
            units = output.detach().float().abs().flatten(2).amax(2) if output.dim() > 2 else output.detach().abs()
            silent.append(float((units.amax(0) < 1e-3).float().mean()))

    def see_layer(_: nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() > 1:
            highest = output.detach().float().flatten(2).amax(2) if output.dim() > 2 else output.detach().float()
            sunk.append(float((highest.amax(0) < SUNK).float().mean()))

    modes = {module: module.training for module in network.modules()}
    network.eval()
    with torch.no_grad():
        with _hooked(network, (ACTIVATIONS, see_activation), (WEIGHED, see_layer)):
            first = call.again(network)
        second = call.again(network)
    for module, training in modes.items():
        module.training = training
    dropouts = [m.p for m in network.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
    depends = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.modules()) or any(dropouts)
    return {
        checks.NETWORK_FINITE: float(first.isfinite().all()),
        checks.NETWORK_SAME_SHAPE: float(first.shape == x.shape),
        checks.NETWORK_SQUARE: float(first.float().square().mean()),
        checks.NETWORK_SILENT: max(silent, default=0.0),
        checks.NETWORK_SUNK: max(sunk, default=0.0),
        checks.NETWORK_RANDOM: _apart(second, first),
        checks.NETWORK_DROPOUT: max(dropouts, default=0.0),
        checks.NETWORK_DEPENDS_ON_MODE: float(depends),
        checks.NETWORK_ZERO_WEIGHTS: _zero_share(network),
    }


def _zero_share(network: nn.Module) -> float:
    """The share of matrices and kernels that are all zeros."""
    large = [p for p in network.parameters() if p.dim() > 1]
    return sum(float(not p.detach().any()) for p in large) / max(1, len(large))


def _rehearse(network: nn.Module, call: Call, aim: Tensor) -> dict[str, float]:
    """A few updates on one batch: what has no gradient then never will."""
    trained = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    if not trained:
        return {}
    for _, parameter in trained:
        parameter.grad = None
    optimizer = torch.optim.Adam([p for _, p in trained], lr=1e-3)
    first = last = 0.0
    for step in range(REHEARSAL + 1):
        optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad():
            answer = call.again(network)
            if not answer.requires_grad:
                return {checks.NETWORK_REACHED: 0.0}
            loss = (answer.float() - aim).square().mean()
            loss.backward()
        first, last = (float(loss.detach()) if step == 0 else first), float(loss.detach())
        if step < REHEARSAL:
            optimizer.step()
    # Convolutions only: the inputs of a linear layer may be one-hot labels.
    kernels = [m for m in network.modules() if isinstance(m, nn.modules.conv._ConvNd)]
    unused = max(map(_unused_inputs, kernels), default=0.0)
    reached = [p.grad is not None and bool(p.grad.any()) for _, p in trained]
    large = [hit for hit, (_, p) in zip(reached, trained, strict=True) if p.dim() > 1]
    return {
        checks.NETWORK_REACHED: sum(reached) / len(reached),
        checks.NETWORK_MATRICES_REACHED: sum(large) / max(1, len(large)),
        checks.NETWORK_UNUSED: unused,
        checks.NETWORK_REHEARSED: last / max(first, TINY),
    }


def _unused_inputs(layer: nn.Module) -> float:
    """The share of a layer's inputs that are 0 for every sample: their weights have a gradient of exactly 0."""
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor) or weight.grad is None or weight.dim() < 2 or weight.shape[1] < 4:
        return 0.0
    heard = weight.grad.abs().transpose(0, 1).flatten(1).amax(1) > 0
    return float((~heard).float().mean()) if bool(heard.any()) else 0.0


def _responses(network: nn.Module, call: Call, timesteps: int | None) -> dict[str, float]:
    x, t, labels, told = call.x, call.t, call.labels, dict[str, float]()
    assert x is not None
    plain = call.again(network)
    if t is not None:
        told |= _response_to_time(network, call, t, plain, timesteps)
    if labels is not None and not labels.is_floating_point() and len(labels) > 1:
        rows = _rows(network, int(labels.max()))
        told[checks.NETWORK_LABEL_ROWS] = float(rows)
        others = (labels + 1) % max(rows, 2)
        told[checks.NETWORK_LABEL_RESPONSE] = _apart(call.with_changes(labels=others).again(network), plain)
    if len(x) > 1:
        other = x.clone()
        other[-1] = torch.randn_like(x[-1]) if x.is_floating_point() else x[0]
        moved = call.with_changes(x=other).again(network)
        told[checks.NETWORK_COUPLING] = _apart(moved[:-1], plain[:-1])
        told[checks.NETWORK_RESPONSE] = _apart(moved[-1:], plain[-1:])
    return told


def _rows(network: nn.Module, largest: int) -> int:
    """Of the label embedding: the smallest one that has room for the labels that were seen."""
    sizes = [m.num_embeddings for m in network.modules() if isinstance(m, nn.Embedding) and m.num_embeddings > largest]
    return min(sizes, default=0)


def _response_to_time(
    network: nn.Module, call: Call, t: Tensor, plain: Tensor, timesteps: int | None
) -> dict[str, float]:
    low, high = float(t.min()), float(t.max())
    if timesteps is not None and high > 1:
        low, high = 0.0, float(timesteps - 1)
    elif high == low:
        low, high = 0.0, max(high, 1.0)
    ends = [torch.full_like(t, value) for value in (low, high)]
    first, last = (call.with_changes(t=end).again(network) for end in ends)
    told: dict[str, float] = {checks.NETWORK_TIME_RESPONSE: _apart(last, first)}
    places = torch.linspace(low, high, len(t), device=t.device)
    codes = _codes_of_time(network, call, (places if t.is_floating_point() else places.round()).to(t.dtype))
    if codes is not None and len(codes) > 2:
        told[checks.NETWORK_TIME_COLLISION] = _collision(codes)
    return told


def _codes_of_time(network: nn.Module, call: Call, t: Tensor) -> Tensor | None:
    """The first input of a linear layer that depends on the timestep and not on the images."""
    x = call.x
    assert x is not None
    seen: dict[str, list[Tensor]] = {}

    def listen(name: str):
        def hook(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            if inputs and isinstance(inputs[0], Tensor) and inputs[0].dim() == 2 and len(inputs[0]) == len(t):
                seen.setdefault(name, []).append(inputs[0].detach().float())

        return hook

    linear = [(name, m) for name, m in network.named_modules() if isinstance(m, nn.Linear)]
    hooks = [module.register_forward_pre_hook(listen(name)) for name, module in linear]
    try:
        call.with_changes(t=t).again(network)
        call.with_changes(t=t, x=torch.randn_like(x)).again(network)
        call.with_changes(t=t.flip(0)).again(network)
    finally:
        for hook in hooks:
            hook.remove()
    for values in seen.values():
        if len(values) != 3 or values[0].shape[1] < 2 or not torch.equal(values[0], values[1]):
            continue  # it depends on the images
        if torch.allclose(values[0], values[2].flip(0), atol=1e-5) and not torch.equal(values[0], values[2]):
            return values[0]
    return None


def _collision(codes: Tensor) -> float:
    """The least cosine between the embeddings of any two timesteps: near 1 where all are alike."""
    unit = nn.functional.normalize(codes, dim=1)
    return float((unit @ unit.T).min())


def _bounds(network: nn.Module, call: Call) -> dict[str, float]:
    """With a very strong last layer: an output that stays small, or on one side of 0, cannot reach every target."""
    order: list[nn.Module] = []
    with _hooked(network, ((nn.Linear, nn.modules.conv._ConvNd), lambda module, *_: order.append(module))):
        call.again(network)
    if not order:
        return {}
    weight = order[-1].weight
    assert isinstance(weight, Tensor)
    weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)).to(weight) * LOUD)
    loud = call.again(network).float()
    weight.neg_()  # an output that may have any sign flips with it
    both = torch.cat([loud, call.again(network).float()])
    if not both.isfinite().all():
        return {}
    return {
        checks.NETWORK_LOUDEST: float(loud.abs().max()),
        checks.NETWORK_ONE_SIDED: float(((both >= 0).all() | (both <= 0).all()).float()),
    }


def _apart(a: Tensor, b: Tensor) -> float:
    """Distance over the length of the second; 0 where both are 0."""
    a, b = a.float(), b.float()
    length = float(b.norm())
    apart = float((a - b).norm())
    return apart / length if length > TINY else apart
