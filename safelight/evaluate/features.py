"""Owns features: which network looks at images, how it is named and recorded, and the pass over a set of images."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from safelight.diffusion.sampling import exact_float32
from safelight.errors import DataError, SafelightError, UsageError
from safelight.evaluate.networks import inception, lite0
from safelight.evaluate.networks.pixels import RESIZES, to_colour
from safelight.evaluate.networks.weights import SOURCES, Say, fingerprint, load_network

PATH = 1  # version of all that happens to pixels before the network: a change here makes old numbers incomparable

Images = Tensor | np.ndarray
"""uint8 [n, 1 or 3, height, width]"""


@dataclass(frozen=True, slots=True)
class Extractor:
    """A network and the pixel path before it: everything that a distance depends on besides the images."""

    name: str
    label: str
    """What a Fréchet distance over these features may be called."""
    dimension: int
    side: int
    resize: str
    fingerprint: str
    """sha256 of the weights."""
    network: nn.Module
    """[n, 3, side, side] of grey levels 0 to 255 in float32 to [n, dimension]."""

    def identity(self) -> dict[str, str | int]:
        """What must be recorded with a number, and must be equal for two numbers to be compared."""
        return {
            "extractor": self.name,
            "label": self.label,
            "dimension": self.dimension,
            "side": self.side,
            "resize": self.resize,
            "weights": self.fingerprint,
            "pixels": "uint8",
            "path": PATH,
            "precision": "float32",
        }


def load_extractor(
    name: str = "lite0",
    *,
    path: Path | None = None,
    resize: str | None = None,
    image_size: int | None = None,
    device: torch.device | str = "cpu",
    say: Say | None = None,
) -> Extractor:
    """`lite0`, cheap and always there, or `inception`, whose distance is FID. `say` gets warnings."""
    if name not in SOURCES:
        raise UsageError(f"There is no extractor {name!r}; the names are {' and '.join(SOURCES)}.")
    usual = "bilinear" if name == "lite0" else "tf1"
    resize = _known_resize(resize or usual)
    loaded = load_network(name, path, say=say or _warn)
    mark = "" if loaded.known else f"-{loaded.fingerprint[:8]}"
    way = "" if resize == usual else f"-{resize}"
    # Only what others also compute may bear the names FID and FID-clean.
    true = name == "inception" and loaded.known and resize in ("tf1", "clean")
    return Extractor(
        name=name,
        label=f"FID{way}" if true else f"FD-{name}{way}{mark}",
        dimension=lite0.DIMENSION if name == "lite0" else inception.TAPS[-1],
        side=lite0.side_for(image_size) if name == "lite0" else inception.SIDE,
        resize=resize,
        fingerprint=loaded.fingerprint,
        # Measured on a CPU: channels_last is 1.2 to 3 times faster, folding another 1.1 to 1.7 times.
        network=_channels_last(fold(loaded.network).to(device)),
    )


def own_extractor(
    module: nn.Module, *, name: str, side: int, dimension: int | None = None, resize: str = "bilinear"
) -> Extractor:
    """Any module from [n, 3, side, side] in [0, 1] to [n, d]. A copy in eval mode is used; yours is left as it is."""
    if name in SOURCES or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise UsageError(
            f"An extractor of your own cannot be named {name!r}: use letters, digits, “.”, “_” and “-”, and another "
            f"name than {' and '.join(SOURCES)}."
        )
    network = _Unit(copy.deepcopy(module)).eval().requires_grad_(False)
    found = Extractor(name, f"FD-{name}", dimension or 0, side, _known_resize(resize), _fingerprint(module), network)
    answer = _look(found, torch.zeros(2, 3, side, side, dtype=torch.uint8))
    if answer.ndim != 2 or len(answer) != 2 or dimension not in (None, answer.shape[1]):
        raise UsageError(
            f"The extractor {name} made {list(answer.shape)} of two images; [2, {dimension or 'd'}] was expected, one "
            "row of features per image."
        )
    return replace(found, dimension=answer.shape[1])


def extract(
    extractor: Extractor,
    images: Images | Iterable[Images],
    *,
    batch_size: int = 64,
    on_batch: Callable[[int], None] | None = None,
) -> np.ndarray:
    """float32 [n, dimension] of bytes [n, c, h, w] or of an iterator over such; `on_batch` gets the number done.

    The batch size changes speed and memory only: features agree to 1e-5.
    """
    assert batch_size >= 1, f"batch_size {batch_size}"
    found: list[np.ndarray] = []
    done = 0
    for batch in _batches([images] if isinstance(images, Tensor | np.ndarray) else images, batch_size):
        found.append(_look(extractor, batch).cpu().numpy())
        done += len(batch)
        if on_batch is not None:
            on_batch(done)
    if not found:
        raise DataError("There are no images to extract features of.")
    features = np.concatenate(found)
    if len(broken := np.flatnonzero(~np.isfinite(features).all(1))):
        raise SafelightError(
            f"The features of {len(broken):,} of {len(features):,} images are not finite (the first: image "
            f"{broken[0]}): {extractor.name} overflowed or its weights are damaged. No distance can be computed."
        )
    return features


def fold(network: nn.Module) -> nn.Module:
    """Puts every normalisation into the convolution before it, in float64, so that the answers stay to 1e-6."""
    for parent in list(network.modules()):
        children = list(parent.named_children())
        for (_, first), (name, second) in pairwise(children):
            if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
                _fold(first, second)
                setattr(parent, name, nn.Identity())
    return network


def _fold(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
    mean, variance = cast(Tensor, norm.running_mean).double(), cast(Tensor, norm.running_var).double()
    scale = norm.weight.double() / (variance + norm.eps).sqrt()
    weight = convolution.weight.double() * scale.view(-1, 1, 1, 1)
    convolution.weight = nn.Parameter(weight.float(), requires_grad=False)
    convolution.bias = nn.Parameter((norm.bias.double() - mean * scale).float(), requires_grad=False)


class _Unit(nn.Module):
    """A module that expects [0, 1], given grey levels."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, levels: Tensor) -> Tensor:
        return self.module((levels / 255).contiguous())  # a module may call view(), which channels_last refuses


