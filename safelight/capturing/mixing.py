"""Which two tensors of a step made a third one: per sample y = a·x0 + s·noise, in float64, with what is left over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from safelight.capturing.trace import Made
from safelight.diffusion.recognition import LEAST_SIGMA_DATA, MAX_UNEXPLAINED
from safelight.probes.mixtures import fit

MIXTURE_TOLERANCE = 1e-4  # of a mixture in float32: 1e-7 is seen where x0 and noise are of one size
RELATION_TOLERANCE = 2e-3  # of a coefficient, as in recognition
MIN_PART_LENGTH = 1e-3  # of the length of y: less is not a part of it
MOST_COORDINATES, MOST_SAMPLES = 4096, 64
# Coordinates of a sample that two numbers explain by themselves, or nearly: then the process has to fit
MAX_TRIVIAL_COORDINATES = 3
HALF_DTYPES = (torch.float16, torch.bfloat16)
RANKS = {"vp": 0, "flow": 0, "edm": 0, "table": 0, "ve": 1, "": 2}
NOISE_ERRORS = 6.0  # standard errors by which moments of normal noise may be off
MIN_NOISE_NUMBERS, MIN_NOISE_LENGTH = 1_000, 16  # in all, and of a sample
READING_TOLERANCE = 1e-4  # between a coefficient and what was read of a table: float32 has 1e-7

# `table`: a and s are entries of a table that the loop reads, not as a process has them
Relation = Literal["vp", "flow", "ve", "edm", "table", ""]


@dataclass(frozen=True, slots=True)
class Mixing:
    """How a tensor is made of two others; proven on some of its numbers."""

    x0: Made
    noise: Made
    a: np.ndarray
    s: np.ndarray
    """Both NaN where x0 is not finite."""
    left: float
    """Over the length of the tensor: the median of the samples."""
    relation: Relation

    @property
    def varies(self) -> bool:
        """Whether samples have different noise levels."""
        return any(np.ptp(part[np.isfinite(part)]) > RELATION_TOLERANCE for part in (self.a, self.s))


def sample_numbers(tensor: Tensor, samples: int | None = MOST_SAMPLES) -> Tensor:
    """[samples, numbers] float64 on the host; the same ones of every tensor of that shape."""
    flat = tensor.detach()[:samples].flatten(1)
    stride = -(-flat.shape[1] // MOST_COORDINATES)
    return flat[:, ::stride].to("cpu").double()


class Numbers:
    """Those of the tensors of one step, read once; of all samples with `samples=None`."""

    def __init__(self, samples: int | None = MOST_SAMPLES) -> None:
        self._samples = samples
        self._known: dict[int, tuple[Tensor, Tensor]] = {}

    def of(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._known:
            self._known[id(tensor)] = (
                tensor,
                sample_numbers(tensor, self._samples),
            )  # held, so that its id stays its own
        return self._known[id(tensor)][1]


def tolerance(*tensors: Tensor) -> float:
    return MAX_UNEXPLAINED if any(tensor.dtype in HALF_DTYPES for tensor in tensors) else MIXTURE_TOLERANCE


def explain_input(
    shown: Tensor,
    cleans: Sequence[Made],
    noises: Sequence[Made],
    numbers: Numbers,
    rough: bool = False,
    readings: Sequence[np.ndarray] = (),
) -> Mixing | None:
    """The mixture of a clean tensor and noise that `shown` is; None if nothing is proven. `rough`: somewhere on
    the way it was rounded to half precision. `readings`: what the loop read of tables, one number for each sample."""
    y = numbers.of(shown)
    whole = y.isfinite().all(1)  # a broken image spoils its own sample only
    if not y[whole].any():
        return None
    limit = MAX_UNEXPLAINED if rough else tolerance(shown)
    found = [
        mixing
        for noise in noises
        for clean in cleans
        if clean.tensor is not noise.tensor and not (noise.draws and noise.draws <= clean.draws)
        if (
            mixing := _mix(y, whole, clean, noise, numbers, max(limit, tolerance(clean.tensor, noise.tensor)), readings)
        )
        is not None
    ]
    if not found:
        return None
    best = min((RANKS[mixing.relation], not mixing.noise.is_draw) for mixing in found)
    tied = [mixing for mixing in found if (RANKS[mixing.relation], not mixing.noise.is_draw) == best]
    return _last_unscaled(tied)


def _mix(
    y: Tensor,
    whole: Tensor,
    clean: Made,
    noise: Made,
    numbers: Numbers,
    limit: float,
    readings: Sequence[np.ndarray],
) -> Mixing | None:
    """`whole`: the samples that are finite. The others have to be so in the clean tensor, too."""
    x0, n = numbers.of(clean.tensor), numbers.of(noise.tensor)
    limit = max(limit, tolerance(clean.tensor, noise.tensor))
    if not (torch.equal(x0.isfinite().all(1), whole) and n.isfinite().all()):
        return None
    y, x0, n = (each[whole] for each in (y, x0, n))
    a, s, left = fit(y, x0, n)
    length = y.norm(dim=1).clamp(min=1e-12)
    share = left.norm(dim=1) / length
    if float(share.quantile(0.9)) > limit:
        return None
    has_clean, has_noise = (a.abs() * x0.norm(dim=1) / length).median(), (s.abs() * n.norm(dim=1) / length).median()
    if has_clean < MIN_PART_LENGTH or has_noise < MIN_PART_LENGTH:
        return None
    relation = relation_of(a.numpy(), s.numpy())
    if RANKS[relation] and whole.all() and any(is_read(a.numpy(), s.numpy(), read) for read in readings):
        relation = "table"
    if y.shape[1] <= MAX_TRIVIAL_COORDINATES and (not relation or len(y) < 4):
        return None
    of_all = torch.full((2, len(whole)), torch.nan, dtype=a.dtype)
    of_all[:, whole] = torch.stack([a, s])
    return Mixing(clean, noise, of_all[0].numpy(), of_all[1].numpy(), float(share.median()), relation)


def relation_of(a: np.ndarray, s: np.ndarray) -> Relation:
    """What a and s of all samples obey; the first that does."""
    if _worst(a * a + s * s - 1) <= RELATION_TOLERANCE:
        return "vp"
    if _worst(a + s - 1) <= RELATION_TOLERANCE:
        return "flow"
    if _worst(a - 1) <= RELATION_TOLERANCE:
        return "ve"
    if (a > 0).all() and len(a) > 3:
        constants = 1 / (a * a) - (s / a) ** 2  # EDM's c_in: sigma_data², the same for all
        middle = float(np.median(constants))
        if (
            middle > LEAST_SIGMA_DATA**2
            and _worst(a * np.sqrt((s / a) ** 2 + middle) - 1) <= RELATION_TOLERANCE
            and np.ptp(a) > RELATION_TOLERANCE
        ):
            return "edm"
    return ""


def kept_by(read: np.ndarray) -> Iterable[np.ndarray]:
    """What ᾱ is where a loop reads ᾱ, 1 − ᾱ or the root of either."""
    return (kept for kept in (read, read * read, 1 - read, 1 - read * read) if ((kept >= 0) & (kept <= 1)).all())


def is_read(a: np.ndarray, s: np.ndarray, read: np.ndarray) -> bool:
    """Whether a and s are of a table of ᾱ with a square root missing: ᾱ for √ᾱ, or 1 − ᾱ for √(1 − ᾱ), or both."""
    if len(read) != len(a) or np.ptp(a) + np.ptp(s) <= RELATION_TOLERANCE:
        return False
    return any(lacks_root(a, s, kept) for kept in kept_by(read))


def lacks_root(a: np.ndarray, s: np.ndarray, kept: np.ndarray) -> bool:
    clean, noise = (
        [float(np.abs(found - wanted).max()) < READING_TOLERANCE for wanted in (square, np.sqrt(square))]
        for found, square in ((a, kept), (s, 1 - kept))
    )
    return any(clean) and any(noise) and (clean[0] or noise[0])


def _worst(errors: np.ndarray) -> float:
    return float(np.quantile(np.abs(errors), 0.95))


def _last_unscaled(tied: Sequence[Mixing]) -> Mixing:
    """Several explain it alike: x0 times a constant (a latent scale) comes after x0 and is what is mixed; x0 times a
    coefficient of each sample is a part of the mixing."""
    ordered = sorted(tied, key=lambda mixing: mixing.x0.order)
    chosen = ordered[0]
    for mixing in ordered[1:]:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = mixing.a / chosen.a
        ratio = ratio[np.isfinite(ratio)]
        if len(ratio) and np.ptp(ratio) <= RELATION_TOLERANCE * max(1e-12, float(np.abs(ratio).mean())):
            chosen = mixing
    return chosen


def looks_normal(tensor: Tensor) -> bool:
    """Whether all numbers look like independent draws of a standard normal: noise of numpy, or of an earlier step. The
    latents of an autoencoder have neighbours that are alike, and samples of different deviations."""
    if not tensor.is_floating_point() or tensor.dtype in HALF_DTYPES or tensor.device.type == "meta":
        return False
    flat = tensor.detach()[:MOST_SAMPLES].flatten(1)[:, :MOST_COORDINATES].to("cpu").double()
    count, length = flat.numel(), flat.shape[1]
    if count < MIN_NOISE_NUMBERS or length < MIN_NOISE_LENGTH or not bool(flat.isfinite().all()):
        return False
    std, mean = torch.std_mean(flat, dim=1)
    if (
        float(mean.abs().max()) * length**0.5 > NOISE_ERRORS
        or float((std - 1).abs().max()) * (2 * length) ** 0.5 > NOISE_ERRORS
    ):
        return False
    kurtosis = float(((flat - flat.mean()) / flat.std()).pow(4).mean())
    neighbours = float((flat[:, 1:] * flat[:, :-1]).mean())
    return abs(kurtosis - 3) * (count / 24) ** 0.5 < NOISE_ERRORS and abs(neighbours) * count**0.5 < NOISE_ERRORS


def explain_by(y: Tensor, first: Tensor, second: Tensor, numbers: Numbers) -> tuple[Tensor, Tensor] | None:
    """(p, q) of every sample where y = p·first + q·second, else None."""
    wanted = numbers.of(y)
    p, q, left = fit(wanted, numbers.of(first), numbers.of(second))
    share = left.norm(dim=1) / wanted.norm(dim=1).clamp(min=1e-12)
    return (p, q) if float(share.quantile(0.9)) <= tolerance(y, first, second) else None
