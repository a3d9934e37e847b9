"""The denoiser: how it is built, loaded and called, and what can be wrapped around its blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrize import ParametrizationList
from torch.utils.checkpoint import checkpoint

from safelight.config.check import model_problems
from safelight.config.tree import Model
from safelight.errors import UsageError
from safelight.keys import derive_seed
from safelight.model.calls import call_model

# diffusers takes 4 s to import, by whichever door: it is imported where it is needed.


INITIALISATIONS = ("xavier", "kaiming", "default")


def build_unet(model: Model, *, image_size: int, channels: int, classes: int, seed: int) -> nn.Module:
    """A plain diffusers UNet2DModel, so that a trained one can be loaded by any tool.

    The weights are a function of (model, seed); no random state of the caller is used or moved.
    Conditional models have one label more than classes: the last stands for no label.
    """
    for problem in model_problems(model, image_size, classes):
        raise UsageError(problem)
    from diffusers.models.unets.unet_2d import UNet2DModel

    attends = [image_size >> level in model.attention for level in range(len(model.widths))]
    with _fixed_random(derive_seed(seed, "init")):
        unet = UNet2DModel(
            sample_size=image_size,
            in_channels=channels,
            out_channels=channels,
            block_out_channels=model.widths,
            layers_per_block=model.layers,
            down_block_types=tuple("AttnDownBlock2D" if a else "DownBlock2D" for a in attends),
            up_block_types=tuple("AttnUpBlock2D" if a else "UpBlock2D" for a in reversed(attends)),
            add_attention=attends[-1],  # the middle block has the side of the last level
            attention_head_dim=model.head_width,
            norm_num_groups=model.norm_groups,
            dropout=model.dropout,
            num_class_embeds=classes + 1 if model.conditional else None,
        )
        initialise(unet, model.initialisation)
    if model.zero_output:
        for parameter in unet.conv_out.parameters():
            nn.init.zeros_(parameter)
    return unet


def initialise(model: nn.Module, how: str, *, zero_last: bool = False) -> None:
    """Convolutions and linear layers of any model, in place: `xavier` or `kaiming` (uniform), biases 0; `default`
    leaves them as they are. `zero_last`: the last of them is 0, so that the first output is 0."""
    if how not in INITIALISATIONS:
        raise UsageError(f"Weights cannot be initialised by {how!r}. Use {', '.join(INITIALISATIONS[:-1])} or default.")
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | _ConvNd)]
    for layer in layers if how != "default" else ():
        if how == "xavier":
            nn.init.xavier_uniform_(layer.weight)
        else:
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    if zero_last:
        _zero_last(model, layers)


def _zero_last(model: nn.Module, layers: Sequence[nn.Module]) -> None:
    if not layers:
        raise UsageError(f"The model {type(model).__name__} has no convolution or linear layer that could be zeroed.")
    for parameter in layers[-1].parameters():
        nn.init.zeros_(parameter)


def predict(model: nn.Module, x: Tensor, t: Tensor, labels: Tensor | None) -> Tensor:
    """The output for `x` at `t` of a UNet2DModel or any nn.Module of (x, t[, label])."""
    output = call_model(model, x, t, labels)
    if output.shape != x.shape:
        raise UsageError(
            f"The model {type(model).__name__} turned a batch of shape {tuple(x.shape)} into {tuple(output.shape)}. "
            "A denoiser must keep the shape; if it also predicts a variance, return only the mean."
        )
    return output


def load_pipeline_unet(folder: Path) -> nn.Module:
    """The U-Net of a diffusers pipeline folder, or of a bare UNet2DModel folder; no network, no pickle."""
    home = _unet_folder(Path(folder))
    from diffusers.models.unets.unet_2d import UNet2DModel

    try:
        with torch.random.fork_rng(devices=[]):
            loaded: Any = UNet2DModel.from_pretrained(
                home.resolve(), use_safetensors=True, local_files_only=True, output_loading_info=True
            )
    except Exception as error:  # diffusers, safetensors and json each raise their own kinds
        raise UsageError(f"The U-Net in {home} cannot be loaded: {error}") from error
    unet, report = loaded
    for kind, names in report.items():
        if names:
            raise UsageError(
                f"The weights in {home} do not belong to its config.json: "
                f"{len(names)} {kind.replace('_', ' ')}, such as {next(iter(names))}."
            )
    return unet.float().train()


def checkpoint_blocks(model: nn.Module) -> int:
    """Recompute every down, middle and up block, whole, in the backward pass; of another model the members of its lists
    of modules. Returns how many.

    diffusers' own flag wraps the residual blocks and leaves out all attention, all resampling and the
    first residual block in the middle. Names of parameters stay, and copies of the model keep it.
    """
    blocks = units_of(model)
    if not blocks:
        raise UsageError(
            f"model.gradient_checkpointing needs a model with down_blocks, mid_block or up_blocks, or with lists of "
            f"modules; {type(model).__name__} has none of them. Checkpoint it yourself, or turn the setting off."
        )
    for block in blocks:
        # A bound method of a module-level function, not a closure: deepcopy binds it to the copied block.
        block.forward = MethodType(_recomputed_forward, block)
    return len(blocks)


def units_of(model: nn.Module) -> list[nn.Module]:
    """What is computed as a whole, one after the other: the blocks of a U-Net, or of any other model the members of
    its lists of modules."""
    lists = [child for child in model.children() if isinstance(child, nn.ModuleList | nn.Sequential)]
    units = list(_named_blocks(model).values()) or [member for each in lists for member in each]
    return [unit for unit in units if any(True for _ in unit.parameters())]


def add_spectral_norm(model: nn.Module) -> int:
    """Bound the spectral norm of every convolution and linear layer inside the blocks, of a model without blocks of all
    but the last; returns how many.

    Each layer gains two buffers, the singular vectors of a power iteration. Every forward pass in
    training moves them: they are state, saved and loaded with the model. The start is a function of
    the model. State dict names change (`weight` becomes `parametrizations.weight.original`):
    export after `torch.nn.utils.parametrize.remove_parametrizations`.
    """
    parts = [part for prefix, block in _named_blocks(model).items() for part in block.named_modules(prefix=prefix)]
    layers = [(name, part) for name, part in parts if isinstance(part, nn.Conv2d | nn.Linear)]
    if not parts:  # the last layer has to be free to reach any output
        named = model.named_modules()
        layers = [(name, part) for name, part in named if isinstance(part, nn.Conv2d | nn.Linear)][:-1]
    for name, layer in layers:
        if not isinstance(layer.weight, FakeTensor) and not torch.any(layer.weight):
            raise UsageError(f"model.spectral_norm cannot divide {name} by its norm: its weights are all zero.")
    with _fixed_random(derive_seed(0, "init", 1)):
        for _, layer in layers:
            spectral_norm(layer)
    return len(layers)


def _unet_folder(folder: Path) -> Path:
    """Where config.json and the safetensors are, after everything that can be refused was refused."""
    home = next((f for f in (folder / "unet", folder) if (f / "config.json").is_file()), None)
    if home is None:
        raise UsageError(f"{folder} holds no diffusers model: neither unet/config.json nor config.json is there.")
    try:
        kind = json.loads((home / "config.json").read_text(encoding="utf-8"))["_class_name"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{home / 'config.json'} does not name the class of a diffusers model.") from error
    if kind != "UNet2DModel":
        raise UsageError(f"{home} holds a {kind}. Only a UNet2DModel can be trained further.")
    if not any(home.glob("diffusion_pytorch_model*.safetensors")):
        pickles = sorted(f.name for f in home.glob("*.bin")) + sorted(f.name for f in home.glob("*.pt*"))
        found = f"only {pickles[0]}, a pickle, which may run any code when opened" if pickles else "none"
        raise UsageError(
            f"{home} should hold its weights in diffusion_pytorch_model.safetensors; found {found}. "
            "Save the model again with save_pretrained(folder, safe_serialization=True)."
        )
    return home


def _named_blocks(model: nn.Module) -> dict[str, nn.Module]:
    found: dict[str, nn.Module] = {}
    for attribute in ("down_blocks", "mid_block", "up_blocks"):
        part = getattr(model, attribute, None)
        if isinstance(part, nn.ModuleList):
            found |= {f"{attribute}.{index}": block for index, block in enumerate(part)}
        elif isinstance(part, nn.Module):
            found[attribute] = part
    return found


def _recomputed_forward(block: nn.Module, *args: Any, **kwargs: Any) -> Any:
    forward = partial(type(block).forward, block)
    if not (block.training and torch.is_grad_enabled()):
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, context_fn=lambda: (nullcontext(), _still(block)), **kwargs)


@contextmanager
def _still(block: nn.Module) -> Iterator[None]:
    """Keep parametrizations from moving their state: a recomputed forward must repeat, not go on.

    Trap: without this, spectral norm would step its power iteration twice and take the gradient of
    other weights than those of the forward pass.
    """
    moving = [m for m in block.modules() if isinstance(m, ParametrizationList) and m.training]
    for parametrization in moving:
        parametrization.eval()
    try:
        yield
    finally:
        for parametrization in moving:
            parametrization.train()


@contextmanager
def _fixed_random(seed: int) -> Iterator[None]:
    # The CPU generator only: torch.manual_seed would also seed every GPU, which fork_rng does not undo here.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def describe_unet(model: nn.Module) -> dict[str, Any] | None:
    """What a UNet2DModel is built from, as plain data; None for any other module."""
    from diffusers.models.unets.unet_2d import UNet2DModel

    if not isinstance(model, UNet2DModel):
        return None
    return {name: value for name, value in dict(model.config).items() if not name.startswith("_")}


def unet_from_description(description: dict[str, Any]) -> nn.Module:
    """The inverse of `describe_unet`, but for the weights."""
    from diffusers.models.unets.unet_2d import UNet2DModel

    model: Any = UNet2DModel.from_config(description)
    return model
