"""The skill of a network in a user's loop, measured on samples that stay the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from safelight import checks
from safelight.config.tree import Diffusion
from safelight.diffusion.densities import time_quantile_of_draws
from safelight.diffusion.objective import Objective
from safelight.diffusion.process import precise
from safelight.generate import evaluation_mode
from safelight.keys import derive_seed
from safelight.monitors.parameters import trainable_parameters
from safelight.monitors.reading_buffer import PendingReading
from safelight.probes.call_template import CallTemplate, Key, NotMeasurable
from safelight.probes.dataset import SeenImages, SeenInputs, as_pictures, is_same_scale, mean_and_deviation
from safelight.probes.forward_pass import Call, ForwardPass, ProcessSpec
from safelight.probes.noising import measure_noising
from safelight.probes.preconditioning import Preconditioning
from safelight.probes.probe_schedule import BudgetedSchedule
from safelight.probes.random_state import kept_random_state
from safelight.yardstick.denoisers import AT_ONCE, ClosedFormDenoisers
from safelight.yardstick.fixed_samples import SIZE, FixedSamples, draw_samples
from safelight.yardstick.held_out import HeldOutSamples, hold_out
from safelight.yardstick.skill import Yardstick

MAX_COLLECTING_UPDATES = 64  # updates after which the images that were seen have to be enough
MIN_IMAGES = 32  # images
FORWARD_COST = 1 / 3  # of a step that also has a backward pass


class SkillSubject(NamedTuple):
    """Whose skill is measured."""

    model: nn.Module
    ema: Callable[[], list[Tensor] | None] | None
    """Averages of the trained parameters."""
    images: Callable[[], np.ndarray | None]
    """Images of the dataset that was given, once."""
    is_compiled: bool = False
    held_out: HeldOutImages | None = None


class HeldOutImages(NamedTuple):
    """Images that the loop does not train on."""

    images: Callable[[], np.ndarray | None]
    report: Callable[[str], None]
    """Gets the reason why they are not used."""


class Prepared(NamedTuple):
    """What does not change between two looks."""

    samples: FixedSamples
    extras: Mapping[Key, Tensor]
    yardstick: Yardstick
    held_out: HeldOutSamples | None


class SkillProbe:
    """Measures and changes nothing of the loop. What keeps it from that is reported once, and it is switched off."""

    def __init__(self, subject: SkillSubject, declared: ProcessSpec, report: Callable[[str], None]) -> None:
        """`report` gets the reason why skill is not measured."""
        self._subject, self._declared, self._report = subject, declared, report
        self._is_on = True  # what it needs may still be recognised
        self._looks, self._updates, self._looked_at = BudgetedSchedule(), 0, 0
        self._seen, self._inputs = SeenImages(), SeenInputs()
        self._template: CallTemplate | None = None
        self._disagreements: dict[str, Tensor] = {}  # by their words: how far off, on the device
        self._is_compared = False
        self._preconditioning = Preconditioning()
        self._from_data: Tensor | None = None
        self._unfit = ""  # why the dataset cannot be used
        self._prepared: Prepared | None = None

    def declare(self, declared: ProcessSpec) -> None:
        """What is known of the process from now on."""
        self._declared = declared

    def leave_out(self, reason: str) -> None:
        """It is not measured at all."""
        self._switch_off(reason)

    @property
    def spent(self) -> float:
        """Seconds."""
        return self._looks.spent

    def after_update(self, passes: Sequence[ForwardPass]) -> list[PendingReading]:
        """The weights are the new ones."""
        found = self._guarded(lambda: self._after_update(passes))
        return [PendingReading((), lambda: found)] if found else []

    def at_end(self) -> dict[str, float]:
        """By signal, of the weights as they are now."""
        if not self._updates or self._looked_at == self._updates:
            return {}
        return self._guarded(lambda: self._look(is_last=True))

    def _guarded(self, act: Callable[[], dict[str, float]]) -> dict[str, float]:
        if not self._is_on:
            return {}
        try:
            with torch.no_grad():
                return act()
        except NotMeasurable as error:
            self._switch_off(str(error))
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0][:200]
            self._switch_off(f"the model could not be called on samples of our own ({type(error).__name__}: {first})")
        return {}

    def _switch_off(self, reason: str) -> None:
        self._is_on, self._prepared, self._from_data, self._seen = False, None, None, SeenImages()
        if self._declared.prediction is not None:  # else nobody expects it
            self._report(reason)

    def _after_update(self, passes: Sequence[ForwardPass]) -> dict[str, float]:
        self._updates += 1
        if self._prepared is None and (self._updates <= MAX_COLLECTING_UPDATES or not self._is_compared):
            for passed in passes:
                self._observe(self._preconditioning.undo(passed))
        if not self._declared.can_sample:
            # Nothing is kept without end for what was not recognised by now.
            if self._updates >= MAX_COLLECTING_UPDATES:
                self._is_on, self._seen = False, SeenImages()
            return {}
        batch_size = SIZE if self._template is None else self._template.batch_size
        networks = (1 if self._subject.ema is None else 2) * (1 if self._subject.held_out is None else 2)
        if not self._looks.is_due(self._updates, FORWARD_COST * networks * SIZE / batch_size):
            return {}
        return self._look(is_last=False)

    # --- what the loop shows --------------------------------------------------------------------------------------

    def _observe(self, passed: ForwardPass) -> None:
        """Without waiting for the device."""
        call = passed.call or (_usual_call(passed) if self._subject.is_compiled else None)
        if call is None or call.x is None:
            return
        if self._template is None:
            if not self._may_be_known(passed):
                return
            self._template = CallTemplate(call)
        if not self._is_compared and self._declared.can_sample:
            self._is_compared = True
            self._disagreements = _disagreements(passed, call, self._declared)
        if self._updates > MAX_COLLECTING_UPDATES:
            return
        extras, x0 = self._template.extras_of(call), passed.x0
        if x0 is not None and x0.is_floating_point() and x0.shape == call.x.shape and extras is not None:
            if not self._seen.is_full:
                self._seen.add(x0, extras)
        elif x0 is None and call.t is not None and self._declared.can_sample:
            process = self._declared.process
            assert process is not None
            x_t, t = process.seen(call.x.detach(), call.t)
            self._inputs.add(x_t, *process.at(t))

    def _may_be_known(self, passed: ForwardPass) -> bool:
        """Whether it is declared what is trained, or can be recognised later."""
        declared = self._declared
        is_declared = declared.process is not None or declared.family is not None
        return (is_declared and declared.prediction is not None) or passed.noise is not None

    # --- what is measured on --------------------------------------------------------------------------------------

    def _prepare(self, *, is_last: bool) -> Prepared | None:
        """None where more has to be seen of the loop first."""
        template, is_late = self._template, is_last or self._updates >= MAX_COLLECTING_UPDATES
        if template is None:
            if is_late:
                raise NotMeasurable("no call of the model was seen")
            return None
        for words, number in self._disagreements.items():
            if not float(number) <= checks.FORWARD_LIMIT:
                raise NotMeasurable(words)
        extras: dict[Key, Tensor] = {}
        if (images := self._fitting_data(template)) is not None:
            pass
        elif len(self._seen) >= MIN_IMAGES and (is_late or self._seen.is_full):
            images, extras = self._seen.images(), self._seen.extras()
        elif is_late or not len(self._seen):
            raise NotMeasurable(self._unfit or f"fewer than {MIN_IMAGES} images were seen")
        else:
            return None
        self._from_data, self._seen = None, SeenImages()
        return self._measure_yardstick(images, extras)

    def _fitting_data(self, template: CallTemplate) -> Tensor | None:
        """Images of the dataset, where the loop trains on them as they are."""
        if self._unfit:
            return None
        if self._from_data is None:
            taken = self._subject.images()
            self._unfit = _unfit(taken, template)
            self._from_data = None if taken is None or self._unfit else torch.from_numpy(taken).float()
        if self._from_data is not None and not self._unfit:
            self._unfit = self._other_scale(self._from_data)
        return None if self._unfit else self._from_data

    def _other_scale(self, images: Tensor) -> str:
        """Against what the model was shown; in words where they differ."""
        mean, deviation = mean_and_deviation(images)
        has_images = len(self._seen) > 0
        wanted, width = mean_and_deviation(self._seen.images()) if has_images else self._inputs.mean_and_deviation()
        if is_same_scale(mean, deviation, wanted, width):
            return ""
        numbers = f"mean {mean:.2g}, deviation {deviation:.2g}; {wanted:.2g} and {width:.2g}"
        return f"data has another scale than {'x0' if has_images else 'what the model is shown'} ({numbers})"

    def _measure_yardstick(self, images: Tensor, extras: Mapping[Key, Tensor]) -> Prepared:
        images = as_pictures(images)
        if len(images) < MIN_IMAGES:
            raise NotMeasurable(f"there are fewer than {MIN_IMAGES} images, or they are too large")
        declared = self._declared
        process, prediction, draws = declared.process, declared.prediction, declared.draws
        assert process is not None
        assert prediction is not None
        settings = Diffusion(sigma_data=declared.sigma_data)
        objective = Objective(settings, process, torch.device("cpu"), declared.target(prediction))
        density = None if draws is None else time_quantile_of_draws(torch.from_numpy(draws))
        count = min(SIZE, len(images))
        # Of a dataset evenly, for it may be sorted; of a loop the first, whose labels are known.
        chosen = torch.arange(count) if extras else torch.linspace(0, len(images) - 1, count).round().long()
        samples = draw_samples(derive_seed(0, "probe"), objective, images[chosen], density)
        denoisers = ClosedFormDenoisers(images.split(AT_ONCE))
        yardstick = samples.compare(denoisers)
        return Prepared(samples, extras, yardstick, self._hold_out(images, samples, denoisers))

    def _hold_out(self, images: Tensor, samples: FixedSamples, denoisers: ClosedFormDenoisers) -> HeldOutSamples | None:
        """None where there are no held-out images, or they are not as those that the loop trains on."""
        given, template = self._subject.held_out, self._template
        if given is None or template is None:
            return None
        taken = given.images()
        reason = "it is no tensor, array or Dataset of images" if taken is None else _unfit(taken, template, "held_out")
        if taken is None or reason:
            given.report(reason)
            return None
        held_out = as_pictures(torch.from_numpy(taken).float())
        (mean, deviation), (wanted, width) = mean_and_deviation(held_out), mean_and_deviation(images)
        if not is_same_scale(mean, deviation, wanted, width):
            given.report(
                f"its mean is {mean:.2g} and its deviation {deviation:.2g}; those of the training images are "
                f"{wanted:.2g} and {width:.2g}"
            )
            return None
        return hold_out(held_out, samples, denoisers)

    # --- measuring ------------------------------------------------------------------------------------------------

    def _look(self, *, is_last: bool) -> dict[str, float]:
        if not self._declared.can_sample:
            return {}
        with self._looks.look(self._updates):
            self._prepared = self._prepared or self._prepare(is_last=is_last)
            if self._prepared is None:
                return {}
            self._looked_at = self._updates
            return self._measure(self._prepared)

    def _measure(self, prepared: Prepared) -> dict[str, float]:
        model, template = self._subject.model, self._template
        assert template is not None
        # Without requires_grad: the autocast of some versions of torch keeps casts of parameters that were made without
        # gradients, and the loop would train on those.
        weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        averages = None if self._subject.ema is None else self._subject.ema()
        stance = torch.compiler.set_stance("force_eager") if self._subject.is_compiled else nullcontext()
        with kept_random_state(template.device), evaluation_mode(model), stance:
            averaged = None
            if averages is not None:
                named = zip(trainable_parameters(model), averages, strict=True)
                averaged = weights | {name: each.to(own) for (name, own), each in named}
            fixed = self._losses_of_both(prepared.samples, prepared.extras, weights, averaged)
            found = prepared.samples.skills(prepared.yardstick, *fixed, has_floor=not prepared.extras)
            if (held_out := prepared.held_out) is not None:
                found |= held_out.measure(fixed, self._losses_of_both(held_out.samples, {}, weights, averaged))
        return found

    def _losses_of_both(
        self,
        samples: FixedSamples,
        extras: Mapping[Key, Tensor],
        weights: Mapping[str, Tensor],
        averaged: Mapping[str, Tensor] | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Of the raw weights and of the EMA, if there is one."""
        raw = self._losses(samples, extras, weights)
        return raw, None if averaged is None else self._losses(samples, extras, averaged)

    def _losses(self, samples: FixedSamples, extras: Mapping[Key, Tensor], weights: Mapping[str, Tensor]) -> Tensor:
        """In batches as large as those of the loop, so that there is memory for them."""
        template = self._template
        assert template is not None
        torch.default_generator.manual_seed(0)  # of networks that are random in evaluation too
        noised, answers = samples.noised(), list[Tensor]()
        shown, told = samples.objective.input(noised)
        for start in range(0, len(samples), template.batch_size):
            rows = slice(start, start + template.batch_size)
            call = template.fill(shown[rows], told[rows], {key: values[rows] for key, values in extras.items()})
            answer = call.again(self._subject.model, weights)
            if tuple(answer.shape[1:]) != template.shape:
                raise NotMeasurable(f"the model returns {tuple(answer.shape[1:])} for {template.shape}")
            answers.append(answer.float().cpu())
        return samples.losses(torch.cat(answers).view_as(noised.target), noised)


