"""Is x_t that of the schedule, is the target that of the prediction type, and is the noise normal? At every step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from safelight import checks
from safelight.diffusion.process import per_sample, precise
from safelight.diffusion.targets import target_of
from safelight.probes.forward_pass import ForwardPass, ProcessSpec
from safelight.probes.mixtures import fit

TINY = 1e-12
PICTURE = 3  # dimensions of a batch that has no channels of its own


def measure_noising(micro_batch: ForwardPass, declared: ProcessSpec) -> dict[str, Tensor]:
    """Scalars on the device, by the name of the reading; what is not known is left out."""
    x0, noise, t = micro_batch.x0, micro_batch.noise, micro_batch.times
    readings = measure_batch(micro_batch) | _passed_on(micro_batch)
    if noise is not None and noise.dim() > 1:
        readings |= _moments(checks.NOISE_MOMENTS, noise) | _spread(noise)
    if x0 is None or noise is None or t is None or x0.shape != noise.shape or not x0.is_floating_point():
        return readings
    if (seen := micro_batch.input) is not None and seen.shape == x0.shape and x0.dim() > 1:
        readings |= _whatever_the_process(seen.detach().float(), x0.float())
    if (coefficients := declared.coefficients(t, x0)) is None:
        return readings
    clean, noise, a, s = (each.float() for each in (x0, noise, *coefficients))
    x_t, target = micro_batch.input, micro_batch.target
    if x_t is not None and x_t.shape == x0.shape:
        x_t = x_t.float()
        x_t = _unscaled(x_t, a * clean + s * noise, a, t, declared)
        readings |= _forward(x_t, clean, noise, a, s, declared.covers(t)) | _network_input(micro_batch, x_t)
        readings |= _input_scale(micro_batch, clean, noise, a, s, t, declared)
    if target is not None and target.shape == x0.shape:
        readings |= _target(target.float(), clean, noise, a, s, declared)
    return readings


def measure_batch(micro_batch: ForwardPass) -> dict[str, Tensor]:
    x0 = micro_batch.x0
    if x0 is None or not x0.is_floating_point() or x0.dim() < 2:
        return {}
    readings = _moments(checks.BATCH_MOMENTS, x0)
    mean, std, low, high = readings.values()
    readings[checks.BATCH_TAILS] = torch.maximum(high - mean, mean - low) / std.clamp(min=TINY)
    return readings | (_channels(x0) if x0.dim() > PICTURE else {})


def _channels(x0: Tensor) -> dict[str, Tensor]:
    """The second dimension, as in torch. The channels of three-dimensional data may be the last: they are left out."""
    std, mean = torch.std_mean(x0.detach().float().transpose(0, 1).flatten(1), dim=1)
    return {
        checks.BATCH_CHANNELS: torch.tensor(float(len(std)), device=std.device),
        checks.CHANNEL_OFFSET: (mean.abs() / std.clamp(min=TINY)).max(),
        checks.CHANNEL_LOWEST: std.min(),
        checks.CHANNEL_HIGHEST: std.max(),
    }


def _forward(x_t: Tensor, x0: Tensor, noise: Tensor, a: Tensor, s: Tensor, is_known: Tensor) -> dict[str, Tensor]:
    """Medians over the samples whose x_t is wrong; over all, where none is. `is_known`: where a and s are."""
    wanted = a * x0 + s * noise
    errors = _length(x_t - wanted) / _length(wanted).clamp(min=TINY)
    wrong = ~(errors <= checks.FORWARD_LIMIT) & is_known
    signal, spread, residual = _fit(x_t, x0, noise)
    flat_a, flat_s = a.flatten(), s.flatten()
    return {
        checks.FORWARD_WRONG: wrong.sum() / is_known.sum().clamp(min=1),
        checks.FORWARD_ERROR: _middle(errors, wrong),
        checks.FORWARD_RESIDUAL: _middle(residual, wrong),
        checks.FORWARD_NOISE_SEEN: _middle(spread, wrong),
        checks.FORWARD_CLEAN: _middle(_without_image(x_t, x0), wrong),
        checks.FORWARD_ORDER: (spread.sort().values - flat_s.sort().values).abs().median(),
        checks.FORWARD_ORDER_ERROR: (spread - flat_s).abs().median(),
        checks.FORWARD_ROUGH: _roughness(signal, spread, flat_a),
        checks.FORWARD_CLEAN_ROOT: (signal - flat_a.square()).abs().mean(),
        checks.FORWARD_NOISE_ROOT: (spread - flat_s.square()).abs().mean(),
        checks.FORWARD_AT_LIMIT: _at_limit(x_t),
    }


def _whatever_the_process(x_t: Tensor, x0: Tensor) -> dict[str, Tensor]:
    """What no process has: values that were cut off, and no noise in any sample."""
    return {checks.FORWARD_CLEAN: _without_image(x_t, x0).median(), checks.FORWARD_AT_LIMIT: _at_limit(x_t)}


def _at_limit(x_t: Tensor) -> Tensor:
    return (x_t.abs() >= x_t.abs().max() * (1 - 1e-6)).float().mean()


def _without_image(x_t: Tensor, x0: Tensor) -> Tensor:
    """For each sample what no multiple of x0 explains, over its length."""
    clean = (x_t.flatten(1) * x0.flatten(1)).sum(1) / x0.flatten(1).square().sum(1).clamp(min=TINY)
    return _length(x_t - per_sample(clean, x0) * x0) / _length(x_t).clamp(min=TINY)


def _unscaled(x_t: Tensor, wanted: Tensor, a: Tensor, t: Tensor, declared: ProcessSpec) -> Tensor:
    """x_t as the process has it: where the network sees c_in · x_t, or a scheduler's x_t is x0 + σ · noise, a loop may
    pass either. Whichever is nearer."""
    process = declared.process
    if process is not None and process.c_in is not None:
        other = x_t / process.c_in(precise(t.detach())).to(x_t.dtype).view_as(a)
    elif declared.any_scale:
        other = x_t * a
    else:
        return x_t
    one, two = ((_length(each - wanted) / _length(wanted).clamp(min=TINY)).median() for each in (x_t, other))
    return torch.where(two < one, other, x_t)


def _input_scale(
    micro_batch: ForwardPass, x0: Tensor, noise: Tensor, a: Tensor, s: Tensor, t: Tensor, declared: ProcessSpec
) -> dict[str, Tensor]:
    """What the network sees over c_in · x_t, where the process says what c_in is."""
    call, process = micro_batch.call, declared.process
    if call is None or call.x is None or call.x.shape != x0.shape or process is None or process.c_in is None:
        return {}
    wanted = process.c_in(precise(t.detach())).float().view_as(a) * (a * x0 + s * noise)
    seen, aim = call.x.float().flatten(1), wanted.flatten(1)
    ratios = (seen * aim).sum(1) / aim.square().sum(1).clamp(min=TINY)
    return {checks.FORWARD_INPUT_SCALE: (ratios - 1).abs().median()}


def _middle(values: Tensor, chosen: Tensor) -> Tensor:
    return torch.where(chosen.any(), torch.where(chosen, values, torch.nan).nanmedian(), values.median())


def _roughness(signal: Tensor, spread: Tensor, order: Tensor) -> Tensor:
    """How much the fitted factors of neighbours in noise level differ, over how much all do: a schedule is smooth."""
    if len(order) < 16:
        return torch.zeros_like(order[0])
    ratios = []
    for part in (signal[order.argsort()], spread[order.argsort()]):
        usual = (part - part.median()).abs().median().clamp(min=1e-3)
        ratios.append(part.diff().abs().median() / usual)
    return torch.stack(ratios).max()


def _fit(y: Tensor, x0: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(a, b, the residual over the length of y) for each sample."""
    a, b, left = fit(y, x0, noise)
    return a, b, left.norm(dim=1) / _length(y).clamp(min=TINY)


