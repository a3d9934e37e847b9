"""Did the weights move as the optimizer's own arithmetic says, and does the EMA follow them?"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from safelight import checks
from safelight.monitors.shards import local_of

TINY = 1e-30
NEARLY_ZERO = 1e-20  # of squared lengths of an EMA
NamedParameters = Sequence[tuple[str, nn.Parameter]]


@dataclass(frozen=True, slots=True)
class StateBefore:
    """A copy of what an update is about to change, and of what it will be made from."""

    weights: dict[str, Tensor]
    gradients: dict[str, Tensor | None]
    twin: Any | None
    """The same optimizer on copies of everything: its step is what the real one should have done."""
    copies: dict[str, nn.Parameter]
    rate: float
    decay: float
    shrinking: dict[str, float]
    """By parameter: learning rate times weight decay of its group."""
    coupled: float
    """A decay that is added to the gradient, as Adam and SGD do it."""


@torch.no_grad()
def copy_state(named_parameters: NamedParameters, optimizer: torch.optim.Optimizer | None) -> StateBefore:
    twin, copies = (None, {}) if optimizer is None else _twin(named_parameters, optimizer)
    groups = [] if optimizer is None else optimizer.param_groups
    rates = [float(group.get("lr", 0.0)) for group in groups]
    decays = [float(group.get("weight_decay", 0.0) or 0.0) for group in groups]
    shrinking = {id(p): rate * decay for group, rate, decay in zip(groups, rates, decays, strict=True)
                 for p in group["params"]}  # fmt: skip
    decay = max(decays, default=0.0)
    decoupled = isinstance(optimizer, torch.optim.AdamW) or any(g.get("decoupled_weight_decay") for g in groups)
    is_coupled = isinstance(optimizer, torch.optim.Adam | torch.optim.SGD) and not decoupled
    return StateBefore(
        weights={name: parameter.detach().clone() for name, parameter in named_parameters},
        gradients={name: None if p.grad is None else dense(p.grad) for name, p in named_parameters},
        twin=twin,
        copies=copies,
        rate=max(rates, default=math.nan),
        decay=decay,
        shrinking={name: shrinking.get(id(parameter), 0.0) for name, parameter in named_parameters},
        coupled=decay if is_coupled else 0.0,
    )


def _twin(
    named_parameters: NamedParameters, optimizer: torch.optim.Optimizer
) -> tuple[Any | None, dict[str, nn.Parameter]]:
    """The same class with the same settings and moments, on copies. None if it cannot be made."""
    names = {parameter: name for name, parameter in named_parameters}
    copies: dict[str, nn.Parameter] = {}
    try:
        twin = object.__new__(type(optimizer))
        twin.__dict__.update(optimizer.__dict__)
        twin.__dict__.pop("step", None)  # a patched method of this object
        for hooks in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            twin.__dict__[hooks] = OrderedDict()
        twin.param_groups, twin.state = [], defaultdict(dict)
        for group in optimizer.param_groups:
            twin.param_groups.append({**group, "params": []})
            for parameter in group["params"]:
                copy = nn.Parameter(parameter.detach().clone(), requires_grad=parameter.requires_grad)
                copy.grad = None if parameter.grad is None else parameter.grad.detach().clone()
                if moments := optimizer.state.get(parameter):
                    twin.state[copy] = {k: v.clone() if isinstance(v, Tensor) else v for k, v in moments.items()}
                if parameter in names:
                    copies[names[parameter]] = copy
                twin.param_groups[-1]["params"].append(copy)
    except (AttributeError, TypeError, RuntimeError):
        return None, {}
    return twin, copies


@torch.no_grad()
def measure_update(before: StateBefore, named_parameters: NamedParameters) -> dict[str, float]:
    """What the weights did against what the optimizer's own arithmetic says."""
    moved, aligned, gradient, decayed, lost, wanted, expected, apart = (0.0,) * 8
    if before.twin is not None:
        try:
            with torch.enable_grad():
                before.twin.step()
        except Exception:  # an optimizer that needs a closure: not compared
            before.copies.clear()
    for name, parameter in named_parameters:
        old, grad = before.weights[name], before.gradients[name]
        change = parameter.detach().float() - old.float()
        moved += square(change)
        if grad is not None:
            aligned += float((change * grad.float()).sum())
            gradient += square(grad)
            should_move = (grad != 0) & grad.isfinite()
            lost += float((should_move & (change == 0)).sum())
            wanted += float(should_move.sum())
        decayed += square(old) * before.shrinking[name] ** 2
        if name in before.copies:
            own = before.copies[name].detach().float() - old.float()
            expected += square(own)
            apart += square(change - own)
    weights = math.sqrt(sum(square(old) for old in before.weights.values()))
    readings: dict[str, float] = {
        checks.UPDATE_MOVED: math.sqrt(moved),
        checks.UPDATE_ALIGNMENT: -aligned / max(math.sqrt(moved * gradient), TINY),
        checks.UPDATE_LOST: lost / max(wanted, 1.0),
        checks.UPDATE_DECAY_SHARE: math.sqrt(decayed) / max(math.sqrt(moved), TINY) if moved else 0.0,
        checks.UPDATE_DECAY: before.decay,
        checks.UPDATE_COARSE: float(all(torch.equal(p.float(), p.bfloat16().float()) for _, p in named_parameters)),
        checks.UPDATE_WEIGHTS: weights,
        checks.UPDATE_DECAY_PULL: before.coupled * weights / max(math.sqrt(gradient), TINY) if gradient else 0.0,
    }
    if before.copies:
        error = math.sqrt(apart) / max(math.sqrt(expected), TINY) if expected or apart else 0.0
        readings |= {checks.UPDATE_ERROR: error, checks.UPDATE_EXPECTED: math.sqrt(expected)}
    return readings


