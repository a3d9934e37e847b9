"""Is x_t that of the schedule, is the target that of the prediction type, and is the noise normal? At every step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from safelight import checks
from safelight.diffusion.objective import target_of
from safelight.probes.forward_pass import Declared, ForwardPass

TINY = 1e-12


def look_at_noising(micro_batch: ForwardPass, declared: Declared) -> dict[str, Tensor]:
    """Scalars on the device, by the name of the reading; what is not known is left out."""
    x0, noise, t = micro_batch.x0, micro_batch.noise, micro_batch.times
    found: dict[str, Tensor] = {}
    found |= look_at_batch(micro_batch)
    if noise is not None and noise.dim() > 1:
        found |= _moments(checks.NOISE_MOMENTS, noise) | _spread(noise)
    if x0 is None or noise is None or t is None or x0.shape != noise.shape or not x0.is_floating_point():
        return found
    coefficients = declared.coefficients(t, x0)
    if coefficients is None:
        return found
    a, s = coefficients
    x_t = micro_batch.input
    if x_t is not None and x_t.shape == x0.shape:
        found |= _forward(x_t.float(), x0.float(), noise.float(), a.float(), s.float())
        found |= _seen(micro_batch, x_t)
    if micro_batch.target is not None and micro_batch.target.shape == x0.shape:
        found |= _target(micro_batch.target.float(), x0.float(), noise.float(), a.float(), s.float())
    return found


def look_at_batch(micro_batch: ForwardPass) -> dict[str, Tensor]:
    x0 = micro_batch.x0
    return _moments(checks.BATCH_MOMENTS, x0) if x0 is not None and x0.is_floating_point() and x0.dim() > 1 else {}


def _forward(x_t: Tensor, x0: Tensor, noise: Tensor, a: Tensor, s: Tensor) -> dict[str, Tensor]:
    """Medians over the samples whose x_t is wrong; over all, where none is."""
    wanted = a * x0 + s * noise
    errors = _length(x_t - wanted) / _length(wanted).clamp(min=TINY)
    wrong = ~(errors <= checks.FORWARD_LIMIT)
    signal, spread, residual = _fit(x_t, x0, noise)
    flat_a, flat_s = a.flatten(), s.flatten()
    largest = x_t.abs().max()
    there = (x_t.abs() >= largest * (1 - 1e-6)).float().mean()
    clean = (x_t.flatten(1) * x0.flatten(1)).sum(1) / x0.flatten(1).square().sum(1).clamp(min=TINY)
    left = _length(x_t - clean.view(-1, *[1] * (x0.dim() - 1)) * x0) / _length(x_t).clamp(min=TINY)
    return {
        checks.FORWARD_WRONG: wrong.float().mean(),
        checks.FORWARD_ERROR: _middle(errors, wrong),
        checks.FORWARD_RESIDUAL: _middle(residual, wrong),
        checks.FORWARD_NOISE_SEEN: _middle(spread, wrong),
        checks.FORWARD_CLEAN: _middle(left, wrong),
        checks.FORWARD_ORDER: (spread.sort().values - flat_s.sort().values).abs().median(),
        checks.FORWARD_ORDER_ERROR: (spread - flat_s).abs().median(),
        checks.FORWARD_ROUGH: _roughness(signal, spread, flat_a),
        checks.FORWARD_AT_LIMIT: there,
    }


def _middle(values: Tensor, chosen: Tensor) -> Tensor:
    return torch.where(chosen.any(), torch.where(chosen, values, torch.nan).nanmedian(), values.median())


def _roughness(signal: Tensor, spread: Tensor, order: Tensor) -> Tensor:
    """How much the fitted factors of neighbours in noise level differ, over how much all do: a schedule is smooth."""
    if len(order) < 16:
        return torch.zeros_like(order[0])
    turn = order.argsort()
    found = []
    for part in (signal[turn], spread[turn]):
        usual = (part - part.median()).abs().median().clamp(min=1e-3)
        found.append(part.diff().abs().median() / usual)
    return torch.stack(found).max()


def _fit(y: Tensor, x0: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y = a·x0 + b·noise for each sample by least squares: (a, b, the residual over the length of y)."""
    y, x0, noise = (each.flatten(1).float() for each in (y, x0, noise))
    xx, nn, xn = (x0 * x0).sum(1), (noise * noise).sum(1), (x0 * noise).sum(1)
    xy, ny = (x0 * y).sum(1), (noise * y).sum(1)
    determinant = (xx * nn - xn * xn).clamp(min=TINY)
    a, b = (nn * xy - xn * ny) / determinant, (xx * ny - xn * xy) / determinant
    left = y - a[:, None] * x0 - b[:, None] * noise
    return a, b, left.norm(dim=1) / y.norm(dim=1).clamp(min=TINY)