def _usual_call(passed: ForwardPass) -> Call | None:
    """The call of a network without hooks: (x, t) or (x, t, labels)."""
    if passed.x_t is None or passed.t is None:
        return None
    return Call((passed.x_t, passed.t, *([] if passed.labels is None else [passed.labels])), {}).detached()


def _disagreements(passed: ForwardPass, call: Call, declared: ProcessSpec) -> dict[str, Tensor]:
    """By the words for it: how much a step differs from x_t = a · x0 + s · noise, from the declared target, and from a
    model whose inputs and outputs these are. Skill on samples that are made otherwise would say nothing."""
    x, t, prediction = call.x, call.t, declared.prediction
    assert x is not None
    assert t is not None
    assert prediction is not None
    found: dict[str, Tensor] = {}
    if declared.timesteps is not None:
        found["the timesteps that the model is called with are not those of the schedule"] = _outside(t, declared)
    if passed.t is not None and passed.t.shape == t.shape:
        found["the model is called with other timesteps than t"] = _other_times(passed.t, t, declared)
    for words, given, own in (
        ("the model is called with something else than x_t", _shown(passed, declared), x),
        ("the model returns something else than pred", passed.pred, call.output),
    ):
        if given is not None and own is not None:
            found[words] = _relative(given, own)
    seen = measure_noising(passed, declared)
    forward, target = seen.get(checks.FORWARD_ERROR), seen.get(checks.TARGET[prediction])
    found |= {} if forward is None else {"x_t is not what the schedule says": forward}
    return found | ({} if target is None else {f"the target is not {prediction}": target})


