"""Updates that are not finite: counted, recorded, traced to the first module."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from safelight.diffusion.micro_batch import MicroBatch
from safelight.errors import Stopped
from safelight.healing.step_settings import settings_at
from safelight.monitors.modules import NAMED
from safelight.observing.recorder import Recorder
from safelight.observing.step_view import StepView
from safelight.processes.group import ProcessGroup
from safelight.training.step import Stepper

NOWHERE = "nothing in the replay of the step: it did not happen again with the weights as they are now"


def count_refusal(stepper: Stepper, record: Recorder, view: StepView, *, overflow: bool) -> str | None:
    """Counts and records a refused update, which the device itself refused inside the step. Returns where the first
    non-finite value appeared once there were too many in a row. `overflow`: of a loss scale, which is no fault."""
    counters = stepper.state.counters
    counters.refused += 1
    names = stepper.state.monitors.parts.nonfinite(view.norms)
    gradients = {"nonfinite_gradients": names[:NAMED], "nonfinite_count": len(names)}
    record.event(view.step, "refused", overflow=overflow, **gradients, **describe_inputs(view.inputs, stepper.group))
    if overflow:
        return None
    counters.refused_in_row += 1
    if counters.refused_in_row < stepper.config.train.max_refused:
        return None
    where = _find(stepper, view, names)
    record.event(view.step, "stopped", first_nonfinite=where)
    return where


def _find(stepper: Stepper, view: StepView, names: list[str]) -> str:
    """By replaying the step, unless that takes all processes: each may fail elsewhere, and the others would wait."""
    if stepper.state.weights.shard is None:
        return find_first_nonfinite(stepper, view.inputs, view.step)
    if not names:
        return "the loss (divided weights: where it began is not looked for)"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"the gradient of {names[0]}{more} (divided weights: where it began is not looked for)"


def stopped(stepper: Stepper, step: int, where: str) -> Stopped:
    return Stopped(
        f"Stopped at step {step}: {stepper.state.counters.refused_in_row} updates in a row were not finite. The first "
        f"non-finite value appeared in {where}. The weights are those from before, and saved. The usual fixes: a lower "
        f"--lr (now {stepper.config.optimizer.lr:g}), --precision bf16 instead of fp16, a longer optimizer.warmup.",
        finding=f"non-finite: {where}",
    )


def find_first_nonfinite(stepper: Stepper, inputs: Sequence[MicroBatch], step: int) -> str:
    """Such as "the output of mid_block.attentions.0". Exact, because nothing random has state and a refused update
    leaves the weights as they were. Each process checks its own share of the batch."""
    found = stepper.group.all_gather_object(_find_here(stepper, inputs, step))
    rank = next((rank for rank, where in enumerate(found) if where != NOWHERE), 0)
    return found[rank] + (f" on process {rank}" if len(found) > 1 and found[rank] != NOWHERE else "")


def _find_here(stepper: Stepper, inputs: Sequence[MicroBatch], step: int) -> str:
    model = stepper.state.model
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"the weights of {name}"
    for micro in inputs:
        found = _in_inputs(micro) or _in_pass(stepper, micro, step)
        if found:
            return found
    return NOWHERE


def describe_inputs(inputs: Sequence[MicroBatch], group: ProcessGroup) -> dict[str, object]:
    """What went into the step on all processes, for the record."""
    rows = group.all_gather_object(_describe_here(inputs))
    joined: dict[str, object] = {name: [x for each in rows for x in each[name]] for name in ("samples", "timesteps")}
    for name, choose in (("min", min), ("max", max), ("mean", fmean), ("std", fmean)):  # shares are equally large
        joined[f"image_{name}"] = choose([each[f"image_{name}"] for each in rows])
    return joined


def _describe_here(inputs: Sequence[MicroBatch]) -> dict[str, Any]:
    images = torch.cat([micro.x0 for micro in inputs]).float()
    return {
        "samples": [int(i) for micro in inputs for i in micro.ids],
        "timesteps": [int(t) for micro in inputs for t in micro.t],
        "image_min": float(images.min()),
        "image_max": float(images.max()),
        "image_mean": float(images.mean()),
        "image_std": float(images.std()),
    }


def _in_inputs(micro: MicroBatch) -> str | None:
    for name, value in (("images", micro.x0), ("noise", micro.noise)):
        if not value.isfinite().all():
            return f"the input {name}"
    return None


def _in_pass(stepper: Stepper, micro: MicroBatch, step: int) -> str | None:
    """Replays forward and backward of one micro-batch, reading every output on the host: slow, and only here."""
    model, found = stepper.state.model, list[str]()

    def watch_output(name: str):
        def hook(_: nn.Module, __: object, output: object) -> None:
            if not found and isinstance(output, Tensor) and not output.isfinite().all():
                found.append(f"the output of {name}")

        return hook

    def watch_gradient(name: str):
        def hook(parameter: Tensor) -> None:
            if not found and parameter.grad is not None and not parameter.grad.isfinite().all():
                found.append(f"the gradient of {name}")

        return hook

    leaves = [(n, m) for n, m in model.named_modules() if not list(m.children())]
    hooks = [module.register_forward_hook(watch_output(name or "the model")) for name, module in leaves]
    hooks += [
        p.register_post_accumulate_grad_hook(watch_gradient(n)) for n, p in model.named_parameters() if p.requires_grad
    ]
    try:
        step_settings = settings_at(stepper.config, stepper.state.journal.acts, step)
        noised, answer = stepper.forward(micro, step, step_settings)
        _, weighted = stepper.objective.loss(answer, noised)
        if not found and not answer.isfinite().all():
            found.append("the output of the model")
        if not found and not weighted.isfinite().all():
            found.append("the loss")
        if not found:
            (weighted.sum() * (stepper.state.loss_scale.value / stepper.config.train.batch_size)).backward()
    finally:
        for hook in hooks:
            hook.remove()
        stepper.state.optimizer.zero_grad(set_to_none=True)
    return found[0] if found else None
