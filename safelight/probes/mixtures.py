"""What a loop's samples are made of, whatever it declares: x_t and target as mixtures of x0 and noise."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from safelight import checks
from safelight.diffusion.recognition import DRAWS, MAX_UNEXPLAINED, FittedCoefficients, RecognisedProcess, recognise
from safelight.diffusion.time_mappings import SHARE_TOLERANCE
from safelight.monitors.reading_buffer import PendingReading
from safelight.probes.forward_pass import ForwardPass, ProcessSpec
from safelight.probes.process_resolution import Times, settle
from safelight.vocabulary import CHECK

MIN_SAMPLES, MAX_SAMPLES = 32, 2048  # samples before anything is said, and after which nothing is fitted any more
FEWEST_NUMBERS = 8  # of a sample: two factors explain any two numbers, and prove nothing
TINY = 1e-12


def fit(y: Tensor, x0: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y = a·x0 + b·noise for each sample by least squares: (a, b, the part of y that is left)."""
    y, x0, noise = (each.flatten(1) for each in (y, x0, noise))
    xx, nn, xn = (x0 * x0).sum(1), (noise * noise).sum(1), (x0 * noise).sum(1)
    xy, ny = (x0 * y).sum(1), (noise * y).sum(1)
    determinant = (xx * nn - xn * xn).clamp(min=TINY)
    a, b = (nn * xy - xn * ny) / determinant, (xx * ny - xn * xy) / determinant
    return a, b, y - a[:, None] * x0 - b[:, None] * noise


class NoisingFit:
    """Fits the samples of the first steps, and says what they have in common once there are enough."""

    def __init__(self) -> None:
        self.recognised: RecognisedProcess | None = None
        self._parts: list[np.ndarray] = []
        self._samples = 0
        self._mixtures: FittedCoefficients | None = None
        self._is_float = False  # whether times are
        self.has_news = False  # since it was last settled what they say

    @property
    def is_certain(self) -> bool:
        """Whether there are enough samples to tell densities apart."""
        return self._samples >= 2 * DRAWS

    @property
    def is_done(self) -> bool:
        return self._samples >= MAX_SAMPLES

    def measure(self, micro_batch: ForwardPass) -> PendingReading | None:
        """Vectors on the device, one entry for each sample; None if the loop passes too little."""
        own, told = micro_batch.t, None if micro_batch.call is None else micro_batch.call.t
        told = own if told is None else told
        own = told if own is None else own
        self._is_float |= own is not None and own.is_floating_point()
        fitted = self._fit(micro_batch)
        if fitted is None and (own is None or own.dim() != 1 or own.device.type == "mps"):
            return None
        if fitted is None:
            assert own is not None
            fitted = [torch.full(own.shape, torch.nan, dtype=torch.float64, device=own.device)] * 10
        like = fitted[0]
        for t in (told, own):
            unknown = torch.full_like(like, torch.nan)
            fitted.append(unknown if t is None or t.shape != like.shape else t.detach().double().to(like.device))
        self._samples += len(like)
        return PendingReading((torch.stack(fitted).flatten(),), functools.partial(self._add, len(like)))

    def _fit(self, micro_batch: ForwardPass) -> list[Tensor] | None:
        """What x_t and target are made of; None if they are not passed."""
        shown = micro_batch.call.x if micro_batch.call is not None else None
        x0, noise = micro_batch.x0, micro_batch.noise
        if x0 is None or noise is None or x0.shape != noise.shape or not x0.is_floating_point() or x0.dim() < 2:
            return None
        if x0[0].numel() < FEWEST_NUMBERS:
            return None
        shown = shown if shown is not None and shown.shape == x0.shape else micro_batch.x_t
        if shown is None or shown.shape != x0.shape or x0.device.type == "mps":
            return None
        clean, noise = x0.detach().double(), noise.detach().double()
        a, s, left = fit(shown.detach().double(), clean, noise)
        columns = [a, s, _share(left, shown), _kurtosis(left), _neighbours(left.view(x0.shape))]
        if (target := micro_batch.target) is not None and target.shape == x0.shape:
            p, q, rest = fit(target.detach().double(), clean, noise)
            return [*columns, p, q, _share(rest, target), _kurtosis(rest), _neighbours(rest.view(x0.shape))]
        return [*columns, *[torch.full_like(a, torch.nan)] * 5]

    def _add(self, samples: int, numbers: np.ndarray) -> dict[str, float]:
        """On the host: `check/mixture/…` of this step, and of all samples so far."""
        self.has_news = True
        self._parts.append(np.asarray(numbers, np.float64).reshape(-1, samples))
        columns = self._columns()
        readings: dict[checks.ProbeReading, float] = {}
        for first, (share, *noise) in ((2, checks.MIXTURE_OF_INPUT), (7, checks.MIXTURE_OF_TARGET)):
            if len(columns[first]) and np.isfinite(columns[first]).all():
                readings[share] = float(np.median(columns[first]))
                if readings[share] > MAX_UNEXPLAINED:
                    medians = np.median(columns[first + 1 : first + 3], axis=1)
                    readings |= dict(zip(noise, medians.tolist(), strict=True))
        if columns.shape[1] >= MIN_SAMPLES:
            readings |= self._recognise(columns)
        return {f"{CHECK.name}/{name}": float(number) for name, number in readings.items()}

    def _columns(self) -> np.ndarray:
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts, axis=1)]
        return self._parts[0]

    def settle(self, declared: ProcessSpec) -> ProcessSpec | None:
        """What holds from now on, where enough was seen for that."""
        self.has_news = False
        if not self._parts or (columns := self._columns()).shape[1] < MIN_SAMPLES:
            return None
        if declared.alphas is not None and not self._is_float:
            return None  # whole timesteps are places in the table
        a, s, left, told, own = columns[0], columns[1], columns[2], columns[10], columns[11]
        explained = left <= MAX_UNEXPLAINED
        share = np.where(explained, s / np.maximum(a + s, TINY), np.nan)
        return settle(declared, Times(own, told, share), self._mixtures, self.recognised)

    def _recognise(self, columns: np.ndarray) -> dict[checks.ProbeReading, float]:
        """By the samples that x0 and noise explain: most of them, or nothing is said."""
        a, s, left, _, _, p, q, rest, _, _, t, _ = columns
        good = left <= MAX_UNEXPLAINED
        if good.mean() < 0.9:
            self.recognised = self._mixtures = None
            return {}
        has_target = np.isfinite(rest[good]).all() and (rest[good] <= MAX_UNEXPLAINED).all()
        has_time = bool(np.isfinite(t[good]).all())
        mixtures = self._mixtures = FittedCoefficients(
            a[good], s[good], t[good] if has_time else None,
            p[good] if has_target else None, q[good] if has_target else None,
        )  # fmt: skip
        found = self.recognised = recognise(mixtures)
        readings = {
            checks.MIXTURE_PROCESS: _place(checks.PROCESSES, found.process),
            checks.MIXTURE_ROW: _place(checks.TARGET_ROWS, found.target),
        }
        if has_time and np.ptp(s[good]) > SHARE_TOLERANCE:  # one noise level follows any time
            rises = found.time_rises
            readings[checks.MIXTURE_TIME] = 0.0 if rises is None else 1.0 if rises else -1.0
        return readings | _numbers(found, mixtures)