def dense(gradient: Tensor) -> Tensor:
    """A dense copy, also of a sparse gradient; of a sharded one, of the piece of this process."""
    gradient = local_of(gradient.detach())
    return gradient.to_dense() if gradient.is_sparse else gradient.clone()


def square(values: Tensor) -> float:
    """The sum of squares."""
    return float(values.float().square().sum())


@torch.no_grad()
def compare_with_weights(ema: Sequence[Tensor], weights: Sequence[Tensor]) -> dict[str, float]:
    """Whether this is an EMA of these weights at all. By the matrices: norms and biases are alike in any two networks
    of one kind. An EMA of zeros, which a bias correction divides later, has no direction yet."""
    pairs = [(one, other) for one, other in zip(ema, weights, strict=True) if one.dim() > 1]
    shared = sum(one.data_ptr() == other.data_ptr() for one, other in zip(ema, weights, strict=True))
    readings: dict[str, float] = {checks.EMA_SHARED: shared / max(1, len(weights))}
    mine, theirs = (
        ([each.detach().float().cpu() for each in group] for group in zip(*pairs, strict=True)) if pairs else ([], [])
    )
    lengths = float(_squares(mine)) * float(_squares(theirs)) if pairs else 0.0
    if lengths > 0:
        inner = sum(float((one * other).sum()) for one, other in zip(mine, theirs, strict=True))
        readings[checks.EMA_COSINE] = inner / lengths**0.5
    return readings


@torch.no_grad()
def measure_ema(before: Sequence[Tensor], after: Sequence[Tensor], weights: Sequence[Tensor]) -> dict[str, float]:
    """Solves after = α·before + (1 − α)·weights. `average/decay` is α; `average/left` what neither α nor rounding
    explains, as a share of the way that the EMA moved; `average/moved` that way over the distance to the weights.
    Rounding is the squared length that the dtype may take or add. Tensors that are copied as they are, such as those of
    batch norm in some EMAs, have no decay and are left out, unless all are."""
    copied = [torch.equal(new, live.detach().to(new)) for new, live in zip(after, weights, strict=True)]
    if any(copied) and not all(copied):
        groups = (
            [each for each, is_copy in zip(group, copied, strict=True) if not is_copy]
            for group in (before, after, weights)
        )
        before, after, weights = groups
    device = after[0].device
    old, new, live = ([each.detach().to(device).float() for each in group] for group in (before, after, weights))
    steps, aims = torch._foreach_sub(new, old), torch._foreach_sub(live, old)
    inners = torch.stack([torch.dot(step.flatten(), aim.flatten()) for step, aim in zip(steps, aims, strict=True)])
    coarseness = torch.tensor([torch.finfo(each.dtype).eps for each in after], device=device)
    rounded = torch._foreach_mul(new, list(coarseness.unbind()))
    squares = torch.stack([_squares(each) for each in (steps, aims, torch._foreach_sub(live, new), rounded)])
    way, towards, apart, rounding = squares.tolist()
    if towards == 0:
        return {}
    share = float(inners.sum()) / max(towards, NEARLY_ZERO)
    left = max(0.0, float(_squares(torch._foreach_sub(steps, torch._foreach_mul(aims, share)))) - rounding)
    return {
        checks.EMA_DECAY: 1 - share,
        checks.EMA_MOVED: (way / max(towards, NEARLY_ZERO)) ** 0.5,
        checks.EMA_LEFT: (left / max(way, NEARLY_ZERO)) ** 0.5 if way else 0.0,
        checks.EMA_DISTANCE: apart**0.5,
        checks.EMA_ROUNDING: (rounding / max(way, share * share * towards, NEARLY_ZERO)) ** 0.5,
        checks.EMA_COARSE: float(all(torch.equal(new.float(), new.bfloat16().float()) for new in after)),
    }


def _squares(values: Sequence[Tensor]) -> Tensor:
    """The squared length of all together, each measured in single precision."""
    return torch.stack(list(torch._foreach_norm(list(values)))).square().sum()
