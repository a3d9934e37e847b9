"""A step repeated on copies: is the gradient that of this prediction, is the update the optimizer's own, and what would
a smaller or a larger one have done?"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from safelight import checks
from safelight.probes.forward_pass import ForwardPass, answer_of

TINY = 1e-30
SAMPLES = 32  # of a batch are enough for a line search
COMPARED = 64  # samples whose labels are exchanged
DEALS = 64  # random permutations of the labels
COUNTS = 1e-3  # share of the squared gradient from which a tensor is compared on its own


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
    coupled: float = 0.0
    """A decay that is added to the gradient, as Adam and SGD do it."""


@torch.no_grad()
def keep_before(named: Sequence[tuple[str, nn.Parameter]], optimizer: torch.optim.Optimizer | None) -> StateBefore:
    weights = {name: parameter.detach().clone() for name, parameter in named}
    gradients = {name: None if p.grad is None else dense(p.grad) for name, p in named}
    twin, copies = (None, {}) if optimizer is None else _twin(named, optimizer)
    groups = [] if optimizer is None else optimizer.param_groups
    rate = max((float(group.get("lr", 0.0)) for group in groups), default=math.nan)
    decay = max((float(group.get("weight_decay", 0.0) or 0.0) for group in groups), default=0.0)
    apart = isinstance(optimizer, torch.optim.AdamW) or any(g.get("decoupled_weight_decay") for g in groups)
    added = isinstance(optimizer, torch.optim.Adam | torch.optim.SGD) and not apart
    return StateBefore(
        weights, gradients, twin, copies, rate, decay, _shrinking(named, groups), decay if added else 0.0
    )


def _shrinking(named: Sequence[tuple[str, nn.Parameter]], groups: Sequence[dict[str, Any]]) -> dict[str, float]:
    shares = {
        id(parameter): float(group.get("lr", 0.0)) * float(group.get("weight_decay", 0.0) or 0.0)
        for group in groups
        for parameter in group["params"]
    }
    return {name: shares.get(id(parameter), 0.0) for name, parameter in named}


def _twin(
    named: Sequence[tuple[str, nn.Parameter]], optimizer: torch.optim.Optimizer
) -> tuple[Any | None, dict[str, nn.Parameter]]:
    """The same class with the same settings and moments, on copies. None where it cannot be made."""
    names = {parameter: name for name, parameter in named}
    copies: dict[str, nn.Parameter] = {}
    try:
        twin = object.__new__(type(optimizer))
        twin.__dict__.update(optimizer.__dict__)
        twin.__dict__.pop("step", None)  # a patched method of this object
        for hooks in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            twin.__dict__[hooks] = OrderedDict()
        state: dict[Any, Any] = defaultdict(dict)
        groups = []
        for group in optimizer.param_groups:
            mine = []
            for parameter in group["params"]:
                copy = nn.Parameter(parameter.detach().clone(), requires_grad=parameter.requires_grad)
                copy.grad = None if parameter.grad is None else parameter.grad.detach().clone()
                kept = optimizer.state.get(parameter, {})
                state[copy] = {k: v.clone() if isinstance(v, Tensor) else v for k, v in kept.items()}
                if not state[copy]:
                    del state[copy]
                if parameter in names:
                    copies[names[parameter]] = copy
                mine.append(copy)
            groups.append({**group, "params": mine})
        twin.param_groups, twin.state = groups, state
    except (AttributeError, TypeError, RuntimeError):
        return None, {}
    return twin, copies


@torch.no_grad()
def look_at_update(before: StateBefore, named: Sequence[tuple[str, nn.Parameter]]) -> dict[str, float]:
    """What the weights did against what the optimizer's own arithmetic says."""
    moved, aligned, gradient, decayed, lost, asked = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    expected = apart = 0.0
    if before.twin is not None:
        try:
            with torch.enable_grad():
                before.twin.step()
        except Exception:  # an optimizer that needs a closure: not compared
            before.copies.clear()
    for name, parameter in named:
        old, grad = before.weights[name], before.gradients[name]
        change = parameter.detach().float() - old.float()
        moved += _square(change)
        if grad is not None:
            aligned += float((change * grad.float()).sum())
            gradient += _square(grad)
            asks = (grad != 0) & grad.isfinite()
            lost += float((asks & (change == 0)).sum())
            asked += float(asks.sum())
        decayed += _square(old) * before.shrinking[name] ** 2
        if name in before.copies:
            wanted = before.copies[name].detach().float() - old.float()
            expected += _square(wanted)
            apart += _square(change - wanted)
    weights = math.sqrt(sum(_square(old) for old in before.weights.values()))
    told: dict[str, float] = {
        checks.UPDATE_MOVED: math.sqrt(moved),
        checks.UPDATE_ALIGNMENT: -aligned / max(math.sqrt(moved * gradient), TINY),
        checks.UPDATE_LOST: lost / max(asked, 1.0),
        checks.UPDATE_DECAY_SHARE: math.sqrt(decayed) / max(math.sqrt(moved), TINY) if moved else 0.0,
        checks.UPDATE_DECAY: before.decay,
        checks.UPDATE_COARSE: float(all(torch.equal(p.float(), p.bfloat16().float()) for _, p in named)),
        checks.UPDATE_WEIGHTS: weights,
        checks.UPDATE_DECAY_PULL: before.coupled * weights / max(math.sqrt(gradient), TINY) if gradient else 0.0,
    }
    if before.copies:
        told[checks.UPDATE_ERROR] = math.sqrt(apart) / max(math.sqrt(expected), TINY) if expected or apart else 0.0
        told[checks.UPDATE_EXPECTED] = math.sqrt(expected)
    return told


