"""Which Gaussian process a loop trains, from what its own samples are made of: proven, or not known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from safelight.diffusion import time_mappings
from safelight.diffusion.time_mappings import MIN_SAMPLES, SHARE_TOLERANCE, TimeMapping

MAX_UNEXPLAINED = 0.01  # what may be left over of x_t or a target: fp32 has 1e-7, bf16 0.004
LEAST_SIGMA_DATA = 1e-2  # of images with a deviation of 1: with s = 1 rounding alone leaves 3e-5
SPREAD = 0.05  # between the smallest and largest noise level: one level alone fits many processes


@dataclass(frozen=True, slots=True)
class FittedCoefficients:
    """For each sample: x_t = a·x0 + s·noise, target = p·x0 + q·noise, and the time that the network is shown.

    `a` and `s` are of the input as the network sees it. What could not be fitted was left out."""

    a: np.ndarray
    s: np.ndarray
    t: np.ndarray | None = None
    p: np.ndarray | None = None
    q: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.a)

    @property
    def sigma(self) -> np.ndarray:
        """Noise over signal: what all processes have in common."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.s / self.a

    @property
    def share(self) -> np.ndarray:
        """Noise over noise and signal: the same of c_in · x_t, and finite where there is no signal."""
        return self.s / np.maximum(self.a + self.s, 1e-12)


@dataclass(frozen=True, slots=True)
class RecognisedProcess:
    """What is known of a loop's process; None if it is not known."""

    process: str | None = None
    """vp, flow, ve, edm."""
    sigma_data: float | None = None
    """That of EDM's preconditioned input."""
    target: str | None = None
    """epsilon, sample, v, flow, score, edm; with a minus sign in front where it is the opposite."""
    time: str | None = None
    """As a formula of the noise level, such as `t = 1000·s`."""
    time_rises: bool | None = None
    """Whether a larger time means more noise; None if it does not follow the noise at all."""
    density: str | None = None
    clock: TimeMapping | None = None
    """The noise at a time that the network is told."""
    target_sigma_data: float | None = None
    """That of EDM's target."""
    target_scale: float | None = None
    """The factor of a target that is a multiple of one that has a name; the name is not known then."""
    target_swapped: str | None = None
    """The formula of a target that is a usual one with signs or factors swapped; the name is not known then."""
    target_ranges: tuple[float, float, float, float] | None = None
    """Of a target without a name: lowest and highest factor of x0, then of noise."""

    @property
    def is_known(self) -> bool:
        return self.process is not None and (self.target is not None or self.target_swapped is not None)

    def words(self) -> str:
        """For a person, with everything that is not known named as such."""
        process = PROCESSES.get(self.process or "", "a process that is not known")
        if self.sigma_data is not None:
            process += f" with sigma_data {self.sigma_data:.3g}"
        target = TARGETS.get((self.target or "").removeprefix("-"), "that is not known")
        if (self.target or "").startswith("-"):
            target = OPPOSITES.get(self.target or "", f"{target}, negated")
        if self.target is None and self.target_swapped is not None:
            target = self.target_swapped
        elif self.target is None and self.target_ranges is not None:
            clean, noise = (_range(*self.target_ranges[place : place + 2]) for place in (0, 2))
            target = f"p·x0 + q·noise without a name, p {clean} and q {noise}"
        parts = [process, f"target {target}", self.time or "a time that is not known"]
        return ", ".join([*parts, self.density] if self.density else parts)


PROCESSES = {
    "vp": "a variance-preserving process (DDPM)",
    "flow": "flow matching",
    "ve": "a variance-exploding process",
    "edm": "EDM",
}
TARGETS = {
    "epsilon": "noise",
    "sample": "x0",
    "v": "v = a·noise − s·x0",
    "flow": "noise − x0",
    "score": "−noise / s",
    "edm": "EDM's F",
}
OPPOSITES = {"-flow": "x0 − noise", "-v": "s·x0 − a·noise", "-score": "noise / s"}


