"""A trained model as a pipeline that `diffusers` loads: plain U-Net, the schedule of training, safetensors only."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from safelight.config import Config
from safelight.diffusion.sampling import make_scheduler
from safelight.diffusion.schedule import make_schedule
from safelight.errors import UsageError


def export_pipeline(model: nn.Module, config: Config, out: Path, label: int | None = None) -> None:
    """Writes DIR/unet and DIR/scheduler. Saved as a DDPM pipeline: DDIM and others load the same folder."""
    from diffusers import DDPMPipeline, UNet2DModel

    if not isinstance(model, UNet2DModel):
        raise UsageError(
            f"The model is a {type(model).__name__}; diffusers loads only its own classes. Its weights are in the "
            "run's checkpoint, in model.safetensors and ema.safetensors."
        )
    if config.model.conditional:
        classes = config.data.classes or 0
        label = classes if label is None else label  # the last stands for no label
        if not 0 <= label <= classes:
            raise UsageError(f"--label is {label}, but the labels of this model go from 0 to {classes - 1}.")
    elif label is not None:
        raise UsageError("--label needs a conditional model, but this one was trained without labels.")
    scheduler = make_scheduler("ddpm", make_schedule(config.diffusion), config.diffusion.prediction)
    try:
        DDPMPipeline(unet=plain_unet(model, label), scheduler=scheduler).save_pretrained(out, safe_serialization=True)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}. Choose another folder with -o.") from error


@torch.no_grad()
def plain_unet(model: nn.Module, label: int | None = None) -> Any:
    """A copy, on the CPU, whose spectral norms are folded into its weights. With a `label`, it is the same function for
    that label alone: its embedding is added to the time embedding anyway, so it becomes part of that layer's bias.
    Pipelines of diffusers that know no labels can then run it."""
    from diffusers import UNet2DModel

    # Trap: a copied parametrized layer shares its class with the original, and `remove_parametrizations` takes the
    # weight out of that class: both would be broken. So the folded weights go into a new model.
    copied: Any = copy.deepcopy(model).eval()  # in training, reading a weight would move its power iteration
    weights = {name: value for name, value in copied.state_dict().items() if ".parametrizations." not in name}
    for path, layer in copied.named_modules():
        if parametrize.is_parametrized(layer):
            weights |= {f"{path}.{name}": getattr(layer, name) for name in layer.parametrizations}
    settings, bias = dict(copied.config), "time_embedding.linear_2.bias"
    if label is not None:
        del settings["num_class_embeds"]
        weights[bias] = weights[bias] + weights.pop("class_embedding.weight")[label]
    plain: Any = UNet2DModel.from_config(settings)
    plain.load_state_dict(weights)
    return plain