def replay_gradient(
    model: nn.Module,
    before: StateBefore,
    micro_batches_seen: Sequence[ForwardPass],
    previous: Mapping[str, Tensor | None] | None,
) -> dict[str, float]:
    """The gradient of the mean squared error of every micro-batch, against the one that the optimizer got.

    `replay/cosine` 1 and `replay/ratio` 1: the same. `replay/carried`: how much of the gradient of the step before is
    in it, over how much of its own. `replay/output_error`: the network's answer then and now.
    """
    weights = {name: value.detach().clone().requires_grad_() for name, value in before.weights.items()}
    apart, size, zero = [], 0.0, 0.0
    earlier: dict[str, Tensor] = {}  # of all micro-batches but the last
    with torch.enable_grad():
        for micro_batch in micro_batches_seen:
            call, target = micro_batch.call, micro_batch.target
            if call is None or target is None or call.output is None or call.output.shape != target.shape:
                return {}
            if call.half == torch.float16:  # its gradients are what is checked: exact ones are needed
                call = replace(call, half=None)
            earlier = {n: v.grad.clone() for n, v in weights.items() if v.grad is not None} if apart else {}
            answer = call.again(_WithWeights(model, weights))
            loss = (answer.float() - target.detach().float()).square().mean() / len(micro_batches_seen)
            loss.backward()
            size += float(loss.detach())
            zero += float(target.detach().float().square().mean()) / len(micro_batches_seen)
            apart.append(_relative(answer, micro_batch.call.output if micro_batch.call else None))
    theirs = before.gradients
    missing = all(gradient is None for gradient in theirs.values())
    ours = {name: value.grad for name, value in weights.items() if value.grad is not None}
    if not missing:  # parts without any, such as frozen ones, are reported elsewhere
        ours = {name: gradient for name, gradient in ours.items() if theirs.get(name) is not None}
    told: dict[str, float] = {
        checks.REPLAY_OUTPUT_ERROR: max(apart),
        checks.REPLAY_ERROR: size,
        checks.REPLAY_TOLD: float(torch.stack([s.loss.detach().float().mean() for s in micro_batches_seen]).mean()),
        checks.REPLAY_ZERO: zero,
        checks.REPLAY_MICRO_BATCHES: float(len(micro_batches_seen)),
        checks.REPLAY_MISSING: float(missing),
    }
    inner, mine, whole = _inner(ours, theirs), _inner(ours, ours), _inner(theirs, theirs)
    told[checks.REPLAY_NORM], told[checks.REPLAY_OWN_NORM] = math.sqrt(max(whole, 0)), math.sqrt(mine)
    told[checks.REPLAY_COSINE] = inner / max(math.sqrt(mine * whole), TINY)
    told[checks.REPLAY_RATIO] = math.sqrt(max(whole, 0) / max(mine, TINY))
    told[checks.REPLAY_VANISHED] = _vanished(ours, theirs)
    told[checks.REPLAY_WORST] = _worst(ours, theirs, mine)
    told[checks.REPLAY_SIGNS] = _signs(ours, theirs)
    if earlier:
        last = {name: gradient - earlier[name] for name, gradient in ours.items() if name in earlier}
        told[checks.REPLAY_LAST_COSINE] = _inner(last, theirs) / max(math.sqrt(_inner(last, last) * whole), TINY)
    if previous is not None and not told[checks.REPLAY_MISSING]:
        told |= _carried(ours, theirs, previous)
    return told