def _target(target: Tensor, x0: Tensor, noise: Tensor, a: Tensor, s: Tensor) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for kind in checks.PREDICTIONS:
        wanted = target_of(kind, x0, noise, a, s)
        length = _length(wanted).clamp(min=TINY)
        found[checks.TARGET[kind]] = (_length(target - wanted) / length).median()
        inner = (target * wanted).flatten(1).sum(1)
        found[checks.TARGET_COSINE[kind]] = (inner / (length * _length(target).clamp(min=TINY))).median()
    found[checks.TARGET_SQUARE] = target.square().mean()
    return found


def _seen(micro_batch: ForwardPass, x_t: Tensor) -> dict[str, Tensor]:
    """The inputs of the network against those that the loop passes: they may be scaled, and not differ otherwise."""
    call = micro_batch.call
    if call is None or call.x is None or call.x.shape != x_t.shape:
        return {}
    x, wanted = call.x.float().flatten(1), x_t.float().flatten(1)
    scale = (x * wanted).sum(1) / (wanted * wanted).sum(1).clamp(min=TINY)
    left = (x - scale[:, None] * wanted).norm(dim=1) / x.norm(dim=1).clamp(min=TINY)
    found: dict[str, Tensor] = {checks.FORWARD_INPUT_ERROR: left.median()}
    t, seen = micro_batch.t, call.t
    if t is not None and seen is not None and len(t) > 1 and t.shape == seen.shape:
        found[checks.TIMESTEPS_PASSED_ON] = _agreement(t.double(), seen.double())
    return found


def _agreement(t: Tensor, seen: Tensor) -> Tensor:
    """Rank correlation: 1 for any scaled timestep, about 0 for a shuffled or constant one; 1 where all timesteps of the
    batch are equal."""
    ranks, others = (each.argsort().argsort().double() for each in (t, seen))
    ranks, others = ranks - ranks.mean(), others - others.mean()
    moves = (seen.max() > seen.min()).double()
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
    found: dict[str, Tensor] = {
        checks.NOISE_COUNT: torch.tensor(float(flat.numel()), device=flat.device),
        checks.NOISE_KURTOSIS: fourth,
    }
    if flat.shape[1] > 1:
        found[checks.NOISE_WITHIN] = flat.var(dim=1).mean()
    if len(flat) > 1:
        found[checks.NOISE_BETWEEN] = flat.var(dim=0).mean()
    return found


def glance(micro_batch: ForwardPass) -> tuple[tuple[str, ...], Tensor] | None:
    """Measured at every step, in a few operations: the error of the prediction, the loss that the loop passes, and the
    largest absolute values, which are not finite where something is not. Names, and one vector on the device."""
    answer, target, loss = micro_batch.answer, micro_batch.target, micro_batch.loss.detach()
    chain = {
        "x0": micro_batch.x0,
        "noise": micro_batch.noise,
        "x_t": micro_batch.input,
        "target": target,
        "pred": answer,
        "loss": loss,
    }
    there = {name: value.detach() for name, value in chain.items() if value is not None and value.is_floating_point()}
    there = {name: value for name, value in there.items() if value.numel() and value.device == loss.device}
    names, numbers = list(there), _norms(list(there.values()), math.inf)
    if answer is not None and target is not None and answer.shape == target.shape and answer.device == loss.device:
        answer, target = answer.detach().float(), target.detach().float()
        names += ["error", "zero", "answer", "told"]
        size = answer.numel() ** -0.5  # before squaring, which is done on the host in double precision
        numbers += [norm * size for norm in _norms([answer - target, target, answer], 2.0)] + [loss.float().mean()]
    return (tuple(names), torch.stack(numbers)) if names else None


def read_glance(names: tuple[str, ...], numbers: np.ndarray) -> dict[str, float]:
    """On the host: `finite/…` only where something is not."""
    seen = dict(zip(names, numbers.astype(np.float64).tolist(), strict=True))
    found: dict[str, float] = {}
    if "error" in seen:
        error, zero, answer = (seen[name] ** 2 for name in ("error", "zero", "answer"))
        found |= {checks.LOSS_ERROR: error, checks.LOSS_ZERO: zero}
        if answer > 0:  # <answer, target> / <answer, answer>, from the three sides of the triangle
            found[checks.LOSS_SLOPE] = (answer + zero - error) / (2 * answer)
        found[checks.LOSS_TOLD] = seen["told"]
    if "x0" in seen:
        found[checks.BATCH_REACH] = seen["x0"]
    found |= {check: 0.0 for name, check in checks.FINITE.items() if not math.isfinite(seen.get(name, 0.0))}
    if math.isinf(seen.get("loss", 0.0)):  # not NaN, which anything may have made
        found[checks.FINITE_LOSS_NUMBER] = 0.0
    return found


def _norms(values: list[Tensor], order: float) -> list[Tensor]:
    return [norm.float() for norm in torch._foreach_norm(values, order)] if values else []


def _length(values: Tensor) -> Tensor:
    return values.flatten(1).norm(dim=1)
