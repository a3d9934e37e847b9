"""One micro-batch explained: which call is the network's, and what were x0, noise, x_t, t, target and labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from safelight.capturing.mixing import HALF_DTYPES, Mixing, Numbers, explain_by, explain_input, looks_normal
from safelight.capturing.preconditioned import preconditioning
from safelight.capturing.tables import readings_of, table_of
from safelight.capturing.trace import Compared, Made, SeenCall, Trace, tensors_in
from safelight.diffusion.process import per_sample
from safelight.model.calls import parameter_names
from safelight.probes.forward_pass import Call, ForwardPass

MOST_CLEANS, MOST_NOISES = 24, 6


@dataclass(frozen=True, slots=True)
class ExplainedMicroBatch:
    """What is known of one micro-batch; None where it is not known."""

    passed: ForwardPass
    """As `Watch.step` is passed it, with the call that can be repeated."""
    network: nn.Module | None = None
    """That was called."""
    mixing: Mixing | None = None
    row: tuple[np.ndarray, np.ndarray] | None = None
    """(p, q) of the target = p·x0 + q·noise."""
    has_other_noise: bool = False
    """Whether the target holds another draw than x_t."""
    is_perturbed: bool = False
    """Whether x_t holds the target's noise and another draw on top."""
    sigma_data: float | None = None
    """That of a preconditioning inside of the network."""
    inner_error: float | None = None
    """How far the input of the network inside of it is from c_in·x_t, in c_in."""
    shown_t: Tensor | None = None
    """As the network was called with it."""
    alphas: Tensor | None = None
    """alphas_cumprod, where the loop was seen to take a and s from a table; `lacks_root` says whether as a
    variance-preserving process does."""
    frozen: nn.Module | None = None
    """The frozen network that x0 came out of."""

    @property
    def lacks_root(self) -> bool:
        """Whether x_t is made of alphas_cumprod itself, and not of its square roots."""
        return self.alphas is not None and self.mixing is not None and self.mixing.relation != "vp"


def explain(trace: Trace, loss: Tensor, calls: Sequence[SeenCall]) -> ExplainedMicroBatch:
    """`calls`: those that may be the network's, the most likely first; at least one."""
    numbers, constant = Numbers(), None
    for is_drawn, before_clamps in ((True, False), (False, False), (True, True)):
        for call, given, form in _forms(trace, calls, before_clamps):
            mixing = _explain_form(trace, form, call, numbers, is_drawn)
            if mixing is not None and mixing.varies:
                x_t = given if before_clamps and given.shape == form.shape else form
                return _complete(trace, loss, call, given, form, mixing, numbers, x_t)
            if is_drawn:
                constant = constant or (None if mixing is None else (call, given, form, mixing))
        if constant is not None:
            break
    if constant is not None:  # of one time for all samples; or noise as augmentation, where nothing better is there
        return _complete(trace, loss, *constant, numbers, constant[2])
    call = calls[0]
    pair, answer = _last_loss(trace, call), call.answer
    pred, target = (None, None) if pair is None or answer is None else _in_space_of(answer, None, pair, numbers)
    return ExplainedMicroBatch(
        ForwardPass(loss.detach(), target=target, pred=pred, call=_repeatable(call)), call.module
    )


def _forms(trace: Trace, calls: Sequence[SeenCall], before_clamps: bool) -> Iterator[tuple[SeenCall, Tensor, Tensor]]:
    """What each call was given, and each form of it."""
    for call in calls:
        for given in tensors_in((*call.inputs, *call.named.values())):
            for form in trace.forms(given, before_clamps=before_clamps):
                yield call, given, form


def _repeatable(seen: SeenCall) -> Call:
    names = parameter_names(seen.module)
    return Call(seen.inputs, seen.named, seen.answer, seen.training, seen.half, seen.random, names).detached()


