"""The batch of a step that went wrong, for a person to look at: its numbers, and a picture of its worst samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from safelight.diffusion.micro_batch import MicroBatch
from safelight.files import DISK, Disk
from safelight.pictures.grid import BACKGROUND, SEAM, coloured, enlarge, grid, save_png, to_uint8
from safelight.processes.group import ProcessGroup

MOST_PICTURES = 8  # of one start of a run: a fault that comes back looks as it did
MOST_SHOWN = 16  # samples of a picture
MAX_SIDE = 128  # pixels of each
REFUSED, REFUSED_FILE = "refused batches", "refused"  # pictures of refused updates: in the record, as files


@dataclass(frozen=True, slots=True)
class ReplayedPass:
    """A micro-batch as the network saw it, and what it answered."""

    inputs: MicroBatch
    x_t: Tensor
    prediction: Tensor


@dataclass(frozen=True, slots=True)
class ShownSample:
    """One sample of the picture."""

    score: float  # what is worst comes first
    sample: int  # index into the data
    timestep: float
    pixels: np.ndarray  # uint8 [3, height, width, 3]: image, noised, prediction


def describe_inputs(inputs: Sequence[MicroBatch], group: ProcessGroup) -> dict[str, object]:
    """What went into the step on all processes, for the record."""
    rows = group.all_gather_object(_inputs_here(inputs))
    joined: dict[str, object] = {name: [x for each in rows for x in each[name]] for name in ("samples", "timesteps")}
    return joined | _joined("image", [each["images"] for each in rows])


def show(
    replay: Callable[[], Sequence[ReplayedPass]], group: ProcessGroup, path: Path, disk: Disk = DISK
) -> dict[str, object]:
    """By all processes: the numbers of the predictions, and a picture of the worst samples by the first one. None of
    it is worth a training: what fails is left out."""
    here = None
    with suppress(Exception):  # a user's model, and what it answers
        passes = replay()
        here = numbers_of(torch.cat([each.prediction.float() for each in passes])), _worst(passes)
    found = [each for each in group.all_gather_object(here) if each is not None]
    if not found:
        return {}
    facts = _joined("prediction", [numbers for numbers, _ in found])
    shown = sorted((each for _, samples in found for each in samples), key=lambda each: -each.score)[:MOST_SHOWN]
    if group.is_main and shown:
        with suppress(OSError):
            save_png(draw(shown), path, disk)
            facts["picture"] = f"{path.parent.name}/{path.name}"
    return facts


def draw(shown: Sequence[ShownSample]) -> Image:
    """Each sample in a column: image, noised, prediction."""
    stacks = np.stack([each.pixels for each in shown])
    parts = [enlarge(coloured(stacks[:, place])) for place in range(stacks.shape[1])]
    seam = np.broadcast_to(np.array(BACKGROUND, np.uint8), (len(shown), SEAM, parts[0].shape[2], 3))
    stacked = np.concatenate([parts[0], seam, parts[1], seam, parts[2]], axis=1)
    captions = [f"{each.sample}, t {each.timestep:.4g}" for each in shown]
    title = "image, noised, prediction; magenta: not finite"
    return grid(stacked, columns=min(8, len(shown)), captions=captions, title=title)


def numbers_of(values: Tensor) -> dict[str, float]:
    """Of what is finite, and the share of what is not."""
    finite = values.isfinite()
    kept = values[finite].double()
    numbers = (kept.min(), kept.max(), kept.mean(), kept.std(correction=0)) if len(kept) else [torch.nan] * 4
    named = dict(zip(("min", "max", "mean", "std"), map(float, numbers), strict=True))
    return named | {"nonfinite": 1 - float(finite.double().mean())}


def _inputs_here(inputs: Sequence[MicroBatch]) -> dict[str, object]:
    return {
        "samples": [int(i) for micro in inputs for i in micro.ids],
        "timesteps": [float(f"{t:.6g}") if isinstance(t, float) else t for micro in inputs for t in micro.t.tolist()],
        "images": numbers_of(torch.cat([micro.x0 for micro in inputs]).float()),
    }


def _joined(name: str, rows: Sequence[dict[str, float]]) -> dict[str, object]:
    """Of all processes, whose shares are equally large."""
    known = [each for each in rows if each["min"] == each["min"]] or rows
    joined: dict[str, object] = {
        f"{name}_min": min(each["min"] for each in known),
        f"{name}_max": max(each["max"] for each in known),
    }
    joined |= {f"{name}_{key}": fmean(each[key] for each in known) for key in ("mean", "std")}
    return joined | {f"{name}_nonfinite": fmean(each["nonfinite"] for each in rows)}


def _worst(passes: Sequence[ReplayedPass]) -> list[ShownSample]:
    """What is not finite first, then the largest predictions."""
    found = list[ShownSample]()
    for each in passes:
        scores = torch.stack([_reach(each.inputs.x0), _reach(each.prediction)]).amax(0).tolist()
        for row in sorted(range(len(scores)), key=lambda row: -scores[row])[:MOST_SHOWN]:
            place = slice(row, row + 1)
            images = [_small(tensor[place]) for tensor in (each.inputs.x0, each.x_t, each.prediction)]
            pixels = np.concatenate([coloured(to_uint8(image)) for image in images])
            sample, t = int(each.inputs.ids[row]), float(each.inputs.t[row])
            found.append(ShownSample(scores[row], sample, t, pixels))
    return sorted(found, key=lambda each: -each.score)[:MOST_SHOWN]


def _reach(batch: Tensor) -> Tensor:
    """The largest number of each sample; infinite where one is not finite."""
    flat = batch.detach().float().abs().flatten(1).amax(1)
    return torch.where(flat.isfinite(), flat, torch.inf)


def _small(images: Tensor) -> Tensor:
    """Every so many pixels: a mean would spread what is not finite."""
    every = -(-max(images.shape[2:]) // MAX_SIDE)
    return images[:, :, ::every, ::every]
