"""Faults inside the network: its start, its organs, its gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gauntlet.fault import fault, graft
from gauntlet.loop import Loop
from gauntlet.loop_parts import LoopParts
from gauntlet.options import FOREIGN


@torch.no_grad()
def start_average_here(run: LoopParts) -> None:
    """The average begins at the weights as they are now."""
    if run.ema is not None:
        for shadow, weight in zip(run.shadows(), run.weights(), strict=True):
            shadow.copy_(weight)


@fault("model.zero-init")
@torch.no_grad()
def zero_all_weights(run: LoopParts) -> None:
    """Every weight begins at zero, not only those of the output."""
    for weight in run.weights():
        weight.zero_()
    start_average_here(run)


@fault("model.init-gain", doses=(5.0, 10.0))
@torch.no_grad()
def inflate_weights(run: LoopParts, gain: float) -> None:
    """The gain of the initialisation is too large."""
    nn.init.normal_(run.network.conv_out.weight, std=0.2)
    for weight in run.weights():
        if weight.dim() > 1:
            weight.mul_(gain)
    start_average_here(run)


@fault("model.bounded-output", doses=("tanh", "relu", "sigmoid"))
def bound_output(run: LoopParts, kind: str) -> None:
    """An activation behind the last layer."""
    graft(run.network.conv_out, {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}[kind])


@fault("model.dead-units", "model.no-gradient", why="dead units pass no gradient to what lies before them")
@torch.no_grad()
def kill_units(run: LoopParts) -> None:
    """Biases of −20 before the activations."""
    for name, module in run.network.named_modules():
        if name.endswith(("norm1", "norm2")):
            assert isinstance(module.bias, Tensor)
            module.bias.fill_(-20)
    start_average_here(run)


@fault("model.frozen", "model.no-gradient", "optimizer.no-update", why="what is frozen gets no gradient and no update",
       late=0.5)  # fmt: skip
def freeze_half(run: LoopParts) -> None:
    """`requires_grad_(False)` on the first half of the layers; the optimizer still has them."""
    weights = list(run.model.parameters())
    for weight in weights[: len(weights) // 2]:
        weight.requires_grad_(False)
        weight.grad = None


@fault("model.no-gradient", "model.frozen", why="without a gradient a layer stands still")
def detach_body(run: LoopParts) -> None:
    """`.detach()` before the last layer: the body gets no gradient."""
    graft(run.network.conv_norm_out, lambda h: h.detach())


@fault("model.dropout")
def drop_nearly_all(run: LoopParts) -> None:
    """Nine tenths are dropped, where one tenth was meant."""
    for module in run.network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.9


@fault("model.blind-to-timestep", late=0.5)
def cut_time_embedding(run: LoopParts) -> None:
    """The embedding of the timestep is computed, and does not reach the blocks."""
    graft(run.network.time_embedding, lambda found: found * 0)


@fault("model.embedding-collapsed", "model.blind-to-timestep", "timesteps.not-passed-on",
       why="an embedding that is the same for all timesteps is blind to them")  # fmt: skip
def shrink_clock(run: LoopParts) -> None:
    """The sines are made for timesteps from 0 to 1000, and get them divided by 1000."""
    graft(run.network.time_proj, lambda t: (t / 1000,), before=True)


@fault("model.batch-coupling")
def couple_batch(run: LoopParts) -> None:
    """The mean over the batch enters every sample: a normalisation over the wrong dimension."""
    graft(run.network.conv_in, lambda h: h - h.mean(0, keepdim=True))


@fault("model.skip-cut", bases=("plain", "own"))
def cut_skips(run: LoopParts) -> None:
    """What the way down kept for the way up is not used."""
    for block in run.network.up_blocks:
        for resnet in block.resnets:
            width = resnet.in_channels - resnet.in_channels // 2

            def cut(h: Tensor, *rest: Tensor, width: int = width) -> tuple[Tensor, ...]:
                return (torch.cat([h[:, :width], torch.zeros_like(h[:, width:])], dim=1), *rest)

            graft(resnet, cut, before=True)


@fault("model.nonfinite", "loss.nonfinite", "precision.transient", why="a flipped bit is a weight that is not finite",
       begin=0.6)  # fmt: skip
@torch.no_grad()
def poison_weight(run: LoopParts) -> None:
    """One weight is not a number."""
    run.weights()[-1].view(-1)[0] = float("nan")


@fault("model.nonfinite", "precision.overflow", "loss.nonfinite", why="what overflows is not finite",
       bases=FOREIGN)  # fmt: skip
def overflow_activations(run: LoopParts) -> None:
    """A layer in half precision leaves its range where activations are large."""
    graft(run.network.conv_out, lambda h: (h.half() * 2**15).float() / 2**15)


@fault("model.output-shape", "loss.shape", why="the loss compares shapes that differ", bases=("plain",))
def answer_one_channel_mean(run: LoopParts) -> None:
    """The model keeps only the mean of each image, which broadcasts against the target."""
    graft(run.network.conv_out, lambda h: h.mean((2, 3), keepdim=True))


@fault("optimizer.other-parameters", "optimizer.no-update", why="the weights in use are not updated", bases=FOREIGN)
def rebuild_layer(run: LoopParts) -> None:
    """The output layer is made anew after the optimizer was made."""
    assert isinstance(run, Loop)
    old = run.network.conv_out
    fresh = nn.Linear(old.in_features, old.out_features) if isinstance(old, nn.Linear) else nn.Conv2d(
        old.in_channels, old.out_channels, 3, padding=1
    )  # fmt: skip
    nn.init.zeros_(fresh.weight)
    run.network.conv_out = fresh
