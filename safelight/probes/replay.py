"""A step repeated on copies: is the gradient that of this prediction? What would another update or other labels do?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from safelight import checks
from safelight.probes.forward_pass import ForwardPass, Repeats, of_others
from safelight.probes.update import TINY, StateBefore, square

SAMPLES = 32  # of a batch are enough for a line search
COMPARED_SAMPLES = 64  # samples whose labels are exchanged
DEALS = 64  # random permutations of the labels
NO_CHANGE = (0.99, 1.01)  # of the error: LRA002 looks farther between 0.999 and 1.001
COUNTS = 1e-3  # share of the squared gradient from which a tensor is compared on its own

Gradients = Mapping[str, Tensor | None]


def replay_gradient(
    repeats: Repeats, before: StateBefore, micro_batches_seen: Sequence[ForwardPass], previous: Gradients | None
) -> dict[str, float]:
    """The gradient of the mean squared error of every micro-batch, against the one that the optimizer got.

    `replay/cosine` 1 and `replay/ratio` 1: the same. `replay/carried`: how much of the gradient of the step before is
    in it, over how much of its own. `replay/output_error`: the network's answer then and now.
    """
    weights = {name: value.detach().clone().requires_grad_() for name, value in before.weights.items()}
    output_errors, error, zero = [], 0.0, 0.0
    earlier: dict[str, Tensor] = {}  # of all micro-batches but the last
    with torch.enable_grad():
        for micro_batch in micro_batches_seen:
            if (replayable := micro_batch.replayable) is None:
                return {}
            call, target = replayable
            if call.half == torch.float16:  # its gradients are what is checked: exact ones are needed
                call = replace(call, half=None)
            earlier = {n: v.grad.clone() for n, v in weights.items() if v.grad is not None} if output_errors else {}
            answer = repeats.answer(call, weights)
            loss = (answer.float() - target.float()).square().mean() / len(micro_batches_seen)
            loss.backward()
            repeats.book_backward(call)
            error += float(loss.detach())
            zero += float(target.float().square().mean()) / len(micro_batches_seen)
            assert call.output is not None
            output_errors.append(_relative(answer, call.output))
    theirs = before.gradients
    missing = all(gradient is None for gradient in theirs.values())
    ours = {name: value.grad for name, value in weights.items() if value.grad is not None}
    if not missing:  # parts without any, such as frozen ones, are reported elsewhere
        ours = {name: gradient for name, gradient in ours.items() if theirs.get(name) is not None}
    inner, own, whole = _inner(ours, theirs), _inner(ours, ours), _inner(theirs, theirs)
    readings: dict[str, float] = {
        checks.REPLAY_OUTPUT_ERROR: max(output_errors),
        checks.REPLAY_MSE: error,
        checks.LOOP_LOSS: float(torch.stack([s.loss.detach().float().mean() for s in micro_batches_seen]).mean()),
        checks.REPLAY_ZERO: zero,
        checks.REPLAY_MICRO_BATCHES: float(len(micro_batches_seen)),
        checks.REPLAY_MISSING: float(missing),
        checks.APPLIED_GRADIENT_NORM: math.sqrt(max(whole, 0)),
        checks.REPLAY_GRADIENT_NORM: math.sqrt(own),
        checks.REPLAY_COSINE: inner / max(math.sqrt(own * whole), TINY),
        checks.REPLAY_RATIO: math.sqrt(max(whole, 0) / max(own, TINY)),
        **_compare_values(ours, theirs, own),
    }
    if earlier:
        last = {name: gradient - earlier[name] for name, gradient in ours.items() if name in earlier}
        readings[checks.REPLAY_LAST_COSINE] = _inner(last, theirs) / max(math.sqrt(_inner(last, last) * whole), TINY)
    return readings if previous is None or missing else readings | _carried(ours, theirs, previous)


def _carried(ours: Gradients, theirs: Gradients, previous: Gradients) -> dict[str, float]:
    """theirs = α·ours + β·previous by least squares; β / α is 1 where gradients were never cleared."""
    xx, yy, xy = _inner(ours, ours), _inner(previous, previous), _inner(ours, previous)
    xg, yg = _inner(ours, theirs), _inner(previous, theirs)
    determinant = xx * yy - xy * xy
    if determinant <= 1e-6 * xx * yy or not math.isfinite(determinant):
        return {}
    own, carried = (yy * xg - xy * yg) / determinant, (xx * yg - xy * xg) / determinant
    explained = (own * xg + carried * yg) / max(_inner(theirs, theirs), TINY)
    return {checks.REPLAY_CARRIED: carried / own if own else 0.0, checks.REPLAY_EXPLAINED: explained}


def search_line(repeats: Repeats, before: StateBefore, micro_batch: ForwardPass) -> dict[str, float]:
    """The error on the step's own samples at several lengths of its update, over the error without it."""
    if (replayable := micro_batch.replayable) is None:
        return {}
    call, target = replayable[0].of_first(SAMPLES), replayable[1][:SAMPLES].float()
    now = dict(repeats.model.named_parameters())

    def error_of(answer: Tensor) -> float:
        return float((answer.float() - target).square().mean())

    @torch.no_grad()
    def error(length: float) -> float:
        weights = {name: torch.lerp(old.float(), now[name].float(), length).to(old.dtype)
                   for name, old in before.weights.items()}  # fmt: skip
        return error_of(repeats.answer(call, weights))

    start = error_of(repeats.answer_before(call, before.weights))
    if not math.isfinite(start) or start <= 0:
        return {}
    searched: dict[str, float] = {}
    for length, check in checks.LINE_SEARCH_RATIO.items():
        searched[check] = error(float(length)) / start
        # Only where a hundredfold update changes nothing yet: a rate may be lower still.
        if length == "100" and not NO_CHANGE[0] < searched[check] < NO_CHANGE[1]:
            break
    # Only after an update that no usual length would have helped.
    for length, check in checks.LINE_SEARCH_SHORTER.items():
        if min(map(_lost_as_infinite, searched.values())) < 1:
            break
        searched[check] = error(float(length)) / start
    return {
        **searched,
        checks.LINE_SEARCH_START: start,
        checks.LINE_SEARCH_ZERO: float(target.square().mean()),
        checks.LINE_SEARCH_RATE: before.rate,
    }