def _target(
    target: Tensor, x0: Tensor, noise: Tensor, a: Tensor, s: Tensor, declared: ProcessSpec
) -> dict[str, Tensor]:
    readings: dict[str, Tensor] = {}
    for kind in checks.PREDICTIONS:
        wanted = target_of(declared.target(kind), x0, noise, a, s)
        length = _length(wanted).clamp(min=TINY)
        readings[checks.TARGET[kind]] = (_length(target - wanted) / length).median()
        inner = (target * wanted).flatten(1).sum(1)
        readings[checks.TARGET_COSINE[kind]] = (inner / (length * _length(target).clamp(min=TINY))).median()
    return readings | {checks.TARGET_SQUARE: target.square().mean()}


def _network_input(micro_batch: ForwardPass, x_t: Tensor) -> dict[str, Tensor]:
    """The inputs of the network against those that the loop passes: they may be scaled, and not differ otherwise."""
    call = micro_batch.call
    if call is None or call.x is None or call.x.shape != x_t.shape:
        return {}
    x, wanted = call.x.float().flatten(1), x_t.float().flatten(1)
    scale = (x * wanted).sum(1) / (wanted * wanted).sum(1).clamp(min=TINY)
    left = (x - scale[:, None] * wanted).norm(dim=1) / x.norm(dim=1).clamp(min=TINY)
    return {checks.FORWARD_INPUT_ERROR: left.median()}


