"""A trained model as a folder that `diffusers` loads: plain U-Net, the scheduler of training, safetensors only."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from torch.nn.utils import parametrize

from safelight.config import Config
from safelight.diffusion.sampling import NATIVE, make_continuous_scheduler, make_scheduler
from safelight.diffusion.schedule import make_schedule
from safelight.errors import UsageError
from safelight.files import TEMPORARY, Disk, make_directories
from safelight.model.card import model_card
from safelight.outputs import check_output_folder


def export_pipeline(model: nn.Module, config: Config, out: Path, label: int | None = None) -> None:
    """Writes DIR/unet and DIR/scheduler. A table of timesteps is saved as a DDPM pipeline: DDIM and others load the
    same folder. diffusers has no pipeline for flows and EDM of pixels: those come with a README that samples them."""
    from diffusers import UNet2DModel

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
    diffusion = config.diffusion
    if diffusion.prediction not in (NATIVE if diffusion.process == "vp" else (diffusion.process,)):
        raise UsageError(
            f"No scheduler of diffusers takes a prediction of {diffusion.prediction} in a process of kind "
            f"{diffusion.process}. The weights are in the run's checkpoint, in model.safetensors and ema.safetensors."
        )
    place = check_output_folder(out)
    try:
        make_directories(place.parent)
        with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=place.parent) as made:
            _save(plain_unet(model, label), config, Path(made))
            _put_in_place(Path(made), place)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}. Choose another folder with -o.") from error
    except SafetensorError as error:  # its own word for a full disk
        raise UsageError(f"{out} cannot be written: {error}. Make room, or choose another folder with -o.") from error


def _put_in_place(made: Path, place: Path) -> None:
    """Where nothing stands, as one; over an earlier export, file by file. Nothing of anybody else's is replaced."""
    names = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file())
    there = [str(path.relative_to(place)) for path in place.rglob("*") if not path.is_dir()] if place.exists() else []
    if strangers := sorted(set(there) - set(names)):
        raise UsageError(
            f"{place} holds {strangers[0]}, which is not of an export. Nothing was replaced: name an empty or new "
            "folder with -o."
        )
    disk = Disk(place.parent)
    for name in names:
        make_directories((place / name).parent, disk)
        disk.rename(made / name, place / name)


def _save(unet: Any, config: Config, out: Path) -> None:
    from diffusers import DDPMPipeline

    diffusion = config.diffusion
    if diffusion.process == "vp":
        scheduler = make_scheduler("ddpm", make_schedule(diffusion), diffusion.prediction)
        DDPMPipeline(unet=unet, scheduler=scheduler).save_pretrained(out, safe_serialization=True)
        return
    scheduler = make_continuous_scheduler("euler", diffusion)
    unet.save_pretrained(out / "unet", safe_serialization=True)
    scheduler.save_pretrained(out / "scheduler")
    (out / "README.md").write_text(model_card(config, type(scheduler).__name__), encoding="utf-8")


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