def _carried(
    ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor | None], previous: Mapping[str, Tensor | None]
) -> dict[str, float]:
    """theirs = α·ours + β·previous by least squares; β / α is 1 where gradients were never cleared."""
    xx, yy, xy = _inner(ours, ours), _inner(previous, previous), _inner(ours, previous)
    xg, yg = _inner(ours, theirs), _inner(previous, theirs)
    determinant = xx * yy - xy * xy
    if determinant <= 1e-6 * xx * yy or not math.isfinite(determinant):
        return {}
    own, carried = (yy * xg - xy * yg) / determinant, (xx * yg - xy * xg) / determinant
    whole = _inner(theirs, theirs)
    explained = (own * xg + carried * yg) / max(whole, TINY)
    return {checks.REPLAY_CARRIED: carried / own if own else 0.0, checks.REPLAY_EXPLAINED: explained}


def search_line(
    model: nn.Module, before: StateBefore, named: Sequence[tuple[str, nn.Parameter]], micro_batch: ForwardPass
) -> dict[str, float]:
    """The error on the step's own samples at several lengths of its update, over the error without it."""
    call, target = micro_batch.call, micro_batch.target
    if call is None or target is None or call.output is None or call.output.shape != target.shape:
        return {}
    call, target = call.of_first(SAMPLES), target.detach()[:SAMPLES].float()
    now = {name: parameter.detach() for name, parameter in named}

    @torch.no_grad()
    def error(length: float) -> float:
        weights = {name: torch.lerp(old.float(), now[name].float(), length).to(old.dtype)
                   for name, old in before.weights.items()}  # fmt: skip
        return float((call.again(_WithWeights(model, weights)).float() - target).square().mean())

    start = error(0.0)
    if not math.isfinite(start) or start <= 0:
        return {}
    told: dict[str, float] = {check: error(float(length)) / start for length, check in checks.SEARCH.items()}
    return told | {
        checks.SEARCH_START: start,
        checks.SEARCH_ZERO: float(target.square().mean()),
        checks.SEARCH_RATE: before.rate,
    }