def _look(extractor: Extractor, batch: Tensor) -> Tensor:
    network = extractor.network
    tensors = [*network.parameters(), *network.buffers()]
    device = tensors[0].device if tensors else torch.device("cpu")
    with torch.inference_mode(), exact_float32(device):
        levels = RESIZES[extractor.resize](to_colour(batch.to(device)), extractor.side)
        return network(levels.contiguous(memory_format=torch.channels_last)).float()


def _batches(chunks: Iterable[Images], size: int) -> Iterator[Tensor]:
    """Chunks of any length as batches of `size`; images of another shape begin a new one."""
    held: list[Tensor] = []
    for chunk in chunks:
        for part in _checked(chunk).split(size) if len(chunk) else ():
            room = size - sum(map(len, held))
            if held and held[0].shape[1:] != part.shape[1:]:
                yield torch.cat(held)
                held, room = [], size
            held.append(part[:room])
            if len(part) >= room:
                yield torch.cat(held)
                held = [part[room:]] if len(part) > room else []
    if held:
        yield torch.cat(held)


def _checked(chunk: Images) -> Tensor:
    images = torch.from_numpy(np.ascontiguousarray(chunk)) if isinstance(chunk, np.ndarray) else chunk
    if images.dtype != torch.uint8:
        raise DataError(
            f"Features are taken of bytes, as a file would hold them, but these images are {images.dtype}. Use "
            "safelight.evaluate.networks.pixels.quantise first."
        )
    to_colour(images)  # refuses other shapes
    return images


def _fingerprint(module: nn.Module) -> str:
    tensors = {name: tensor for name, tensor in module.state_dict().items() if isinstance(tensor, Tensor)}
    return fingerprint(tensors)


def _known_resize(resize: str) -> str:
    if resize not in RESIZES:
        raise UsageError(f"There is no way of resizing called {resize!r}; the names are {', '.join(RESIZES)}.")
    return resize


def _channels_last(network: nn.Module) -> nn.Module:
    return cast(nn.Module, network.to(memory_format=torch.channels_last))  # pyright: ignore[reportCallIssue]


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=3)