def _range(low: float, high: float) -> str:
    return f"{low:.3g}" if abs(high - low) <= SHARE_TOLERANCE else f"from {low:.3g} to {high:.3g}"


def recognise(found: FittedCoefficients) -> RecognisedProcess:
    """Only what every sample agrees with; with too few of them, or one noise level only, nothing."""
    usable = np.isfinite(found.a) & np.isfinite(found.s)
    if usable.sum() < MIN_SAMPLES or np.ptp(found.s[usable]) + np.ptp(found.a[usable]) < SPREAD:
        return RecognisedProcess()
    process, sigma_data = _process(found)
    if process is None:
        return RecognisedProcess(time_rises=_direction(found))
    time, rises, clock = _time(found, process)
    of_target = _sigma_data_of_target(found)
    target = _target(found, {sigma_data, of_target, 0.5, 1.0})
    density = _density(found, process)
    if process == "edm" and target == "-v":  # what EDM's F is with a deviation of 1: one row, two names
        target = "edm"
    is_edm = (target or "").endswith("edm")
    scale = _scale_of_target(found) if target is None else None
    return RecognisedProcess(
        process, sigma_data, target, time, rises, density, clock, of_target if is_edm else None, scale,
        _swapped_target(found) if target is None and scale is None else None,
        _ranges_of_target(found) if target is None else None,
    )  # fmt: skip


def _process(found: FittedCoefficients) -> tuple[str | None, float | None]:
    a, s = found.a, found.s
    fits = {
        "flow": _worst(a + s - 1),
        "vp": _worst(a * a + s * s - 1),
        "ve": _worst(a - 1),
    }
    names = [name for name, error in fits.items() if error <= SHARE_TOLERANCE]
    if len(names) == 1:
        return names[0], None
    if names or not (a > 0).all():
        return None, None
    # EDM's c_in: a = 1 / sqrt(sigma² + sigma_data²), s = sigma·a. So 1 / a² − sigma² is a constant.
    constants = 1 / (a * a) - (s / a) ** 2
    middle = float(np.median(constants))
    if middle > LEAST_SIGMA_DATA**2 and _worst(a * np.sqrt((s / a) ** 2 + middle) - 1) <= SHARE_TOLERANCE:
        return "edm", math.sqrt(middle)
    return None, None


def _sigma_data_of_target(found: FittedCoefficients) -> float | None:
    """If it is EDM's, −q / p = sigma_data² · a / s."""
    if found.p is None or found.q is None or not (found.p * found.q < 0).all() or not (found.a * found.s > 0).all():
        return None
    return float(np.sqrt(np.median(-found.q / found.p * found.sigma)))


def _rows(found: FittedCoefficients, deviations: set[float | None]) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
    """(p, q) of every target that has a name."""
    a, s, zero, one = found.a, found.s, np.zeros_like(found.a), np.ones_like(found.a)
    length = np.hypot(a, s)  # 1 for a variance-preserving process
    rows = {
        "epsilon": (zero, one),
        "sample": (one, zero),
        "v": (-s / length, a / length),
        "v as it is": (-s, a),  # of a process that does not keep variance
        "flow": (-one, one),
        "score": (zero, -1 / np.where(s > 0, s, np.nan)),
    }
    for spread in sorted(each for each in deviations if each is not None):
        root = np.hypot(s, spread * a)
        rows[f"edm {spread!r}"] = (s / (spread * root), -spread * a / root)
    return rows


def _target(found: FittedCoefficients, deviations: set[float | None]) -> str | None:
    if found.p is None or found.q is None:
        return None
    p, q = found.p, found.q
    names: list[str] = []
    for name, (clean, noise) in _rows(found, deviations).items():
        for sign, prefix in ((1, ""), (-1, "-")):
            scale = np.maximum(1, np.hypot(clean, noise))
            if (
                _worst((p - sign * clean) / scale) <= SHARE_TOLERANCE
                and _worst((q - sign * noise) / scale) <= SHARE_TOLERANCE
            ):
                names.append(prefix + name.split()[0])
    names = list(dict.fromkeys(names))
    # EDM's F with sigma_data 1 is the opposite of v: one row, two names.
    names = [name for name in names if not (name.endswith("edm") and len(names) > 1)] or names
    return names[0] if len(names) == 1 else None