def _passed_on(micro_batch: ForwardPass) -> dict[str, Tensor]:
    """Whatever the process is: the times of the call against those that the loop passes."""
    t, shown = micro_batch.t, None if micro_batch.call is None else micro_batch.call.t
    if t is None or shown is None or len(t) < 2 or t.shape != shown.shape:
        return {}
    return {checks.TIMESTEPS_PASSED_ON: _rank_correlation(t.double(), shown.double())}


def _rank_correlation(t: Tensor, shown: Tensor) -> Tensor:
    """1 for any scaled timestep, about 0 for a shuffled or constant one; 1 if all timesteps of the batch are equal."""
    ranks, others = (each.argsort().argsort().double() for each in (t, shown))
    ranks, others = ranks - ranks.mean(), others - others.mean()
    moves = (shown.max() > shown.min()).double()
    alike = (ranks * others).sum() / (ranks.norm() * others.norm()).clamp(min=TINY) * moves
    return torch.where(t.max() > t.min(), alike, torch.ones_like(alike)).float()


def _moments(names: Sequence[str], values: Tensor) -> dict[str, Tensor]:
    values = values.float()
    mean = values.mean()
    std = (values - mean).square().mean().sqrt()
    return dict(zip(names, (mean, std, values.min(), values.max()), strict=True))


def _spread(noise: Tensor) -> dict[str, Tensor]:
    """Variance within a sample and between samples: one of them is 0 where noise was drawn once and repeated."""
    flat = noise.float().flatten(1)
    centred = flat - flat.mean()
    fourth = centred.square().square().mean() / centred.square().mean().square().clamp(min=TINY)
    readings: dict[str, Tensor] = {
        checks.NOISE_COUNT: torch.tensor(float(flat.numel()), device=flat.device),
        checks.NOISE_KURTOSIS: fourth,
    }
    if flat.shape[1] > 1:
        readings[checks.NOISE_WITHIN] = flat.var(dim=1).mean()
    if len(flat) > 1:
        readings[checks.NOISE_BETWEEN] = flat.var(dim=0).mean()
    return readings


def measure_magnitudes(micro_batch: ForwardPass) -> dict[str, Tensor]:
    """In a few operations: the largest absolute values, which are not finite where something is not, the error of the
    prediction, and the loss that the loop passes. Scalars on the device, for `read_magnitudes`."""
    answer, target, loss = micro_batch.answer, micro_batch.target, micro_batch.loss.detach()
    chain = micro_batch.x0, micro_batch.noise, micro_batch.input, target, answer, loss
    there = {
        name: value.detach()
        for name, value in zip(checks.NONFINITE, chain, strict=True)
        if value is not None and value.is_floating_point() and value.numel() and value.device == loss.device
    }
    magnitudes = dict(zip(there, torch._foreach_norm(list(there.values()), math.inf), strict=True)) if there else {}
    if answer is not None and target is not None and answer.shape == target.shape and answer.device == loss.device:
        answer, target = answer.detach().float(), target.detach().float()
        size = answer.numel() ** -0.5  # before squaring, which is done on the host in double precision
        lengths = torch._foreach_norm([answer - target, target, answer], 2.0)
        magnitudes |= {name: norm * size for name, norm in zip(("error", "zero", "answer"), lengths, strict=True)}
        magnitudes["passed"] = loss.float().mean()
    return magnitudes


def read_magnitudes(magnitudes: Mapping[str, float]) -> dict[str, float]:
    """On the host: `finite/…` only where something is not."""
    readings: dict[str, float] = {}
    if "error" in magnitudes:
        error, zero, answer = (magnitudes[name] ** 2 for name in ("error", "zero", "answer"))
        readings |= {checks.LOSS_MSE: error, checks.LOSS_ZERO_MSE: zero}
        if answer > 0:  # <answer, target> / <answer, answer>, from the three sides of the triangle
            readings[checks.LOSS_SLOPE] = (answer + zero - error) / (2 * answer)
        readings[checks.LOSS_REPORTED] = magnitudes["passed"]
    if "x0" in magnitudes:
        readings[checks.BATCH_ABS_MAX] = magnitudes["x0"]
    readings |= {check: 0.0 for name, check in checks.NONFINITE.items() if not math.isfinite(magnitudes.get(name, 0.0))}
    if math.isinf(magnitudes.get("loss", 0.0)):  # not NaN, which anything may have made
        readings[checks.NONFINITE_LOSS_NUMBER] = 0.0
    return readings


def _length(values: Tensor) -> Tensor:
    return values.flatten(1).norm(dim=1)