def _numbers(found: RecognisedProcess, mixtures: FittedCoefficients) -> dict[checks.ProbeReading, float]:
    """What rules compare with numbers that people use."""
    numbers = {
        checks.MIXTURE_SIGMA_DATA: found.sigma_data,
        checks.MIXTURE_TARGET_SIGMA_DATA: found.target_sigma_data,
        checks.MIXTURE_TARGET_SCALE: found.target_scale,
    }
    readings = {check: number for check, number in numbers.items() if number is not None}
    if found.target_swapped is not None:
        readings[checks.MIXTURE_TARGET_SWAPPED] = _place(checks.SWAPPED_TARGETS, found.target_swapped)
    inside = (mixtures.s > 0.05) & (mixtures.a > 0)
    if (
        found.process == "flow"
        and found.clock is not None
        and mixtures.t is not None
        and inside.sum() >= MIN_SAMPLES // 2
    ):
        factors = mixtures.t[inside] / mixtures.s[inside]
        if np.ptp(factors) <= 0.05 * abs(float(np.median(factors))):  # whole timesteps are rounded
            readings[checks.MIXTURE_TIME_FACTOR] = float(np.median(factors))
    if found.process in ("ve", "edm") and len(mixtures) >= DRAWS and inside.any():
        logarithms = np.log(mixtures.sigma[mixtures.sigma > 0])
        readings[checks.MIXTURE_LOG_MEAN] = float(logarithms.mean())
        readings[checks.MIXTURE_LOG_DEVIATION] = float(logarithms.std())
        readings[checks.MIXTURE_DRAWS] = float(len(logarithms))
    return readings


def _place(names: Sequence[str], name: str | None) -> float:
    """-1 where it is not known."""
    return float(names.index(name)) if name in names else -1.0


def _share(left: Tensor, whole: Tensor) -> Tensor:
    return left.norm(dim=1) / whole.detach().double().flatten(1).norm(dim=1).clamp(min=TINY)


def _kurtosis(left: Tensor) -> Tensor:
    """3 for a draw of noise."""
    centred = left - left.mean(1, keepdim=True)
    return (centred**4).mean(1) / centred.square().mean(1).square().clamp(min=TINY)


def _neighbours(left: Tensor) -> Tensor:
    """Correlation of neighbours along the last dimension: 0 for a draw of noise, more for whatever a network made."""
    first, second = left[..., 1:].flatten(1), left[..., :-1].flatten(1)
    return (first * second).sum(1) / (first.norm(dim=1) * second.norm(dim=1)).clamp(min=TINY)