@torch.no_grad()
def look_at_labels(model: nn.Module, before: StateBefore, micro_batch: ForwardPass) -> dict[str, float]:
    """How much worse the network is with the labels of other samples: not at all, where labels carry no information.
    With the weights from before the update, which has seen these samples."""
    call, target = micro_batch.call, micro_batch.target
    if call is None or target is None or call.output is None or call.output.shape != target.shape:
        return {}
    labels = call.labels
    if labels is None or labels.is_floating_point() or len(labels) < 8 or len(labels.unique()) < 2:
        return {}
    call, target, labels = call.of_first(COMPARED), target[:COMPARED], labels[:COMPARED]
    others = labels.roll(max(1, len(labels) // 2))
    differ = labels != others
    network = _WithWeights(model, before.weights)
    errors = [
        (changed.again(network).float() - target.detach().float()).square().flatten(1).mean(1)
        for changed in (call, call.with_changes(labels=others))
    ]
    gain = (errors[1] - errors[0])[differ]
    if len(gain) < 4:
        return {}
    told: dict[str, float] = {
        checks.LABELS_GAIN: float(gain.mean()),
        checks.LABELS_GAIN_ERROR: float(gain.std() / len(gain) ** 0.5),
        checks.LABELS_ERROR: float(errors[0].mean()),
    }
    x0 = micro_batch.x0
    told |= {} if x0 is None or len(x0) < len(labels) else {checks.LABELS_EXPLAIN: explained(x0[: len(labels)], labels)}
    return told


def explained(images: Tensor, labels: Tensor) -> float:
    """How much more alike images of one label are than under random permutations of the labels, in their standard
    deviations. Independent of the network and of what it has learnt."""
    x = images.detach().float().flatten(1)
    x = x - x.mean(0)
    alike = x @ x.T
    same = (labels[:, None] == labels).to(alike)
    within = same / same.sum(1, keepdim=True)
    dealer = torch.Generator().manual_seed(0)
    deals = [torch.randperm(len(x), generator=dealer).to(x.device) for _ in range(DEALS)]
    chance = torch.stack([(within[deal][:, deal] * alike).sum() for deal in deals])
    spread = chance.std().clamp(min=TINY + 1e-6 * float(alike.trace()))
    return float(((within * alike).sum() - chance.mean()) / spread)


@torch.no_grad()
def look_at_responses(model: nn.Module, before: StateBefore, micro_batch: ForwardPass) -> dict[str, float]:
    """How much the answer changes when timesteps, and when labels, are those of other samples."""
    call = micro_batch.call
    if call is None or call.x is None or call.output is None:
        return {}
    call, network, told = call.of_first(SAMPLES), _WithWeights(model, before.weights), dict[str, float]()
    plain: Tensor | None = None
    for name, values in (("t", call.t), ("labels", call.labels)):
        if values is None or len(values) < 2:
            continue
        others = values.roll(max(1, len(values) // 2))
        if bool((differ := values != others).any()):
            plain = call.again(network) if plain is None else plain
            changed = call.with_changes(**{name: others}).again(network)
            if bool(plain.isfinite().all()) and bool(plain.any()):
                told[checks.RESPONSE[name]] = _relative(changed[differ], plain[differ])
    return told


class _WithWeights(nn.Module):
    """The model with other weights, called as it was called."""

    def __init__(self, model: nn.Module, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._model, self._weights = [model], dict(weights)  # in a list: not a part of this module

    def forward(self, *inputs: Any, **named: Any) -> Any:
        buffers = {name: value.clone() for name, value in self._model[0].named_buffers()}  # which a pass may move
        return answer_of(functional_call(self._model[0], {**buffers, **self._weights}, inputs, named))


def _inner(a: Mapping[str, Tensor | None], b: Mapping[str, Tensor | None]) -> float:
    total = 0.0
    for name, x in a.items():
        y = b.get(name)
        if x is not None and y is not None:
            total += float((x.float() * y.float()).sum())
    return total


def _pairs(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor | None]) -> Iterator[tuple[Tensor, Tensor]]:
    return ((mine, other) for name, mine in ours.items() if (other := theirs.get(name)) is not None)


def _signs(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor | None]) -> float:
    """The share of values that have the same sign in both: clipping by value does not change it."""
    same = both = 0.0
    for mine, other in _pairs(ours, theirs):
        product = torch.sign(mine.float()) * torch.sign(other.float())
        same, both = same + float((product > 0).sum()), both + float((product != 0).sum())
    return same / both if both else 1.0


def _worst(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor | None], whole: float) -> float:
    """The least cosine of a single tensor, among those that matter."""
    cosines = [1.0]
    for mine, other in _pairs(ours, theirs):
        if (size := _square(mine)) > COUNTS * whole and (length := _square(other)) > 0:
            cosines.append(float((mine.float() * other.float()).sum()) / math.sqrt(size * length))
    return min(cosines)


def _vanished(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor | None]) -> float:
    """The share of values that should be in the gradient and are exactly 0 there."""
    gone = there = 0.0
    for mine, other in _pairs(ours, theirs):
        gone, there = gone + float(((mine != 0) & (other == 0)).sum()), there + float((mine != 0).sum())
    return gone / max(there, 1.0)


def _relative(a: Tensor, b: Tensor | None) -> float:
    if b is None:
        return 0.0
    b = b.detach().float()
    return float((a.detach().float() - b).norm() / b.norm().clamp(min=1e-12)) if b.abs().sum() > 0 else 0.0


def dense(gradient: Tensor) -> Tensor:
    """A dense copy, also of a sparse gradient."""
    gradient = gradient.detach()
    return gradient.to_dense() if gradient.is_sparse else gradient.clone()


def _square(values: Tensor) -> float:
    return float(values.float().square().sum())
