"""Where the first non-finite value appeared: the refused step again, with every module under observation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from safelight.train.feed import Inputs
from safelight.train.step import Stepper


def find_first_nonfinite(stepper: Stepper, inputs: Sequence[Inputs], step: int) -> str:
    """One phrase, such as "the output of mid_block.attentions.0". Exact, because nothing random has state
    and a refused update leaves the weights as they were."""
    model = stepper.state.model
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"the weights of {name}"
    for micro in inputs:
        found = _in_inputs(micro) or _in_pass(stepper, micro, step)
        if found:
            return found
    return "nothing in the replay of the step: it did not happen again with the weights as they are now"


def describe_inputs(inputs: Sequence[Inputs]) -> dict[str, object]:
    """What went into the step, for the record."""
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