def _explain_form(trace: Trace, form: Tensor, call: SeenCall, numbers: Numbers, is_drawn: bool) -> Mixing | None:
    """`is_drawn`: the noise is a normal draw of torch, in this step. Otherwise whatever looks like one, or a draw of
    another distribution, of which there has to be exactly one."""
    if form.dim() < 2 or not form.is_floating_point() or form.device.type == "meta" or not len(form):
        return None
    alike = [
        made
        for made in trace.tensors.values()
        if made.tensor.shape == form.shape and made.order < call.order and made.tensor is not form
    ]
    noises = [made for made in alike if made.draws and made.is_pure]
    cleans = [made for made in alike if not (made.draws and made.is_pure)]
    if not is_drawn:
        noises = [made for made in cleans[-MOST_CLEANS:] if made.is_other_draw or looks_normal(made.tensor)]
        cleans = [made for made in cleans if not any(made is noise for noise in noises)]
    noises += _shared_draws(trace, form, call) if is_drawn else []
    noises = sorted(noises, key=lambda made: (not made.is_draw, -made.order))[:MOST_NOISES]
    rough = any(each.tensor.dtype in HALF_DTYPES for each in (*cleans, *noises))
    found = explain_input(form, cleans[-MOST_CLEANS:], noises, numbers, rough, readings_of(trace, call, len(form)))
    return found if is_drawn or found is None or found.relation in ("vp", "flow", "edm") else None


def _shared_draws(trace: Trace, form: Tensor, call: SeenCall) -> list[Made]:
    """Draws of one sample that all samples of a batch are given."""
    if len(form) < 2:
        return []
    draws = (made for made in (*trace.tensors.values(), *trace.vectors.values()) if made.is_draw)
    return [
        replace(made, tensor=made.tensor.expand(form.shape))
        for made in draws
        if made.order < call.order and made.tensor.shape in (form.shape[1:], (1, *form.shape[1:]))
    ]


def _complete(
    trace: Trace,
    loss: Tensor,
    call: SeenCall,
    given: Tensor,
    form: Tensor,
    mixing: Mixing,
    numbers: Numbers,
    x_t: Tensor,
) -> ExplainedMicroBatch:
    """`x_t`: as the network was shown it, where `form` is what it was before it was cut off."""
    x0, noise = mixing.x0.tensor, mixing.noise.tensor
    shown, t, labels = _times_and_labels(trace, call, form, mixing, len(form))
    pred, target, row, other = None, None, None, None
    answer = call.answer
    if answer is not None:
        chosen = _choose_pair(trace, call, mixing, numbers)
        if chosen is not None:
            pair, row, other = chosen
            pred, target = _in_space_of(answer, given, pair, numbers)
            if row is not None and target is not None and target.shape == x0.shape:
                again = explain_by(target, x0, noise, Numbers())
                row = row if again is None else (again[0].numpy(), again[1].numpy())
    is_perturbed = other is not None and other.draws < mixing.noise.draws
    x_t, inside = x_t.detach(), preconditioning(trace, call, mixing, numbers)
    alphas = table_of(trace, call, t, mixing, row)
    passed = ForwardPass(loss.detach(), t, x0.detach(), noise.detach(), x_t, target, pred, labels, _repeatable(call))
    return ExplainedMicroBatch(
        passed, call.module, mixing, row, other is not None and not is_perturbed, is_perturbed,
        None if inside is None else inside.sigma_data, None if inside is None else inside.error, shown,
        alphas, mixing.x0.frozen,
    )  # fmt: skip


def _last_loss(trace: Trace, call: SeenCall) -> Compared | None:
    """The last loss function that was given something in the shape of the answer."""
    answer = call.answer
    losses = [pair for pair in trace.compared if pair.is_loss and pair.order > call.ended]
    return next((pair for pair in reversed(losses) if answer is not None and pair.pred.shape == answer.shape), None)