def _lost_as_infinite(ratio: float) -> float:
    return ratio if math.isfinite(ratio) else math.inf


@torch.no_grad()
def measure_labels(repeats: Repeats, before: StateBefore, micro_batch: ForwardPass) -> dict[str, float]:
    """How much worse the network is with the labels of other samples: not at all, where labels carry no information.
    With the weights from before the update, which has seen these samples."""
    if (replayable := micro_batch.replayable) is None:
        return {}
    call, target = replayable[0].of_first(COMPARED_SAMPLES), replayable[1][:COMPARED_SAMPLES]
    labels = call.labels
    if labels is None or labels.is_floating_point() or len(labels) < 8 or len(labels.unique()) < 2:
        return {}
    others = of_others(labels)
    answers = (
        repeats.answer_before(call, before.weights),
        repeats.answer_to_other_labels(call, before.weights),
    )
    right, wrong = ((answer.float() - target.float()).square().flatten(1).mean(1) for answer in answers)
    gain = (wrong - right)[labels != others]
    if len(gain) < 4:
        return {}
    readings: dict[str, float] = {
        checks.LABELS_GAIN: float(gain.mean()),
        checks.LABELS_GAIN_ERROR: float(gain.std() / len(gain) ** 0.5),
        checks.LABELS_ERROR: float(right.mean()),
    }
    x0 = micro_batch.x0
    if x0 is not None and len(x0) >= len(labels):
        readings[checks.LABELS_EXPLAIN] = explained(x0[: len(labels)], labels)
    return readings


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
def measure_responses(repeats: Repeats, before: StateBefore, micro_batch: ForwardPass) -> dict[str, float]:
    """How much the answer changes when timesteps, and when labels, are those of other samples."""
    call = micro_batch.call
    if call is None or call.x is None or call.output is None:
        return {}
    call, readings = call.of_first(SAMPLES), dict[str, float]()
    for name, values in (("t", call.t), ("labels", call.labels)):
        if values is None or len(values) < 2:
            continue
        others = of_others(values)
        if bool((differ := values != others).any()):
            plain = repeats.answer_before(call, before.weights)
            if name == "labels":
                changed = repeats.answer_to_other_labels(call, before.weights)
            else:
                changed = repeats.answer(call.with_changes(t=others), before.weights)
            if bool(plain.isfinite().all()) and bool(plain.any()):
                readings[checks.RESPONSE[name]] = _relative(changed[differ], plain[differ])
    return readings


def _pairs(ours: Gradients, theirs: Gradients) -> Iterator[tuple[Tensor, Tensor]]:
    for name, mine in ours.items():
        if mine is not None and (other := theirs.get(name)) is not None:
            yield mine, other


def _inner(ours: Gradients, theirs: Gradients) -> float:
    total = 0.0
    for mine, other in _pairs(ours, theirs):
        total += float((mine.float() * other.float()).sum())
    return total


def _compare_values(ours: Gradients, theirs: Gradients, own: float) -> dict[str, float]:
    """The share of values that should be in the gradient and are exactly 0 there; the least cosine of a single tensor,
    among those that matter; the share of values with the same sign in both, which clipping by value does not change."""
    gone = there = same = both = 0.0
    cosines = [1.0]
    for mine, other in _pairs(ours, theirs):
        gone, there = gone + float(((mine != 0) & (other == 0)).sum()), there + float((mine != 0).sum())
        if (size := square(mine)) > COUNTS * own and (length := square(other)) > 0:
            cosines.append(float((mine.float() * other.float()).sum()) / math.sqrt(size * length))
        product = torch.sign(mine.float()) * torch.sign(other.float())
        same, both = same + float((product > 0).sum()), both + float((product != 0).sum())
    return {
        checks.REPLAY_VANISHED: gone / max(there, 1.0),
        checks.REPLAY_WORST: min(cosines),
        checks.REPLAY_SIGNS: same / both if both else 1.0,
    }


def _relative(a: Tensor, b: Tensor) -> float:
    """Distance over the length of the second; 0 where that is 0."""
    b = b.detach().float()
    return float((a.detach().float() - b).norm() / b.norm().clamp(min=1e-12)) if b.abs().sum() > 0 else 0.0
