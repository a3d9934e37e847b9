"""What a network is told besides the time: text, pooled embeddings, masks, observations, labels of any kind."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from safelight import checks
from safelight.monitors.shards import local_of
from safelight.probes.forward_pass import Call, ForwardPass, Repeats, of_others
from safelight.probes.update import StateBefore

COMPARED_SAMPLES = 64  # samples whose conditions are exchanged
FEATURES = 16  # numbers per sample: fewer zeros may be a flag that is off
MIN_SAMPLES = 4  # samples that can be told apart
TINY = 1e-12


@torch.no_grad()
def measure_conditions(call: Call | None) -> dict[str, Tensor]:
    """For one call, without waiting for the device: how many tensors with an entry for each sample there are besides
    the images and the time, the share of them that is all zero, and the share that is the same for all samples."""
    found = [] if call is None else call.conditions
    if not found or len(found[0]) < MIN_SAMPLES:
        return {}
    rows = [each.detach().flatten(1) if each.dim() > 1 else each.detach()[:, None] for each in found]
    device = rows[0].device
    wide = [each for each in rows if each.is_floating_point() and each.shape[1] >= FEATURES]
    constant = torch.stack([(each == each[:1]).all().to(device) for each in rows])
    readings: dict[str, Tensor] = {
        checks.CONDITIONS_COUNT: torch.tensor(float(len(rows)), device=device),
        checks.CONDITIONS_CONSTANT: constant.float().mean(),
    }
    if wide:
        empty = torch.stack([~each.any().to(device) for each in wide])
        readings[checks.CONDITIONS_EMPTY] = empty.float().mean()
    return readings


@torch.no_grad()
def exchange_conditions(repeats: Repeats, before: StateBefore, micro_batch: ForwardPass) -> dict[str, float]:
    """How much the answer changes when all conditions are those of other samples; and how much worse it is then, where
    the target is known. With the weights from before the update, which has seen these samples."""
    call = micro_batch.call
    if call is None or call.x is None or call.output is None:
        return {}
    call = call.of_first(COMPARED_SAMPLES)
    differ = _differ(call)
    if differ is None or int(differ.sum()) < MIN_SAMPLES:
        return {}
    plain = repeats.answer_before(call, before.weights).float()
    if len(call.conditions) == 1 and call.conditions[0] is call.labels:
        changed = repeats.answer_to_other_labels(call, before.weights).float()
    else:
        changed = repeats.answer(call.with_conditions(of_others), before.weights).float()
    if not bool(plain.isfinite().all()) or not bool(plain.any()):
        return {}
    apart = (changed[differ] - plain[differ]).norm() / plain[differ].norm().clamp(min=TINY)
    readings: dict[str, float] = {checks.RESPONSE["conditions"]: float(apart)}
    target = micro_batch.target
    if target is None or target.shape[1:] != plain.shape[1:] or len(target) < len(plain):
        return readings
    aim = target[: len(plain)].detach().float()
    right, wrong = ((answer - aim).square().flatten(1).mean(1) for answer in (plain, changed))
    gain = (wrong - right)[differ]
    return readings | {
        checks.CONDITIONS_GAIN: float(gain.mean()),
        checks.CONDITIONS_GAIN_ERROR: float(gain.std() / len(gain) ** 0.5),
        checks.CONDITIONS_ERROR: float(right.mean()),
    }


def has_null_gradient(model: nn.Module, call: Call | None) -> bool:
    """Whether a row of the label embedding had a gradient that no label of the call has: networks such as DiT drop
    labels inside, where a call does not show it."""
    labels = None if call is None else call.labels
    if labels is None or labels.is_floating_point() or not labels.numel():
        return False
    highest, shown = int(labels.max()), set(labels.unique().tolist())
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding) and m.num_embeddings > highest]
    if not tables:
        return False
    gradient = min(tables, key=lambda table: table.num_embeddings).weight.grad
    if gradient is not None and local_of(gradient) is not gradient:
        return False  # its rows are on other processes
    if gradient is None or gradient.is_sparse:
        return False
    rows = [row for row in (0, len(gradient) - 1) if row not in shown]
    return any(bool(gradient[row].any()) for row in rows)


def _differ(call: Call) -> Tensor | None:
    """[samples] whether any condition of the sample becomes another; None without conditions."""
    found = call.conditions
    if not found:
        return None
    changes = [(each != of_others(each)).reshape(len(each), -1).any(1).cpu() for each in found]
    return torch.stack(changes).any(0)