def _choose_pair(
    trace: Trace, call: SeenCall, mixing: Mixing, numbers: Numbers
) -> tuple[Compared, tuple[np.ndarray, np.ndarray] | None, Made | None] | None:
    """The difference whose target is made of x0 and noise: of the same noise, of another, which is returned, or at
    least by a loss function."""
    x0, noise = mixing.x0.tensor, mixing.noise.tensor
    pairs = [pair for pair in trace.compared if pair.order > call.ended]
    for pair in reversed(pairs):
        for form in trace.forms(pair.target):
            if form.shape == x0.shape and (row := explain_by(form, x0, noise, numbers)) is not None:
                sign = -1 if pair.is_sum else 1
                return pair, (sign * row[0].numpy(), sign * row[1].numpy()), None
    drawn = [made for made in trace.tensors.values() if made.draws and made.is_pure]
    others = sorted((made for made in drawn if made.tensor.shape == x0.shape), key=lambda made: not made.is_draw)
    for pair in reversed(pairs):
        for made in others if pair.target.shape == x0.shape else ():
            if made.tensor is not noise and explain_by(pair.target, x0, made.tensor, numbers) is not None:
                return pair, None, made
    last = _last_loss(trace, call)
    return None if last is None else (last, None, None)


def _in_space_of(
    answer: Tensor, shown: Tensor | None, pair: Compared, numbers: Numbers
) -> tuple[Tensor | None, Tensor | None]:
    """(pred, target) as the network answers: where the loss compares c_skip·x_t + c_out·answer with x0, what the answer
    itself should have been. As the loss compares them, where that is not proven."""
    pred, target = pair.pred.detach(), pair.wanted.detach()
    answer = answer.detach()
    if pred.shape != answer.shape or pred.shape != target.shape:
        return pred, target
    if pred is answer or torch.equal(pred, answer):
        return answer, target
    if shown is None or shown.shape != answer.shape:
        return pred, target
    found = explain_by(pred, shown.detach(), answer, Numbers(samples=None))  # every sample is converted
    if found is None or len(found[0]) != len(answer) or float(found[1].abs().min()) < 1e-6:
        return pred, target
    skip, out = (per_sample(each.to(answer), answer) for each in found)
    return answer, (target.to(answer) - skip * shown.detach().to(answer)) / out


def _times_and_labels(
    trace: Trace, call: SeenCall, form: Tensor, mixing: Mixing, size: int
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """(the time that the network was shown, the time of the loop, labels). The time is what follows the noise level;
    where no input does, the loop's own may, and the network was shown another."""
    given = [value for value in tensors_in((*call.inputs, *call.named.values())) if value.numel() == size]
    vectors = [value.detach().reshape(-1) for value in given if value.dim() <= 1 or value.numel() == value.shape[0]]
    level = np.arctan2(mixing.s, mixing.a)
    shown = next((value for value in vectors if _follows(value, level)), None)
    if shown is None:
        seen = Call(call.inputs, call.named, None, parameters=parameter_names(call.module)).t
        shown = None if seen is None else seen.detach()
    t = shown
    if size > 3 and (shown is None or not _follows(shown, level)):
        made = [each for each in trace.vectors.values() if each.order < call.order and each.tensor.numel() == size]
        whole = sorted(made, key=lambda each: (each.tensor.is_floating_point(), each.order))
        own = (each.tensor.detach().reshape(-1) for each in whole)
        t = next((value for value in own if _follows(value, level)), shown)
    rest = [each for each in vectors if each is not shown and not each.is_floating_point()]
    rest = [each for each in rest if shown is None or not (each.shape == shown.shape and torch.equal(each, shown))]
    return shown, t, rest[0] if len(rest) == 1 else None


def _follows(values: Tensor, level: np.ndarray) -> bool:
    """Whether the values are one monotone function of the noise level, and not constant."""
    if values.dtype == torch.bool or values.is_complex():
        return False
    t = values[: len(level)].to("cpu").double().numpy()
    if len(t) != len(level):
        return False
    t, level = t[np.isfinite(level)], level[np.isfinite(level)]
    if len(t) < 4 or np.ptp(t) == 0 or not np.isfinite(t).all():
        return False
    order = np.lexsort((level, t))
    steps = np.diff(level[order])
    return bool((steps >= -2e-3).all() or (steps <= 2e-3).all()) and np.ptp(level) > 2e-3
