"""Which process a loop uses, in its own time units, by declaration and by proof; None if not certain."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from safelight.diffusion import time_mappings
from safelight.diffusion.process import HIGHEST_SIGMA, LOWEST_SIGMA, SIGMA_DATA, Process
from safelight.diffusion.recognition import FittedCoefficients, RecognisedProcess
from safelight.diffusion.schedulers import Family
from safelight.diffusion.targets import make_target, row_of
from safelight.diffusion.time_mappings import MIN_SAMPLES, SHARE_TOLERANCE, TimeMapping
from safelight.diffusion.time_units import retold, share_of, timed
from safelight.probes.forward_pass import ProcessSpec

PREDICTIONS = {"v": "v_prediction", "-flow": "reverse_flow"}  # of rows that have another name


@dataclass(frozen=True, slots=True)
class Times:
    """For each sample the time that the loop passes, the one that its network is told, and the share of noise in its
    x_t; NaN if it is not known."""

    passed: np.ndarray
    told: np.ndarray
    share: np.ndarray

    @property
    def own(self) -> np.ndarray:
        """As a loop passes them, or else as its network is told them."""
        return self.passed if np.isfinite(self.passed).all() else self.told


def settle(
    declared: ProcessSpec, times: Times, mixtures: FittedCoefficients | None, found: RecognisedProcess | None
) -> ProcessSpec | None:
    """What holds from now on; None if nothing new is known. `mixtures`: of the samples that have a share."""
    finite = np.isfinite(times.own)
    if finite.sum() < MIN_SAMPLES or not finite.all():
        return None
    if declared.family is not None:
        settled = _settle_family(declared, declared.family, times)
    elif declared.continuous is not None:
        settled = _settle_told(declared, declared.continuous, times)
    elif declared.alphas is not None:
        settled = _settle_table(declared, times)
    else:
        settled = _settle_recognised(declared, times, mixtures, found)
    return None if settled is None else replace(settled, draws=np.sort(times.own))


def _settle_family(declared: ProcessSpec, family: Family, times: Times) -> ProcessSpec | None:
    """By the noise that x_t has, where it is passed and one clock fits; else by the range of the times."""
    own, seen = times.own, np.isfinite(times.share)
    proven = [clock for clock in family.clocks if time_mappings.fits(clock, own[seen], times.share[seen])]
    clock = proven[0] if proven else time_mappings.by_range(own, family.clocks)
    if clock is None:
        return None
    told = _told(times, clock.of(own), (clock, *family.clocks))
    process = timed(family.name, clock, told or clock, sigma_data=family.sigma_data, ends=family.ends)
    sigma_data = declared.sigma_data if family.sigma_data is None else family.sigma_data
    return replace(declared, continuous=process, family=None, sigma_data=sigma_data, is_told=told is not None)


def _told(times: Times, share: np.ndarray, candidates: tuple[TimeMapping, ...]) -> TimeMapping | None:
    """The clock of what the network is told. The first of `candidates` is that of the loop itself."""
    if not np.isfinite(times.told).all() or np.array_equal(times.told, times.own):
        return candidates[0]
    return time_mappings.find(
        times.told, share, (*candidates[1:], *time_mappings.USUAL_CLOCKS)
    ) or time_mappings.measured(times.told, share)


def _settle_told(declared: ProcessSpec, process: Process, times: Times) -> ProcessSpec | None:
    """A process of the user's own, in its own time: what the network is told may be that, or a function of it."""
    own, told = times.own, times.told
    low, high = float(own.min()), float(own.max())
    process = replace(process, first=min(process.first, low), last=max(process.last, high))
    t = torch.from_numpy(own)
    with np.errstate(all="ignore"):
        expected = None if process.c_noise is None else process.c_noise(t).double().numpy()
    if not np.isfinite(told).all() or (expected is not None and _are_alike(told, expected)):
        return replace(declared, continuous=process, is_told=True)
    if _are_alike(told, own):
        return replace(declared, continuous=replace(process, c_noise=None, time_from_c_noise=None), is_told=True)
    share = share_of(process, t).numpy()
    clock = time_mappings.find(told, share) or time_mappings.measured(told, share)
    if clock is None:
        return replace(declared, continuous=process, is_told=False)
    return replace(declared, continuous=retold(process, clock), is_told=True)


def _are_alike(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.quantile(np.abs(one - other) / np.maximum(1, np.abs(other)), 0.98) <= SHARE_TOLERANCE)


def _settle_table(declared: ProcessSpec, times: Times) -> ProcessSpec | None:
    """Times of a table as floats: places, or shares of its length."""
    assert declared.alphas is not None
    own, count, seen = times.own, len(declared.alphas), np.isfinite(times.share)
    whole = time_mappings.entries(declared.alphas)
    tables = [time_mappings.entries(declared.alphas, float(factor), "t in [0, 1]") for factor in (count, count - 1)]
    if np.array_equal(own, np.round(own)) and own.max() > 1:
        clock = whole
    else:
        clock = next((each for each in tables if time_mappings.fits(each, own[seen], times.share[seen])), None)
    if clock is None:
        return None
    told = _told(times, clock.of(own), (clock, whole, *tables))
    first, last = whole.of(np.array([0.0, count])).tolist()
    process = timed("vp", clock, told or clock, ends=(first, last))
    return replace(declared, alphas=None, continuous=process, is_told=told is not None)


def _settle_recognised(
    declared: ProcessSpec, times: Times, mixtures: FittedCoefficients | None, found: RecognisedProcess | None
) -> ProcessSpec | None:
    """Nothing was declared, and every sample agrees."""
    seen = np.isfinite(times.share)
    if mixtures is None or found is None or found.process is None or found.clock is None or seen.mean() < 0.9:
        return None
    own, share = times.own[seen], times.share[seen]
    clock = found.clock
    if not np.array_equal(times.own, times.told) and np.isfinite(times.told).all():
        passed = time_mappings.find(own, share) or time_mappings.measured(own, share)
        if passed is None:
            return None
        clock = passed
    family = "ve" if found.process == "edm" else found.process
    ends = (LOWEST_SIGMA / (1 + LOWEST_SIGMA), HIGHEST_SIGMA / (1 + HIGHEST_SIGMA)) if family == "ve" else (0.0, 1.0)
    process = timed(family, clock, found.clock, sigma_data=found.sigma_data, ends=ends)
    sigma_data = found.sigma_data or SIGMA_DATA
    prediction = declared.prediction or _prediction(found, process, own, mixtures, sigma_data)
    return replace(
        declared, continuous=process, prediction=prediction, sigma_data=sigma_data, is_told=True, is_seen=True
    )


def _prediction(
    found: RecognisedProcess, process: Process, own: np.ndarray, mixtures: FittedCoefficients, sigma_data: float
) -> str | None:
    """The name of a target that is exactly the row of its name."""
    name = PREDICTIONS.get(found.target or "", found.target)
    if name is None or name.startswith("-") or mixtures.p is None or mixtures.q is None:
        return None
    a, s = process.at(torch.from_numpy(own))
    for seen, wanted in zip((mixtures.p, mixtures.q), row_of(make_target(name, sigma_data), a, s), strict=True):
        numbers = np.broadcast_to(np.asarray(wanted, dtype=np.float64), seen.shape)
        if np.quantile(np.abs(seen - numbers) / np.maximum(1, np.abs(numbers)), 0.98) > SHARE_TOLERANCE:
            return None
    return name