def _scale_of_target(found: FittedCoefficients) -> float | None:
    """The one factor between all targets and a target that has a name."""
    if found.p is None or found.q is None:
        return None
    for clean, noise in (row for name, row in _rows(found, set()).items() if name != "score"):
        factors = (found.p * clean + found.q * noise) / (clean * clean + noise * noise)
        factor = float(np.median(factors))
        apart = np.hypot(found.p - factor * clean, found.q - factor * noise) / max(abs(factor), 1e-12)
        if abs(factor) > 0.01 and _worst(apart) <= SHARE_TOLERANCE:
            return factor
    return None


def _swapped_target(found: FittedCoefficients) -> str | None:
    """The formula, if it is exactly one for all samples."""
    if found.p is None or found.q is None:
        return None
    a, s, one = found.a, found.s, np.ones_like(found.a)
    rows = {
        "s·noise − a·x0": (-a, s),
        "a·x0 − s·noise": (a, -s),
        "a·noise + s·x0": (s, a),
        "a·x0 + s·noise": (a, s),
        "noise + x0": (one, one),
    }
    names = [
        name
        for name, (clean, noise) in rows.items()
        if _worst((found.p - clean) / np.maximum(1, np.abs(clean))) <= SHARE_TOLERANCE
        and _worst((found.q - noise) / np.maximum(1, np.abs(noise))) <= SHARE_TOLERANCE
    ]
    return names[0] if len(names) == 1 else None


def _ranges_of_target(found: FittedCoefficients) -> tuple[float, float, float, float] | None:
    if found.p is None or found.q is None or not (np.isfinite(found.p).all() and np.isfinite(found.q).all()):
        return None
    return float(found.p.min()), float(found.p.max()), float(found.q.min()), float(found.q.max())


def _direction(found: FittedCoefficients) -> bool | None:
    """Whether the time rises with the noise, as one function of it."""
    if found.t is None or len(found) < MIN_SAMPLES or np.ptp(found.t) == 0:
        return None
    sigma = np.arctan2(found.s, found.a)  # rises with the noise, and is finite where a is 0
    order = np.lexsort((sigma, found.t))
    steps, jumps = np.diff(sigma[order]), np.diff(found.t[order]) > 0
    same = ~jumps
    if same.any() and np.abs(steps[same]).max() > SHARE_TOLERANCE:  # one time with several noise levels
        return None
    moves = steps[jumps]
    if (moves >= -SHARE_TOLERANCE).all():
        return True
    return False if (moves <= SHARE_TOLERANCE).all() else None


def _time(found: FittedCoefficients, process: str) -> tuple[str | None, bool | None, TimeMapping | None]:
    """In words, its direction, and as a function where it is known."""
    rises = _direction(found)
    if rises is None or found.t is None:
        return None, None, None
    t, follows = found.t, "t that follows the noise level"
    clock = time_mappings.find(t, found.share) or time_mappings.measured(t, found.share)
    if clock is not None and clock.rises != rises:
        clock = None
    if process != "vp":
        return follows if clock is None else clock.words, rises, clock
    if np.array_equal(t, np.round(t)) and t.max() > 1:
        return "whole timesteps", rises, clock
    return "t in [0, 1]" if t.min() >= 0 and t.max() <= 1 else follows, rises, clock


DRAWS = 256  # below that densities cannot be told apart
KOLMOGOROV_BOUND = 1.95  # Kolmogorov's bound at 0.1 %, times sqrt(n)
MARGIN = 6.0  # nats by which the best density has to beat the next one


