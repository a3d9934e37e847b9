"""The run's own sampler, driven by an exact denoiser: it must return the known distribution."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from safelight import checks
from safelight.config.tree import Diffusion
from safelight.diffusion import time_mappings
from safelight.diffusion.process import Process, per_sample
from safelight.diffusion.sampling import Denoiser
from safelight.diffusion.schedule import make_process
from safelight.diffusion.targets import TargetCoefficients, from_x0
from safelight.diffusion.time_units import retold, share_of
from safelight.probes.forward_pass import ProcessSpec
from safelight.probes.random_state import kept_random_state

POINTS, SPREAD = 0.55, 0.25
MAX_SECONDS = 10.0  # seconds for one round of samples
MOST_SAMPLES = 64

Sampler = Callable[..., Any]


class SamplerCall(NamedTuple):
    """One call of the network by a sampler."""

    time: float
    spread: float
    expected: float
    """The spread of samples with the noise of that timestep."""
    training: bool
    gradients: bool


class Answer(tuple[Tensor]):
    """As networks of diffusers answer: `.sample`, or the first of a tuple."""

    @property
    def sample(self) -> Tensor:
        return self[0]


class PerfectModel(nn.Module):
    """The exact denoiser of a known distribution: two images, or a Gaussian around one."""

    def __init__(
        self, process: Process, target: TargetCoefficients, centres: Tensor, spread: float, *, is_wrapped: bool = False
    ) -> None:
        """`is_wrapped`: it returns an `Answer` instead of a tensor."""
        super().__init__()
        self.process, self.target, self._is_wrapped = process, target, is_wrapped
        self.centres, self.spread = centres.double(), spread
        self.scale = nn.Parameter(torch.ones((), device=centres.device))  # samplers look for the device of a parameter
        self.drop = nn.Dropout(0.5)  # never used; it makes train() and eval() differ
        self.calls: list[SamplerCall] = []
        self._end = time.monotonic() + MAX_SECONDS

    def forward(self, x: Tensor, t: Any = None, *rest: Any, **named: Any) -> Tensor | Answer:
        t = next((v for v in (t, *(named.get(k) for k in ("timestep", "timesteps", "t"))) if v is not None), 0)
        if time.monotonic() > self._end:
            raise TimeoutError(f"the sampler took more than {MAX_SECONDS:g} s")
        told = torch.as_tensor(t, device=x.device).reshape(-1).double()
        values, times = self.process.seen(x.detach().double(), told)
        a, s = (per_sample(each, x) for each in self.process.at(times))
        s = s.clamp(min=1e-6)
        spread = float(values.square().mean().sqrt())
        inner = float(self.centres.square().mean()) + self.spread**2
        expected = float((a.flatten()[0] ** 2 * inner + s.flatten()[0] ** 2).sqrt())
        share = float((s / (a + s)).flatten()[0])
        place = float(told[0]) if self.process.table is not None else share
        self.calls.append(SamplerCall(place, spread, expected, self.training, torch.is_grad_enabled()))
        answer = from_x0(self.target, self._clean(values, a, s), values, a, s).to(x.dtype)
        answer = answer * self.scale.detach()
        return Answer((answer,)) if self._is_wrapped or named.get("return_dict") is False else answer

    def _clean(self, x: Tensor, a: Tensor, s: Tensor) -> Tensor:
        """E[x0 | x_t] of a mixture of equally frequent Gaussians of one width."""
        variance = (a * self.spread).square() + s.square()
        apart = x[:, None] - a[:, None] * self.centres[None]
        distances = apart.square().flatten(2).sum(2) / (2 * variance.flatten()[:, None])
        weights = torch.softmax(-distances, dim=1)
        gain = a * self.spread**2 / variance
        each = self.centres[None] + gain[:, None] * apart
        return (weights.view(*weights.shape, *[1] * (x.dim() - 1)) * each).sum(1)


def measure_sampler(
    sampler: Sampler,
    declared: ProcessSpec,
    shape: tuple[int, ...],
    reach: float,
    device: torch.device,
    model: nn.Module | None = None,
) -> dict[str, float]:
    """`shape` of one sample, `reach` of the images from 0. The random state is restored afterwards. Where the samples
    are wrong: whether they are right for another prediction type, or for another schedule. `model`: that of the loop,
    whose answers a sampler may unpack (`model(x, t).sample`)."""
    is_wrapped = type(model).__module__.partition(".")[0] == "diffusers"
    try:
        return _measure(sampler, declared, shape, reach, device, is_wrapped)
    except (AttributeError, TypeError, IndexError):  # a tensor has no `sample`, and what is unpacked is no tensor
        with suppress(Exception):
            return _measure(sampler, declared, shape, reach, device, not is_wrapped)
        raise


@torch.no_grad()
def _measure(
    sampler: Sampler,
    declared: ProcessSpec,
    shape: tuple[int, ...],
    reach: float,
    device: torch.device,
    is_wrapped: bool,
) -> dict[str, float]:
    process, prediction = declared.process, declared.prediction
    assert process is not None
    assert prediction is not None
    pattern = _pattern(shape) * (reach if math.isfinite(reach) and reach > 0 else 1.0)
    count = MOST_SAMPLES if pattern.numel() <= 4096 else 16
    with kept_random_state(), torch.random.fork_rng():
        torch.manual_seed(0)
        noise = torch.randn(count, *shape).to(device)
        drive = functools.partial(_drive, sampler, pattern.to(device), SPREAD * reach, noise, is_wrapped)
        with torch.enable_grad():  # as the caller has it: a sampler has to switch it off itself
            readings = drive(process, declared.target(prediction))
            if is_right(readings) and (declared.timesteps is not None or _has_right_path(readings)):
                return readings
            for place, kind in enumerate(checks.PREDICTIONS):
                if kind != prediction and is_right(drive(process, declared.target(kind))):
                    readings[checks.SAMPLER_RIGHT_FOR_TYPE] = float(place)
            if declared.timesteps is None:
                readings |= _right_otherwise(functools.partial(drive, target=declared.target(prediction)), process)
            for place, name in enumerate(checks.SCHEDULES if declared.timesteps is not None else ()):
                other = make_process(Diffusion(schedule=name, timesteps=declared.timesteps or 0))
                if is_right(drive(other, declared.target(prediction))):
                    readings[checks.SAMPLER_RIGHT_FOR_TABLE] = float(place)
    return readings


def _drive(
    sampler: Sampler,
    pattern: Tensor,
    width: float,
    noise: Tensor,
    is_wrapped: bool,
    process: Process,
    target: TargetCoefficients,
) -> dict[str, float]:
    points = PerfectModel(process, target, torch.stack([pattern, -pattern]), 0.0, is_wrapped=is_wrapped)
    cloud = PerfectModel(process, target, 0.4 * pattern[None], width, is_wrapped=is_wrapped)
    readings = _measure_points(draw(sampler, points.eval(), noise), pattern)
    readings |= _measure_cloud(draw(sampler, cloud.eval(), noise), 0.4 * pattern, width)
    return readings | _measure_calls(points.calls, process)


def _right_otherwise(drive: Callable[[Process], dict[str, float]], process: Process) -> dict[str, float]:
    """In continuous time: whether it is right for a network that is told other times, or sees x_t unscaled."""
    for clock in time_mappings.USUAL_CLOCKS:
        if clock.words in checks.TIMES_TOLD:
            found = drive(retold(process, clock))
            if is_right(found) and _has_right_path(found):
                return {checks.SAMPLER_RIGHT_FOR_TIME: float(checks.TIMES_TOLD.index(clock.words))}
    if process.c_in is not None:
        found = drive(replace(process, c_in=None))
        if is_right(found) and _has_right_path(found):
            return {checks.SAMPLER_RIGHT_UNSCALED: 1.0}
    return {}


def _has_right_path(readings: Mapping[str, float]) -> bool:
    """Whether the noise on the way is that of the times that the network is told, from the first one on."""
    low, high = checks.START_SIZES
    is_begun = low < readings.get(checks.SAMPLER_START, 1.0) < high
    is_early = readings.get(checks.SAMPLER_FIRST, 1.0) >= checks.LATE_START
    return is_begun and is_early and readings.get(checks.SAMPLER_PATH, 1.0) <= checks.MAX_PATH_RATIO


def is_right(readings: Mapping[str, float]) -> bool:
    """Whether the samples are the known images, in any of the usual ranges."""
    if not readings.get(checks.SAMPLER_FINITE) or readings[checks.SAMPLER_LEFT] > checks.SAMPLER_LIMIT:
        return False
    low, high = checks.CLOUD_SPREADS
    has_few_calls = readings.get(checks.SAMPLER_CALLS, 0.0) < checks.CLOUD_CALLS
    is_spread = has_few_calls or low < readings.get(checks.SAMPLER_CLOUD_SPREAD, 1.0) < high
    return is_spread and checks.has_image_range(readings[checks.SAMPLER_SCALE], readings[checks.SAMPLER_SHIFT])


def draw(sampler: Sampler, model: nn.Module, noise: Tensor) -> Tensor:
    found = sampler(model, noise)
    found = getattr(found, "images", getattr(found, "sample", found))
    found = found[0] if isinstance(found, tuple | list) and found and isinstance(found[0], Tensor) else found
    found = torch.as_tensor(found).detach().to(noise.device).double()
    if found.dim() == 4 and found.shape != noise.shape and found.movedim(-1, 1).shape == noise.shape:
        found = found.movedim(-1, 1)
    if found.shape != noise.shape:
        raise ValueError(f"the sampler turned noise of shape {tuple(noise.shape)} into {tuple(found.shape)}")
    return found


def _pattern(shape: tuple[int, ...]) -> Tensor:
    signs = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(1)) * 2 - 1
    sizes = torch.rand(shape, generator=torch.Generator().manual_seed(2)) * 0.4 + 0.8
    return (signs * sizes * POINTS).double()


def _measure_points(images: Tensor, pattern: Tensor) -> dict[str, float]:
    """How far every sample is from the nearer image, after the best common scale and shift: samplers may return
    [0, 1] or [0, 255]. And how often either image came."""
    flat, aim = images.flatten(1), pattern.flatten()
    if not flat.isfinite().all():
        return {checks.SAMPLER_FINITE: 0.0}
    sides = torch.sign((flat - flat.mean()) @ aim)
    sides = torch.where(sides == 0, torch.ones_like(sides), sides)
    wanted = sides[:, None] * aim
    scale, shift = _affine(wanted, flat)
    left = flat - scale * wanted - shift
    length = aim.square().mean().sqrt()
    return {
        checks.SAMPLER_FINITE: 1.0,
        checks.SAMPLER_ERROR: float((flat - wanted).square().mean().sqrt() / length),
        # The median: a sample between the two images may stay undecided.
        checks.SAMPLER_LEFT: float(left.square().mean(1).median().sqrt() / (length * max(abs(scale), 1e-9))),
        checks.SAMPLER_SCALE: scale,
        checks.SAMPLER_SHIFT: shift,
        checks.SAMPLER_SHARE: float((sides > 0).double().mean()),
        checks.SAMPLER_LARGEST: float(flat.abs().max()),
        checks.SAMPLER_AT_LIMIT: float((flat.abs() >= flat.abs().max() * (1 - 1e-4)).double().mean()),
        checks.SAMPLER_REACH: float(aim.abs().max()),
    }


def _measure_cloud(images: Tensor, centre: Tensor, width: float) -> dict[str, float]:
    flat, wanted = images.flatten(1), centre.flatten()
    if not flat.isfinite().all():
        return {}
    mean = flat.mean(0)
    scale, shift = _affine(wanted, mean)
    size = max(abs(scale), 1e-9)
    return {
        checks.SAMPLER_CLOUD_SPREAD: float(flat.var(0).mean().sqrt()) / width / size,
        checks.SAMPLER_CLOUD_MEAN: float((mean - scale * wanted - shift).square().mean().sqrt()) / size,
        checks.SAMPLER_CLOUD_SCALE: scale,
        checks.SAMPLER_CLOUD_SHIFT: shift,
    }


def _affine(x: Tensor, y: Tensor) -> tuple[float, float]:
    """The least-squares scale and shift, where there are enough values for them."""
    x, y = x.flatten(), y.flatten()
    if x.unique().numel() < 8:
        return 1.0, 0.0
    centred = x - x.mean()
    scale = float((centred * (y - y.mean())).sum() / centred.square().sum().clamp(min=1e-12))
    return scale, float(y.mean()) - scale * float(x.mean())


def _measure_calls(calls: Sequence[SamplerCall], process: Process) -> dict[str, float]:
    if not calls:
        return {checks.SAMPLER_CALLS: 0.0}
    ratios = [call.spread / call.expected for call in calls if call.expected > 0]
    times = [call.time for call in calls]
    # Of a table by places; in continuous time by the share of noise, whatever t is.
    first, length = process.first, max(process.last - process.first, 1e-9)
    if process.table is None:
        last = share_of(process, torch.tensor([process.last], dtype=torch.float64))
        first, length = 0.0, max(float(last), 1e-9)
    # Whether a sampler counts its steps can be seen of timesteps only: σ and times up to 1 are small numbers anyway.
    highest: dict[str, float] = {} if process.table is None else {checks.SAMPLER_HIGHEST_TIME: max(times)}
    return highest | {
        checks.SAMPLER_CALLS: float(len(times)),
        checks.SAMPLER_FIRST: (times[0] - first) / length,
        checks.SAMPLER_LAST: (times[-1] - first) / length,
        checks.SAMPLER_FALLING: sum(a > b for a, b in itertools.pairwise(times)) / max(1, len(times) - 1),
        checks.SAMPLER_START: ratios[0],
        checks.SAMPLER_PATH: max(max(r, 1 / max(r, 1e-9)) for r in ratios),
        checks.SAMPLER_IN_TRAINING: float(any(call.training for call in calls)),
        checks.SAMPLER_WITH_GRADIENTS: float(any(call.gradients for call in calls)),
    }


def accepts(sampler: Sampler) -> bool:
    """Whether it can be called as sampler(model, noise)."""
    try:
        inspect.signature(sampler).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True


class _Labelled(nn.Module):
    """Predicts 0.1 for class 0, 0.2 for class 1, and 0.4 for any other label, also the null label."""

    def forward(self, x: Tensor, t: Tensor, labels: Tensor) -> Tensor:
        answers = torch.tensor([0.1, 0.2, 0.4], device=x.device)[labels.clamp(max=2)]
        return answers[:, None, None, None].expand_as(x)


@torch.no_grad()
def measure_guidance(
    denoiser: Callable[[nn.Module, float], Denoiser], shape: tuple[int, ...], at: float = 0
) -> dict[str, float]:
    """`denoiser`: of the run, for a network and a scale, with the first two classes. Guidance of 0 must give the
    unconditional prediction, of 1 the conditional one, of 3 the third point on their line. `at`: a time at which
    there is noise, of the type that the process has."""
    x, t = torch.zeros(shape), torch.full(shape[:1], at)
    labelled = torch.tensor([0.1, 0.2])[:, None, None, None]
    errors = [
        float((denoiser(_Labelled(), scale)(x, t) - 0.4 - scale * (labelled - 0.4)).abs().max())
        for scale in (0.0, 1.0, 3.0)
    ]
    return {checks.SAMPLER_GUIDANCE: max(errors)}