def _other_times(t: Tensor, told: Tensor, declared: ProcessSpec) -> Tensor:
    """Between what the network is told and what it should be at t."""
    process = declared.process
    assert process is not None
    if process.table is not None:
        return (t.to(told) - told).abs().max().float()
    wanted = t if process.c_noise is None else process.c_noise(precise(t))
    apart = (wanted.double() - told.double()).abs() / wanted.double().abs().clamp(min=1)
    return apart.max().float()


def _shown(passed: ForwardPass, declared: ProcessSpec) -> Tensor | None:
    """x_t as the network is shown it; not compared where a loop may pass it scaled or not."""
    process = declared.process
    is_scaled = declared.any_scale or (process is not None and process.c_in is not None)
    return None if is_scaled else passed.x_t


def _outside(t: Tensor, declared: ProcessSpec) -> Tensor:
    """0 for places in the schedule, also as floats."""
    places = t.double() if t.device.type != "mps" else t.float()
    wrong = (places < 0) | (places > (declared.timesteps or 1) - 1) | (places != places.round())
    return wrong.float().max()


def _relative(given: Tensor, own: Tensor) -> Tensor:
    if given.shape != own.shape:
        return torch.tensor(torch.inf)
    given, own = given.detach().float(), own.detach().float()
    return (given - own).norm() / own.norm().clamp(min=1e-12)


def _unfit(images: np.ndarray | None, template: CallTemplate, what: str = "data") -> str:
    """Why images of a dataset cannot be shown to the model; nothing where they can."""
    if images is None:
        return "neither data nor x0 was passed as the model is shown it"
    if template.extras:
        more = f"the model is called with more for each sample ({template.names()})"
        return f"{more}: pass x0 to watch.step" if what == "data" else more
    if tuple(images.shape[1:]) != template.shape:
        return f"an image of {what} has the shape {tuple(images.shape[1:])}, the model is called with {template.shape}"
    if not np.issubdtype(images.dtype, np.floating):
        return f"{what} has {images.dtype} numbers and not images as the model is shown them"
    return "" if np.isfinite(images).all() else f"{what} is not finite"