@dataclass(frozen=True, slots=True)
class Density:
    """One family of times, fitted to the draws."""

    name: str
    parameters: int
    log_likelihood: float
    distance: float
    """Kolmogorov's, times sqrt(n)."""

    @property
    def score(self) -> float:
        """Without what parameters gain by chance: half of their number times log(n) in Schwarz's criterion."""
        return self.log_likelihood - 3 * self.parameters


def _density(found: FittedCoefficients, process: str) -> str | None:
    """By the noise levels themselves, whatever the time is called; None where none fits, or several do."""
    if process == "flow":
        inside = found.s[(found.s > 1e-6) & (found.s < 1 - 1e-6)]
        fits = _flow_densities(np.log(inside / (1 - inside))) if len(inside) >= DRAWS else []
    elif process in ("ve", "edm"):
        positive = found.sigma[found.sigma > 0]
        fits = [_normal(np.log(positive), "log-normal", (-1.2, 1.2))] if len(positive) >= DRAWS else []
    else:
        fits = [] if found.t is None or len(found) < DRAWS or np.ptp(found.t) == 0 else [_uniform(found.t)]
    fits = sorted((fit for fit in fits if fit.distance <= KOLMOGOROV_BOUND), key=lambda fit: -fit.score)
    if not fits or (len(fits) > 1 and fits[0].score - fits[1].score < MARGIN):
        return None
    return f"{fits[0].name} times"


def _flow_densities(logit: np.ndarray) -> list[Density]:
    """A uniform time has the logits of a logistic density, and a shift moves them by its logarithm."""
    shift = float(np.median(logit))
    is_shifted = abs(shift) > 8 / math.sqrt(len(logit))  # four standard errors of the median
    name = f"uniform with a shift of about {math.exp(shift):.1g}" if is_shifted else "uniform"
    return [
        _logistic(logit, shift * is_shifted, name, int(is_shifted)),
        _normal(logit, "logit-normal", (0.0, 1.0)),
    ]


def _uniform(t: np.ndarray) -> Density:
    whole = float(np.ptp(t) > 1)  # whole timesteps, the last of them included
    width = float(np.ptp(t)) + whole
    return Density("uniform", 0, 0.0, _distance(t, lambda t: (t - t.min() + whole / 2) / width))


def _logistic(values: np.ndarray, middle: float, name: str, parameters: int) -> Density:
    x = values - middle
    likelihood = float((-np.abs(x) - 2 * np.log1p(np.exp(-np.abs(x)))).sum())
    return Density(name, parameters, likelihood, _distance(x, lambda x: 1 / (1 + np.exp(-x))))


def _normal(values: np.ndarray, name: str, usual: tuple[float, float]) -> Density:
    """`usual`: mean and deviation that most people use, which are named where the draws agree with them."""
    mean, std = float(values.mean()), max(float(values.std()), 1e-12)
    error = 3 * std / math.sqrt(len(values))
    if abs(mean - usual[0]) <= error and abs(std - usual[1]) <= error:
        mean, std = usual
    x = (values - mean) / std
    likelihood = float((-x * x / 2 - math.log(std * math.sqrt(2 * math.pi))).sum())
    return Density(f"{name}({mean:.2g}, {std:.2g})", 2, likelihood, _distance(x, ndtr))


def _distance(values: np.ndarray, cumulative: Callable[[np.ndarray], np.ndarray]) -> float:
    ordered = np.sort(values)
    expected = np.clip(cumulative(ordered), 0, 1)
    n = len(ordered)
    above, below = np.arange(1, n + 1) / n - expected, expected - np.arange(n) / n
    return float(max(above.max(), below.max()) * math.sqrt(n))


def _worst(errors: np.ndarray) -> float:
    """Not the largest one: a single sample that is blank or was clipped should not hide what all the others say."""
    return float(np.quantile(np.abs(errors), 0.98)) if np.isfinite(errors).all() else math.inf
