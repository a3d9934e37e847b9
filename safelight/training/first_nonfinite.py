"""Where the first non-finite value appeared: the refused step again, with every module under observation."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from safelight.diffusion.inputs import Inputs
from safelight.processes.group import ProcessGroup
from safelight.training.step import Stepper

NOWHERE = "nothing in the replay of the step: it did not happen again with the weights as they are now"


def find_first_nonfinite(stepper: Stepper, inputs: Sequence[Inputs], step: int) -> str:
    """One phrase, such as "the output of mid_block.attentions.0". Exact, because nothing random has state
    and a refused update leaves the weights as they were. Each process looks at its own share of the batch."""
    told = stepper.group.all_gather_object(_find_here(stepper, inputs, step))
    rank = next((rank for rank, where in enumerate(told) if where != NOWHERE), 0)
    return told[rank] + (f" on process {rank}" if len(told) > 1 and told[rank] != NOWHERE else "")


def _find_here(stepper: Stepper, inputs: Sequence[Inputs], step: int) -> str:
    model = stepper.state.model
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"the weights of {name}"
    for micro in inputs:
        found = _in_inputs(micro) or _in_pass(stepper, micro, step)
        if found:
            return found
    return NOWHERE


def describe_inputs(inputs: Sequence[Inputs], group: ProcessGroup) -> dict[str, object]:
    """What went into the step on all processes, for the record."""
    told = group.all_gather_object(_describe_here(inputs))
    joined: dict[str, object] = {name: [x for each in told for x in each[name]] for name in ("samples", "timesteps")}
    for name, choose in (("min", min), ("max", max), ("mean", fmean), ("std", fmean)):  # shares are equally large
        joined[f"image_{name}"] = choose([each[f"image_{name}"] for each in told])
    return joined


def _describe_here(inputs: Sequence[Inputs]) -> dict[str, Any]:
    images = torch.cat([micro.x0 for micro in inputs]).float()
    return {
        "samples": [int(i) for micro in inputs for i in micro.ids],
        "timesteps": [int(t) for micro in inputs for t in micro.t],
        "image_min": float(images.min()),
        "image_max": float(images.max()),
        "image_mean": float(images.mean()),
        "image_std": float(images.std()),
    }


def _in_inputs(micro: Inputs) -> str | None:
    for name, value in (("images", micro.x0), ("noise", micro.noise)):
        if not value.isfinite().all():
            return f"the input {name}"
    return None


def _in_pass(stepper: Stepper, micro: Inputs, step: int) -> str | None:
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
        noised, answer = stepper.forward(micro, step)
        _, weighted = stepper.objective.loss(answer, noised)
        if not found and not answer.isfinite().all():
            found.append("the output of the model")
        if not found and not weighted.isfinite().all():
            found.append("the loss")
        if not found:
            (weighted.sum() * (stepper.state.scale.scale / stepper.config.train.batch_size)).backward()
    finally:
        for hook in hooks:
            hook.remove()
        stepper.state.optimizer.zero_grad(set_to_none=True)
    return found[0] if found else None
