"""Features of images: which network computes them, how it is named and recorded, and the pass over a set of images."""

from __future__ import annotations

import copy
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from safelight.diffusion.sampling import exact_float32
from safelight.errors import DataError, SafelightError, UsageError
from safelight.evaluate.networks import inception, lite0
from safelight.evaluate.networks.pixels import RESIZES, to_colour
from safelight.evaluate.networks.weights import SOURCES, Say, fingerprint, load_network

PATH = 1  # version of all that happens to pixels before the network: a change here makes old numbers incomparable

Images = Tensor | np.ndarray  # uint8 [n, 1 or 3, height, width]
Progress = Callable[[int], None]  # gets the number of images done


@dataclass(frozen=True, slots=True)
class Extractor:
    """A network and the pixel path before it: everything that a distance depends on besides the images."""

    name: str
    label: str  # what a Fréchet distance over these features may be called
    dimension: int
    side: int
    resize: str
    fingerprint: str  # sha256 of the weights
    network: nn.Module  # [n, 3, side, side] of grey levels 0 to 255 in float32 to [n, dimension]

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
    loaded = load_network(name, path, say=say or partial(warnings.warn, stacklevel=2))
    mark = "" if loaded.known else f"-{loaded.fingerprint[:8]}"
    way = "" if resize == usual else f"-{resize}"
    # Only what others also compute may bear the names FID and FID-clean.
    true = name == "inception" and loaded.known and resize in ("tf1", "clean")
    return Extractor(
        name=name,
        label=f"FID{way}" if true else f"FD-{name}{way}{mark}",
        dimension=lite0.DIMENSION if name == "lite0" else inception.DIMENSION,
        side=lite0.side_for(image_size) if name == "lite0" else inception.SIDE,
        resize=resize,
        fingerprint=loaded.fingerprint,
        # Measured on a CPU: channels_last is 1.2 to 3 times faster, folding another 1.1 to 1.7 times.
        network=fold(loaded.network).to(device).to(memory_format=torch.channels_last),  # pyright: ignore[reportCallIssue]
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
    weights = fingerprint({key: value for key, value in module.state_dict().items() if isinstance(value, Tensor)})
    found = Extractor(name, f"FD-{name}", dimension or 0, side, _known_resize(resize), weights, network)
    answer = _run(found, torch.zeros(2, 3, side, side, dtype=torch.uint8))
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
    most_pixels: float = math.inf,
    on_batch: Progress | None = None,
) -> np.ndarray:
    """float32 [n, dimension] of bytes [n, c, h, w] or of an iterator over such.

    A batch has at most `batch_size` images, and `most_pixels` unless it is a single one. That changes speed and memory
    only: features agree to 1e-5.
    """
    found: list[np.ndarray] = []
    chunks = [images] if isinstance(images, Tensor | np.ndarray) else images
    for batch in _batches(chunks, batch_size, most_pixels):
        found.append(_run(extractor, batch).cpu().numpy())
        if on_batch is not None:
            on_batch(sum(map(len, found)))
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
        for (first_name, first), (name, second) in pairwise(list(parent.named_children())):
            if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
                setattr(parent, first_name, fuse_conv_bn_eval(first.double(), second.double()).float())
                setattr(parent, name, nn.Identity())
    return network


class _Unit(nn.Module):
    """A module that expects [0, 1], given grey levels."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, levels: Tensor) -> Tensor:
        return self.module((levels / 255).contiguous())  # a module may call view(), which channels_last refuses


def _run(extractor: Extractor, batch: Tensor) -> Tensor:
    network = extractor.network
    tensors = [*network.parameters(), *network.buffers()]
    device = tensors[0].device if tensors else torch.device("cpu")
    with torch.inference_mode(), exact_float32(device):
        levels = RESIZES[extractor.resize](to_colour(batch.to(device)), extractor.side)
        return network(levels.contiguous(memory_format=torch.channels_last)).float()


def _batches(chunks: Iterable[Images], size: int, most_pixels: float) -> Iterator[Tensor]:
    """Chunks of any length as batches of at most `size` images; one of another shape begins a new batch."""
    held: list[Tensor] = []
    for image in (image for chunk in chunks for image in _checked(chunk)):
        full = len(held) == size or (len(held) + 1) * image[0].numel() > most_pixels
        if held and (full or held[0].shape != image.shape):
            yield torch.stack(held)
            held = []
        held.append(image)
    if held:
        yield torch.stack(held)


def _checked(chunk: Images) -> Tensor:
    images = torch.from_numpy(np.ascontiguousarray(chunk)) if isinstance(chunk, np.ndarray) else chunk
    if images.dtype != torch.uint8:
        raise DataError(
            f"Features are taken of bytes, as a file would hold them, but these images are {images.dtype}. Use "
            "safelight.evaluate.networks.pixels.quantise first."
        )
    to_colour(images)  # refuses other shapes
    return images


def _known_resize(resize: str) -> str:
    if resize not in RESIZES:
        raise UsageError(f"There is no way of resizing called {resize!r}; the names are {', '.join(RESIZES)}.")
    return resize
