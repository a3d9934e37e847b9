"""One history for each way that a rule can be right: sick, healthy and nearly sick."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from histories import (
    ERROR,
    HEALTHY,
    LABELS,
    LOOKS,
    STEPS,
    Event,
    Series,
    chance,
    checks,
    flagged,
    measured,
    refusals,
)

from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory


@dataclass(frozen=True)
class Row:
    """A history by its difference from a sound one, and the causes that should be told of it, the worst first."""

    name: str
    causes: tuple[str, ...] = ()
    series: Series = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    whole: bool = False
    """Whether `series` is all that was recorded."""
    wrong: str = ""
    """Why the rules do not do it yet."""


def row(name: str, causes: str = "", series: Series | None = None, **rest: Any) -> Row:
    """`causes` in one string."""
    return Row(name, tuple(causes.split()), series or {}, **rest)


ROLLS = np.arange(0, 256, 64)


def rolled(**numbers: float) -> Series:
    """The same at every roll call."""
    return measured(**{f"distributed__{name}": (ROLLS, np.full(4, number)) for name, number in numbers.items()})


def probed(trained: list[float], held: list[float], gap: list[float]) -> Series:
    """Losses of the two probe sets at four checkpoints."""
    steps = [31, 63, 95, 127]
    return measured(probe__raw=(steps, trained), probe__held_raw=(steps, held), probe__held_gap=(steps, gap))


PARTS_STILL = measured(update__ratio__conv_in=([0, 64], [0, 0]), update__ratio__conv_out=([0, 64], [0, 0]))
LONG = {"ema.kind": "exponential", "ema.warmup": False, "ema.decay": 0.9999}
WAITS = np.arange(0, 128, 16)
NO_GRADIENT = measured(
    gradient__norm=(STEPS, np.zeros(128)),
    gradient__part__conv_in=(STEPS, np.zeros(128)),
    gradient__part__conv_out=(STEPS, np.zeros(128)),
)
WRONG = checks(forward__wrong=np.ones(16), forward__error=np.full(16, 0.5))
STILL = checks(sentinel__moved=np.zeros(128), update__moved=np.zeros(3), update__lost=np.ones(3))
RATES = np.full(128, 1e-3)
WEIGHTED = checks(replay__told=0.5 * ERROR[:3])  # a loss that is not the squared error itself
RUNAWAY = np.where(STEPS < 60, ERROR, 5.0)


def only_monitors(series: Series) -> Series:
    """A record of before there were probes."""
    return {name: value for name, value in HEALTHY.items() if not name.startswith("check/")} | series


def without(*names: str) -> Series:
    return {name: value for name, value in HEALTHY.items() if not any(n in name for n in names)}


ROWS: list[Row] = [
    row("healthy"),
    row("healthy, with labels", "", LABELS),
    row("healthy, without probes", "", only_monitors({}), whole=True),
    row("nothing recorded yet", whole=True),
    # data
    row("images that are not finite", "data.nonfinite", checks(data__nonfinite=0.01)),
    row("a batch that is not finite", "data.nonfinite", checks(finite__x0=([40], [0.0]))),
    row("copies among the images", "data.duplicates", checks(data__duplicates=0.2)),
    row("a few copies", "", checks(data__duplicates=0.09)),
    row("blank images", "data.blank", checks(data__blank=0.3)),
    row("a few blank images", "", checks(data__blank=0.09)),
    row("in the order of classes", "data.not-shuffled", LABELS | checks(stream__labels_neighbours=0.9)),
    row("one large class", "", LABELS | checks(stream__labels_neighbours=0.62, stream__labels_neighbours_expected=0.6)),
    row("neighbours of few samples", "",
        LABELS | checks(stream__labels_neighbours=0.5, stream__labels_pairs=8, stream__labels_drawn=16)),
    row("every round in the same order", "data.not-shuffled", checks(stream__images_again=(STEPS[64:], np.ones(64)))),
    row("a batch came again by chance", "", checks(stream__images_again=([9, 70], [1, 1]))),
    row("other images from step 80 on", "data.shifted",
        checks(batch__mean=np.where(STEPS < 80, chance(-0.35, -0.25), chance(0.25, 0.35)))),
    row("images that drift", "data.not-shuffled", checks(batch__mean=chance(-0.05, 0.05) + STEPS / 400)),
    row("one odd batch", "", checks(batch__mean=np.where(STEPS == 80, 0.9, chance(-0.35, -0.25)))),
    row("the same batch", "data.same-batch",
        checks(stream__images_alike=(STEPS[1:], np.ones(127)), stream__images_again=(STEPS[1:], np.ones(127)),
               stream__different=([0, 127], [8, 8]), batch__mean=np.full(128, -0.3))),
    row("the same batch twice", "", checks(stream__images_alike=(STEPS[1:3], np.ones(2)))),
    row("the same batch at every look, late", "data.same-batch",
        checks(stream__images_alike=([97, 129, 161], np.ones(3)))),
    row("held-out images are trained on", "data.held-out-overlap", checks(data__held_out_overlap=0.1)),
    row("batches of held-out images", "data.held-out-overlap", checks(rows__held_out=np.full(16, 0.05))),
    row("batches without held-out images", "", checks(rows__held_out=np.zeros(16))),
    # scale
    row("[0, 1]", "scale.range-0-1", checks(batch__lowest=np.zeros(128), batch__std=np.full(128, 0.3))),
    row("dark pictures in [-1, 1]", "", checks(batch__highest=np.full(128, 0.2))),
    row("[0, 1] in vectors", "", checks(batch__lowest=np.zeros(128), batch__dimensions=2, data__lowest=0)),
    row("[0, 255]", "scale.range-0-255", checks(batch__lowest=np.zeros(128), batch__highest=np.full(128, 255.0),
        batch__std=np.full(128, 80.0))),
    row("whole numbers", "scale.integer", checks(batch__integer=1)),
    row("latents without their factor", "scale.wrong-std", checks(batch__lowest=np.full(128, -19.0),
        batch__highest=np.full(128, 18.0), batch__std=np.full(128, 5.0), batch__dimensions=2)),
    row("latents with their factor", "", checks(batch__lowest=np.full(128, -4.0), batch__highest=np.full(128, 4.0),
        batch__std=np.full(128, 1.0), batch__dimensions=2)),
    row("normalised as for a classifier", "scale.outside", checks(batch__lowest=np.full(128, -2.1),
        batch__highest=np.full(128, 2.6))),
    row("a little beyond 1", "", checks(batch__highest=np.full(128, 1.05))),
    # conditioning
    row("labels are ignored", "conditioning.ignored", LABELS | checks(network__label_response=0)),
    row("labels are ignored later", "conditioning.ignored",
        LABELS | checks(network__label_response=0.3, response__labels=([16, 32, 48, 64], [0.2, 0.3, 0, 0]))),
    row("labels that a block of zeros still hides", "",
        LABELS | checks(network__label_response=0.3, response__labels=([1, 4, 16, 32], [0, 0, 0.1, 0.3]))),
    row("labels are mostly dropped", "conditioning.always-dropped", LABELS | checks(stream__labels_hidden=0.9)),
    row("labels are dropped half of the time", "", LABELS | checks(stream__labels_hidden=0.5)),
    row("labels hardly matter", "", LABELS | checks(network__label_response=1e-4)),
    row("labels are never dropped", "conditioning.never-dropped",
        LABELS | checks(stream__shown_kinds=10, stream__shown_highest=9, stream__labels_hidden=0)),
    row("too early to say that labels are never dropped", "",
        LABELS | checks(stream__shown_kinds=10, stream__shown_highest=9, stream__labels_drawn=300)),
    row("a table without a row for no label", "",
        LABELS | checks(network__label_rows=10, stream__shown_kinds=10, stream__shown_highest=9)),
    row("labels are always dropped", "conditioning.always-dropped", LABELS | checks(stream__shown_kinds=1,
        stream__shown_lowest=10, stream__shown_highest=10, stream__labels_hidden=1)),
    row("one class only", "conditioning.one-class", LABELS | checks(stream__shown_kinds=2, stream__shown_lowest=3,
        stream__shown_highest=10, stream__labels_kinds=1, stream__labels_neighbours=1,
        stream__labels_neighbours_expected=1)),
    row("two classes", "", LABELS | checks(network__label_rows=3, stream__shown_kinds=3, stream__shown_highest=2)),
    row("labels of other images", "conditioning.permuted",
        LABELS | checks(labels__gain=(LOOKS, np.zeros(7)), loss__error=np.maximum(ERROR * 0.8, 0.2))),
    row("labels that help nothing yet", "", LABELS | checks(labels__gain=(LOOKS, np.zeros(7)),
        labels__explain=(LOOKS, np.full(7, 4.0)), loss__error=np.maximum(ERROR * 0.8, 0.2))),
    row("labels that help nothing, of images that are not alike", "conditioning.permuted", LABELS | checks(
        labels__gain=(LOOKS, np.zeros(7)), labels__explain=(LOOKS, [0.3, -1, 1, 0, 0.5, 1.2, -0.2]),
        loss__error=np.maximum(ERROR * 0.8, 0.2))),
    row("labels that help next to nothing", "", LABELS | checks(labels__gain=(LOOKS, np.zeros(7)),
        labels__gain_error=(LOOKS, np.full(7, 0.008)), loss__error=np.maximum(ERROR * 0.8, 0.2))),
    row("labels that help next to nothing, of images that are not alike", "conditioning.permuted", LABELS | checks(
        labels__gain=(LOOKS, np.zeros(7)), labels__gain_error=(LOOKS, np.full(7, 0.008)),
        labels__explain=(LOOKS, [0.3, -1, 1, 0, 0.5, 1.2, -0.2]), loss__error=np.maximum(ERROR * 0.8, 0.2))),
    row("labels that stop belonging", "conditioning.permuted",
        LABELS | checks(labels__explain=(LOOKS, [9, 12, 8, 11, 9, 0.4, -1.0]))),
    row("a look at which labels hardly belong", "",
        LABELS | checks(labels__explain=(LOOKS, [9, 12, 8, 11, 9, 10, -1.0]))),
    row("labels that belong less", "", LABELS | checks(labels__explain=(LOOKS, [9, 12, 8, 11, 9, 4, 3.5]))),
    row("labels that help a little", "", LABELS | checks(labels__gain=(LOOKS, np.full(7, 0.01)))),
    row("labels of other images, by the set itself", "conditioning.permuted",
        LABELS | checks(rows__labels_moved=(STEPS, (STEPS >= 40) * 0.9))),
    row("labels as the set has them", "", LABELS | checks(rows__labels_moved=np.zeros(128))),
    row("labels, and too much noise to say", "",
        LABELS | checks(labels__gain=(LOOKS, np.zeros(7)), labels__gain_error=(LOOKS, np.full(7, 0.05)))),
    row("a wrong formula of guidance", "conditioning.guidance", checks(sampler__guidance=0.5)),
    row("guidance to the last digits of fp32", "", checks(sampler__guidance=1e-6)),
    # schedule
    row("a schedule that rises", "schedule.not-decreasing", checks(schedule__rising=1, schedule__last=0.99)),
    row("betas the wrong way round", "schedule.not-decreasing", checks(schedule__betas_falling=0.99)),
    row("signal is left", "schedule.signal-left", checks(schedule__last=0.2)),
    row("Stable Diffusion's own schedule", "", checks(schedule__last=0.0047)),
    row("no signal at all, epsilon", "schedule.zero-snr-epsilon", checks(schedule__last=0)),
    row("no signal at all, v", "", checks(schedule__last=0, schedule__epsilon=0)),
    # forward, timesteps
    row("another table", "forward.other-schedule", WRONG),
    row("bf16 rounds", "", checks(forward__error=np.full(16, 0.004), forward__residual=np.full(16, 0.004))),
    row("one sample of thirty is off", "", checks(forward__wrong=np.full(16, 1 / 32))),
    row("clamped", "forward.clamped", WRONG | checks(forward__at_limit=np.full(16, 0.3),
        forward__residual=np.full(16, 0.2))),
    row("no noise", "forward.no-noise", WRONG | checks(forward__clean=np.zeros(16), forward__noise_seen=np.zeros(16))),
    row("not the formula", "forward.not-the-formula", WRONG | checks(forward__residual=np.full(16, 0.3))),
    row("random parts", "forward.not-the-formula", WRONG | checks(forward__rough=np.full(16, 1.0))),
    row("the network is shown something else", "forward.not-the-formula",
        checks(forward__input_error=np.full(16, 0.5))),
    row("another table for a while", "forward.other-schedule", WRONG | checks(forward__wrong=[0, 0, 1, 1, 0, 0, 0, 0])),
    row("shuffled", "timesteps.shuffled", WRONG | checks(forward__order=np.full(16, 1e-7),
        forward__order_error=np.full(16, 0.3), forward__rough=np.full(16, 1.0))),
    row("uniform noise", "forward.noise-not-normal", checks(noise__mean=np.full(16, 0.5),
        noise__std=np.full(16, 0.289), noise__kurtosis=np.full(16, 1.8))),
    row("offset noise", "", checks(noise__std=np.full(16, 1.005), noise__kurtosis=np.full(16, 3.02))),
    row("few numbers of noise", "", checks(noise__mean=np.full(16, 0.3), noise__count=np.full(16, 16.0))),
    row("the same noise for all samples", "forward.noise-repeated", checks(noise__between=np.zeros(16))),
    row("the same noise for all pixels", "forward.noise-repeated", checks(noise__within=np.zeros(16))),
    row("the same noise at every step", "forward.noise-repeated",
        checks(stream__noise_again=(STEPS[1:], np.ones(127)))),
    row("the same noise twice", "", checks(stream__noise_again=([7, 9], [1, 1]))),
    row("timesteps are never drawn", "timesteps.gap", checks(stream__times_gap=([0, 127], [0.5, 0.5]))),
    row("ten timesteps of a thousand", "timesteps.gap",
        checks(stream__times_kinds=([0, 127], [0.2, 0.02]), stream__times_gap=([0, 127], [0.5, 0.06]))),
    row("fewer timesteps than chance finds", "", checks(stream__times_kinds=([0, 127], [0.5, 0.5]))),
    row("a gap of few draws", "", checks(stream__times_gap=([0, 127], [0.5, 0.2]),
        stream__times_drawn=([0, 127], [8, 600]))),
    row("draws that favour the middle", "", checks(stream__times_gap=([0, 127], [0.5, 0.04]))),
    row("the same timesteps at every step", "timesteps.repeated", checks(stream__times_again=(STEPS[1:], np.ones(127)),
        stream__times_gap=([0, 127], [0.5, 0.5]))),
    row("one timestep", "timesteps.constant", checks(stream__times_lowest=([0, 127], [500, 500]),
        stream__times_highest=([0, 127], [500, 500]), stream__times_gap=([0, 127], [0.5, 0.5]),
        stream__times_again=(STEPS[1:], np.ones(127)))),
    row("timesteps beyond the end", "timesteps.out-of-range", checks(stream__times_outside=([3, 9], [0.1, 0.1]))),
    row("another timestep is passed on", "timesteps.not-passed-on", checks(timesteps__passed_on=np.zeros(16))),
    row("a timestep that ties changes places", "", checks(timesteps__passed_on=np.full(16, 0.95))),
    # target
    row("another type", "target.other-type", checks(target__epsilon=np.full(16, 1.5), target__sample=np.zeros(16))),
    row("declared as v, and is v", "", checks(target__declared=2, target__epsilon=np.full(16, 1.5),
        target__v_prediction=np.zeros(16))),
    row("nothing was declared", "", without("target/declared") | checks(target__epsilon=np.full(16, 1.5)), whole=True),
    row("fresh noise", "target.fresh-noise", checks(target__epsilon=np.full(16, 1.4),
        target__epsilon_cosine=np.zeros(16), target__v_prediction_cosine=np.zeros(16))),
    row("a scaled target", "target.wrong", checks(target__epsilon=np.full(16, 0.5))),
    row("a target in bf16", "", checks(target__epsilon=np.full(16, 0.004))),
    # loss
    row("one refused update", "loss.nonfinite", measured(update__refused=flagged([40])), events=(*refusals([40]),)),
    row("stopped", "loss.nonfinite", measured(update__refused=flagged([120, 121])),
        events=(*refusals([120, 121]), (121, "stopped", {"first_nonfinite": "the output of mid_block"}))),
    row("a foreign loop", "loss.nonfinite", events=((9, "nonfinite", {"parameters": ["body.bias"], "count": 1}),)),
    row("fp16 looks for its scale", "", measured(update__refused=flagged(range(12))),
        events=(*refusals(range(12), overflow=True),)),
    row("no gradient at all, without probes", "loss.detached", only_monitors(NO_GRADIENT | PARTS_STILL), whole=True),
    row("no gradient at all", "loss.detached", NO_GRADIENT | STILL | PARTS_STILL | checks(replay__norm=np.zeros(3),
        replay__came=np.full(3, -1.0), replay__cosine=np.zeros(3), sentinel__gradient=np.zeros(128),
        update__expected=np.zeros(3), update__alignment=np.zeros(3), update__lost=np.zeros(3))),
    row("the sign is turned", "loss.sign", checks(replay__cosine=np.full(3, -1.0))),
    row("L1", "", WEIGHTED | checks(replay__cosine=np.full(3, 0.8), replay__ratio=np.full(3, 0.6))),
    row("another gradient of the plain error", "loss.not-of-prediction", checks(replay__cosine=np.full(3, 0.6))),
    row("its numbers are clipped one by one", "", checks(replay__cosine=np.full(3, 0.85))),
    row("bf16 turns the gradient a little", "", checks(replay__cosine=np.full(3, 0.98))),
    row("the weight is not finite", "loss.weight-nonfinite",
        checks(finite__loss=([7, 9], [0, 0]), finite__loss_number=([7, 9], [0, 0]))),
    row("a loss that is NaN by itself", "loss.weight-nonfinite", checks(finite__loss=([7, 30], [0, 0]))),
    row("a loss that was NaN just now", "loss.weight-nonfinite", checks(finite__loss=([120], [0]))),
    row("a loss that was NaN once", "loss.nonfinite",
        checks(finite__loss=([7], [0])) | measured(loss__mean=(STEPS, np.where(STEPS == 7, np.nan, ERROR))),
        events=(*refusals([7]),)),
    row("a loss that was NaN once, and no gradient", "loss.weight-nonfinite", checks(finite__loss=([7], [0]))),
    row("prediction and loss are not finite", "model.nonfinite",
        checks(finite__loss=([7], [0]), finite__pred=([7], [0]))),
    row("broadcast", "loss.shape", checks(loss__same_shape=0)),
    row("a gradient of something else", "loss.not-of-prediction", checks(replay__cosine=[0.02, -0.1, 0.05])),
    row("a gradient that has half of its signs", "loss.not-of-prediction",
        checks(replay__cosine=np.full(3, 0.5), replay__signs=np.full(3, 0.7))),
    row("numbers that are clipped one by one", "",
        checks(replay__cosine=np.full(3, 0.5), replay__signs=np.full(3, 1.0))),
    row("one tensor goes the other way", "loss.not-of-prediction",
        checks(replay__cosine=np.full(3, 0.9), replay__worst=np.full(3, -0.9))),
    row("one tensor is hardly of the same mind", "", checks(replay__worst=np.full(3, 0.2))),
    row("below zero and on, only the loss is told", "loss.sign",
        measured(loss__mean=(STEPS, -1.0 - STEPS / 4)), whole=True),
    row("below zero and at rest, only the loss is told", "",
        measured(loss__mean=(STEPS, -1.0 - STEPS / 400)), whole=True),
    row("only the loss is told, and it runs away", "loss.diverged",
        measured(loss__mean=(STEPS, np.where(STEPS < 60, 1.0, STEPS - 40.0))), whole=True),
    row("only the loss is told, and it rises a little", "",
        measured(loss__mean=(STEPS, np.where(STEPS < 60, 1.0, 4.0))), whole=True),
    row("a gradient of something else, once", "", checks(replay__cosine=[0.05, 0.9, 0.9])),
    row("a gradient of exactly nothing", "loss.not-of-prediction", checks(replay__norm=np.zeros(3),
        replay__came=np.zeros(3))),
    row("weights that swing", "loss.weighting", WEIGHTED | checks(loss__told=ERROR * np.exp(3 * chance(-1, 1)))),
    row("a few samples decide", "loss.weighting", WEIGHTED | checks(replay__cosine=np.full(3, 0.3))),
    row("half of the samples weigh nothing", "loss.weighting", checks(answer__unheard=np.full(16, 0.5))),
    row("a sample weighs nothing now and then", "", checks(answer__unheard=(STEPS, (STEPS % 9 == 0) * 0.2))),
    row("few timesteps weigh nothing", "", checks(answer__unheard=np.full(16, 0.01))),
    row("min-SNR", "",
        WEIGHTED | checks(replay__cosine=np.full(3, 0.6), loss__told=ERROR * np.exp(0.5 * chance(-1, 1)))),
    row("diverged", "loss.diverged", checks(loss__error=RUNAWAY, loss__told=RUNAWAY)),
    row("back to the zero predictor", "", checks(loss__error=np.where(STEPS < 60, ERROR, 1.0))),
    row("a spike that is over", "", checks(loss__error=np.where((STEPS >= 60) & (STEPS < 64), 5.0, ERROR))),
    row("a gradient out of nowhere", "precision.transient",
        measured(gradient__norm=(STEPS, np.where(STEPS == 60, 30.0, 0.3)))),
    row("a gradient eight times as large", "", measured(gradient__norm=(STEPS, np.where(STEPS == 60, 2.4, 0.3)))),
    row("a batch of images that are far out", "clipping.outlier-batches",
        checks(batch__reach=np.where(STEPS == 60, 9.0, 1.0))),
    row("batches of images that differ a little", "", checks(batch__reach=np.where(STEPS == 60, 3.0, 1.0))),
    row("a batch that kicks", "clipping.outlier-batches",
        measured(gradient__norm=(STEPS, np.where(STEPS == 60, 30.0, 0.3)),
                 loss__mean=(STEPS, np.where(STEPS == 60, 90.0, ERROR)))
        | checks(loss__error=np.where(STEPS == 60, 90.0, ERROR), batch__std=np.where(STEPS == 60, 70.0, 0.7))),
    row("errors that stay where a kick brought them", "loss.diverged",
        measured(gradient__norm=(STEPS, np.where(STEPS == 60, 30.0, 0.3)), loss__mean=(STEPS, RUNAWAY))
        | checks(loss__error=RUNAWAY, loss__told=RUNAWAY)),
    row("a hard batch", "", checks(loss__error=np.where(STEPS == 60, 2.0, ERROR))),
    # model
    row("a part without gradient", "model.no-gradient", measured(gradient__part__time=(STEPS, np.zeros(128)))),
    row("a part that is frozen later", "model.no-gradient",
        measured(gradient__part__time=(STEPS, np.where(STEPS < 60, 0.3, 0.0)))),
    row("a part that is silent at times", "",
        measured(gradient__part__time=(STEPS, np.where(STEPS % 20 < 12, 0.3, 0.0)))),
    row("a part that wakes up late", "", measured(gradient__part__time=(STEPS, (STEPS > 20) * 0.1))),
    row("too early to say", "", measured(gradient__norm=(STEPS[:8], np.ones(8)), gradient__part__a=(STEPS[:8],
        np.zeros(8))), whole=True),
    row("zeros everywhere", "model.zero-init", checks(network__zero_weights=0.9, network__matrices_reached=0.1)),
    row("zero output layers of blocks", "", checks(network__zero_weights=0.4, network__matrices_reached=1)),
    row("too loud", "model.init-gain", checks(loss__error=np.where(STEPS == 0, 30.0, ERROR))),
    row("a little loud", "", checks(loss__error=np.where(STEPS == 0, 2.0, ERROR))),
    row("tanh at the end", "model.bounded-output", checks(network__loudest=1.0)),
    row("ReLU at the end", "model.bounded-output", checks(network__one_sided=1)),
    row("dead units", "model.dead-units", checks(network__silent=0.9)),
    row("sunk units", "model.dead-units", checks(network__sunk=0.9)),
    row("some dead units", "", checks(network__silent=0.3)),
    row("too much dropout", "model.dropout", checks(network__dropout=0.8)),
    row("dropout of a half", "", checks(network__dropout=0.5)),
    row("blind to the timestep", "model.blind-to-timestep", checks(network__time_response=0)),
    row("blind to the timestep later", "model.blind-to-timestep",
        checks(network__time_response=0.3, response__time=([16, 32, 48, 64], [0.2, 0.3, 0, 0]))),
    row("a faint response to the timestep", "", checks(network__time_response=1e-4)),
    row("timesteps look alike", "model.embedding-collapsed", checks(network__time_collision=0.9999)),
    row("timesteps look a little alike", "", checks(network__time_collision=0.6)),
    row("samples see each other", "model.batch-coupling", checks(network__coupling=0.01)),
    row("sums in another order", "", checks(network__coupling=1e-6)),
    row("a skip connection is cut", "model.skip-cut", checks(network__unused=0.5)),
    row("a few inputs are zero", "", checks(network__unused=0.05)),
    row("answers that are not finite", "model.nonfinite", checks(finite__pred=([50], [0]))),
    row("frozen, and in the optimizer", "model.frozen", checks(optimizer__frozen=0.2),
        events=((0, "parameters", {"frozen": ["time.weight"]}),)),
    # optimizer
    row("weights stand still, without probes", "optimizer.no-update", only_monitors(PARTS_STILL), whole=True),
    row("one of two updates, without probes", "",
        only_monitors(PARTS_STILL | measured(update__ratio__conv_out=([0, 64], [0, 1e-7]))), whole=True),
    row("weights stand still", "optimizer.no-update", STILL),
    row("the optimizer is never called", "optimizer.no-update", events=((0, "no_update", {"batches": 3}),)),
    row("a sentinel that stands still late", "optimizer.no-update",
        checks(sentinel__moved=np.where(STEPS < 90, 1.0, 0.0))),
    row("a sentinel that stood still twice", "", checks(sentinel__moved=np.where(np.isin(STEPS, [90, 91]), 0.0, 1.0))),
    row("refused when it was looked at", "loss.nonfinite",
        only_monitors(measured(update__ratio__conv_in=([64], [0]), update__ratio__conv_out=([64], [0]),
                               update__refused=flagged([64]))), whole=True, events=(*refusals([64]),)),
    row("a gradient is there before the first one comes", "optimizer.no-zero-grad",
        checks(sentinel__carried=np.ones(128))),
    row("gradients that were not cleared twice", "",
        checks(sentinel__carried=np.where(np.isin(STEPS, [60, 61]), 1.0, 0.0))),
    row("gradients are never cleared", "optimizer.no-zero-grad",
        checks(replay__carried=([1, 2], [1.0, 1.0]), replay__cosine=[1, 0.7, 0.6], replay__ratio=[1, 1.4, 1.8])),
    row("a part of the gradient before", "", checks(replay__carried=([1, 2], [0.2, 0.2]))),
    row("carried, and not explained", "", checks(replay__carried=([1, 2], [1.0, 1.0]),
        replay__explained=([1, 2], [0.4, 0.4]))),
    row("another model", "optimizer.other-parameters", checks(optimizer__missing=1, optimizer__foreign=1)),
    row("a layer was replaced", "optimizer.other-parameters", checks(optimizer__missing=0.1, optimizer__foreign=0.1)),
    row("parameters are missing", "optimizer.missing-parameters", checks(optimizer__missing=0.1),
        events=((0, "parameters", {"missing": ["time.weight", "time.bias"]}),)),
    row("other parameters are there as well", "", checks(optimizer__foreign=0.3)),
    row("maximize", "optimizer.maximize", checks(optimizer__maximize=1, update__alignment=np.full(3, -0.8))),
    row("up the gradient, late", "optimizer.maximize",
        checks(update__alignment=([0, 1, 2, 64, 65], [0.8, 0.8, 0.8, -0.4, -0.4]),
               search__1=(LOOKS, np.full(7, 1.01))) | {"check/search/0.1": ([64], [1.01])}
        | measured(loss__mean=(STEPS, np.where(STEPS < 64, 0.3, 0.3 * 1.02 ** (STEPS - 63))))),
    row("momentum up the gradient, and the loss as before", "",
        checks(update__alignment=([0, 1, 2, 64, 65], [0.8, 0.8, 0.8, -0.4, -0.4]),
               search__1=(LOOKS, np.full(7, 1.01))) | {"check/search/0.1": ([64], [1.01])}
        | measured(loss__mean=(STEPS, np.full(128, 0.3)))),
    row("momentum that leads the other way for a while", "",
        checks(update__alignment=([0, 1, 2, 64, 65], [0.8, 0.8, 0.8, -0.4, -0.4]))),
    row("a negative rate", "optimizer.maximize", checks(update__alignment=np.full(3, -0.8))),
    row("momentum that leads the other way", "", checks(update__alignment=([0, 1, 2, 64], [0.8, 0.8, 0.6, -0.5]))),
    row("too much decay", "optimizer.weight-decay",
        checks(update__decay_share=np.full(3, 0.6), optimizer__weight_decay=1.0)),
    row("much decay at a small rate", "", checks(update__decay_share=np.full(3, 0.6))),
    row("too much decay later", "optimizer.weight-decay",
        checks(update__decay_share=([0, 1, 2, 64, 96], [0.01, 0.01, 0.01, 0.6, 0.6]),
               update__decay=([0, 1, 2, 64, 96], [0.01, 0.01, 0.01, 1, 1]))),
    row("too much decay at one look", "",
        checks(update__decay_share=([0, 1, 2, 64, 96], [0.01, 0.01, 0.01, 0.6, 0.01]),
               update__decay=([0, 1, 2, 64, 96], [0.01, 0.01, 0.01, 1, 0.01]))),
    row("cleared before the update", "optimizer.zeroed-gradients", NO_GRADIENT | STILL | checks(
        replay__norm=np.zeros(3), replay__cosine=np.zeros(3), sentinel__gradient=np.zeros(128),
        sentinel__came=np.full(128, 0.1), update__expected=np.zeros(3), update__alignment=np.zeros(3),
        update__lost=np.zeros(3))),
    row("something else wrote into the weights", "optimizer.not-its-update", checks(sentinel__changed=([60], [1.0]))),
    row("weights that are normalised after every update", "", checks(sentinel__changed=np.ones(128))),
    row("a decay that is added to the gradient", "optimizer.weight-decay", checks(update__decay_pull=np.full(3, 9.0))),
    row("a little decay that is added", "", checks(update__decay_pull=np.full(3, 0.5))),
    row("weights move otherwise", "optimizer.not-its-update", checks(update__error=[0.5, 0.5, 0.5])),
    row("weights move a little otherwise", "", checks(update__error=[0.01, 0.01, 0.01])),
    row("weights only decay", "optimizer.zeroed-gradients",
        checks(update__error=np.ones(3), update__decay_share=np.ones(3))),
    row("the optimizer forgets", "optimizer.not-its-update",
        checks(optimizer__forgotten=(np.arange(1, 16), np.ones(15)))),
    row("the optimizer was made anew once", "checkpoint.optimizer-lost",
        checks(optimizer__forgotten=(np.arange(1, 16), np.arange(15) == 5))),
    # lr
    row("too high", "lr.too-high", checks(search__1=(LOOKS, [1.0, 1.0, 1.4, 2.0, 3.0, 5.0, 9.0]))),
    row("one update that destroys everything", "lr.too-high", checks(
        search__1=([1], [np.nan]), search__rate=([1], [0.1]), search__10=([1], [np.nan]),
        search__100=([1], [np.nan]), search__start=([1], [0.5]), search__zero=([1], [1.0]))
        | {f"check/search/{length}": ([1], [2.0]) for length in ("0.1", "0.3", "3")}),
    row("too high once", "", checks(search__1=(LOOKS, [1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0]))),
    row("a little too far", "", checks(search__1=(LOOKS, np.full(7, 1.1)))),
    row("too low", "lr.too-low", checks(search__1=(LOOKS, np.full(7, 0.99999)), search__10=(LOOKS, np.full(7, 0.9999)),
        search__100=(LOOKS, np.full(7, 0.998)), search__start=(LOOKS, np.full(7, 0.9)))),
    row("converged", "", checks(search__1=(LOOKS, np.full(7, 0.99999)), search__10=(LOOKS, np.full(7, 0.9999)),
        search__100=(LOOKS, np.full(7, 0.998)), search__start=(LOOKS, np.full(7, 0.2)))),
    row("warm-up", "", checks(search__1=(LOOKS, np.full(7, 0.99999)), search__10=(LOOKS, np.full(7, 0.9999)),
        search__100=(LOOKS, np.full(7, 0.998)), search__start=(LOOKS, np.full(7, 0.9)),
        search__rate=(LOOKS, 1e-6 * 1.5 ** np.arange(7)))),
    row("thrown about while the rate rises", "lr.too-high",
        checks(loss__error=np.where(np.isin(STEPS, [3, 4, 6, 9]), 3.0, ERROR))
        | measured(optimizer__lr=(STEPS, 1e-3 * np.minimum(1, (1 + STEPS) / 16)))),
    row("thrown about at the very first steps", "lr.no-warmup",
        checks(loss__error=np.where(np.isin(STEPS, [1, 2, 3]), 3.0, ERROR))),
    row("worse than nothing at two of the first steps", "",
        checks(loss__error=np.where(np.isin(STEPS, [1, 2]), 3.0, ERROR))),
    row("a network that begins loudly", "", checks(loss__error=4 * ERROR)),
    row("no warm-up", "lr.no-warmup", checks(search__1=(LOOKS, [4.0, 1.0, 0.9, 0.9, 0.9, 0.9, 0.9]))),
    row("a first update that is a little long", "", checks(search__1=(LOOKS, [2.0, 1.0, 0.9, 0.9, 0.9, 0.9, 0.9]))),
    row("a learning rate of zero", "lr.zero", STILL | PARTS_STILL | measured(optimizer__lr=(STEPS, np.zeros(128)))
        | checks(update__expected=np.zeros(3))),
    row("a warm-up from zero", "", measured(optimizer__lr=(STEPS, np.where(STEPS < 1, 0.0, 1e-3)))),
    row("over too early", "lr.ended-early", measured(optimizer__lr=(STEPS, np.where(STEPS < 60, 1e-3, 1e-8)))),
    row("a cosine that ends with the run", "",
        measured(optimizer__lr=(STEPS, 5e-4 * (1 + np.cos(np.pi * STEPS / 128))))),
    row("a jump", "lr.jump", measured(optimizer__lr=(STEPS, np.where(STEPS < 60, 1e-4, 1e-2)))),
    row("restarts", "", measured(optimizer__lr=(STEPS, 5e-4 * (1.01 + np.cos(np.pi * (STEPS % 32) / 32))))),
    row("a linear warm-up", "", measured(optimizer__lr=(STEPS, RATES * np.minimum(1, (1 + STEPS) / 64)))),
    # ema
    row("an average longer than the run", "ema.too-long", settings=LONG | {"train.steps": 2000}),
    row("long enough", settings=LONG | {"train.steps": 60_000}),
    row("warmed up", settings=LONG | {"train.steps": 2000, "ema.warmup": True}),
    row("a foreign average that is too long", "ema.too-long", checks(
        average__decay=([1, 2, 3, 16, 96], np.full(5, 0.9999)), average__moved=([1, 2, 3, 16, 96], np.full(5, 1e-4)))),
    row("a foreign average of a hundred steps", "", checks(
        average__decay=([1, 2, 3, 16, 96], np.full(5, 0.99)), average__moved=([1, 2, 3, 16, 96], np.full(5, 1e-2)))),
    row("an average that stands still", "ema.frozen", checks(average__moved=([1, 2, 3, 16, 32], np.zeros(5)),
        average__decay=([1, 2, 3, 16, 32], np.ones(5)), average__same=(STEPS[:40], np.ones(40)))),
    row("an average that is moved at every tenth update", "", checks(
        average__moved=([1, 2, 3, 16, 32], np.zeros(5)), average__decay=([1, 2, 3, 16, 32], np.ones(5)),
        average__same=(STEPS[:64], (STEPS[:64] % 10 != 0) * 1.0))),
    row("an average that stops later", "ema.frozen", checks(
        average__same=([*range(64), 64, 65, 96, 97, 128, 129, 160], [*[0] * 64, 0, 0, 0, 1, 1, 1, 1]))),
    row("an average that begins late", "", checks(average__moved=([1, 2, 3, 16, 32], [0, 0, 0.01, 0.01, 0.01]))),
    row("an average in half precision", "ema.low-precision", checks(average__coarse=([1, 2, 3, 16, 32], np.ones(5)),
        average__moved=([1, 2, 3, 16, 32], np.zeros(5)))),
    row("moved between micro-batches", "ema.every-micro-batch", checks(average__between=([1, 2], [1, 1]))),
    row("not an average", "ema.not-an-average", checks(average__left=([1, 2, 3, 16, 32], np.full(5, 0.5)))),
    row("not an average, once", "", checks(average__left=([1, 2, 3, 16, 32], [0, 0, 0.5, 0, 0]))),
    row("our own average stands still", "ema.frozen",
        checks(average__moved=([1, 2, 3, 16, 32], [0.01, 0.01, 0.01, 0, 0])), settings={"train.steps": 2000}),
    row("our own average, while updates are refused", "loss.nonfinite",
        checks(average__moved=([1, 2, 3, 16, 32], [0.01, 0, 0, 0.01, 0.01]))
        | measured(update__refused=flagged([1, 2])), events=(*refusals([1, 2]),), settings={"train.steps": 2000}),
    row("an average that is never drawn from", "ema.not-sampled",
        checks(pictures__apart=([63, 127], [0, 0]), pictures__distance=([63, 127], [0.05, 0.05]))),
    row("an average that has caught up", "",
        checks(pictures__apart=([63, 127], [0, 0]), pictures__distance=([63, 127], [1e-5, 1e-5]))),
    row("pictures of an average", "",
        checks(pictures__apart=([63, 127], [0.1, 0.1]), pictures__distance=([63, 127], [0.05, 0.05]))),
    # mode
    row("trained in evaluation mode", "mode.eval-in-training", checks(mode__training=np.zeros(128))),
    row("evaluation mode, where it does not matter", "",
        checks(mode__training=np.zeros(128), network__depends_on_mode=0)),
    row("sampled in training mode", "mode.train-in-sampling", checks(sampler__in_training=1)),
    # precision, clipping, accumulation
    row("halved without end", "precision.scale-halving", measured(update__refused=flagged(range(60, 128))),
        events=(*refusals(range(60, 128), overflow=True),)),
    row("a foreign scaler without end", "precision.scale-halving", measured(update__refused=flagged(range(60, 128)))),
    row("halved nine times of twenty", "", measured(update__refused=flagged(range(119, 128))),
        events=(*refusals(range(119, 128), overflow=True),)),
    row("fp16 without a scaler", "precision.no-scaler",
        checks(precision__half=np.ones(128), replay__vanished=np.full(3, 0.2))),
    row("fp16 with a scaler", "", checks(precision__half=np.ones(128), replay__vanished=np.full(3, 0.05),
        precision__scaled=1)),
    row("fp16 that holds all gradients", "", checks(precision__half=np.ones(128), replay__vanished=np.full(3, 0.001))),
    row("weights of 16 bits", "precision.lost-updates",
        checks(optimizer__half_weights=1, update__coarse=np.ones(3), update__lost=np.full(3, 0.8))),
    row("weights of 16 bits that move", "", checks(optimizer__half_weights=1, update__lost=np.full(3, 0.1))),
    row("clipped before it was unscaled", "clipping.before-unscale", checks(replay__norm=np.full(3, 1.5e-5),
        replay__ratio=np.full(3, 5e-5), precision__scaled=1)
        | measured(precision__scale=(STEPS, np.full(128, 65536.0)))),
    row("clipped after it was unscaled", "", checks(replay__norm=np.full(3, 0.1), replay__ratio=np.full(3, 0.33),
        precision__scaled=1) | measured(precision__scale=(STEPS, np.full(128, 65536.0)))),
    row("micro-batches are added", "accumulation.sum",
        checks(replay__micro_batches=np.full(3, 4.0), replay__ratio=np.full(3, 4.0), accumulation__micro_batches=4)),
    row("micro-batches are averaged", "",
        checks(replay__micro_batches=np.full(3, 4.0), accumulation__micro_batches=4)),
    row("only the last micro-batch counts", "accumulation.short-window",
        checks(replay__last_cosine=np.ones(3), replay__cosine=np.full(3, 0.5), replay__micro_batches=np.full(3, 4.0))),
    row("one micro-batch is all there is", "", checks(replay__last_cosine=np.ones(3))),
    row("a short last window", "accumulation.short-window",
        checks(accumulation__micro_batches=([0, 30, 31], [4, 2, 4]))),
    row("always four", "", checks(accumulation__micro_batches=([0], [4]))),
    # checkpoint
    row("moments are lost", "checkpoint.optimizer-lost", checks(checkpoint__optimizer=1, checkpoint__step=1)),
    row("the average is lost", "checkpoint.average-lost", checks(checkpoint__average=1)),
    row("weights are rounded", "checkpoint.not-exact", checks(checkpoint__model=0.5, checkpoint__step=1)),
    row("something else is missing", "checkpoint.not-exact", checks(checkpoint__step=1)),
    row("gradients that are carried over are in no checkpoint", "optimizer.no-zero-grad",
        checks(checkpoint__step=1, sentinel__carried=np.ones(128))),
    # sampler
    row("noise after the last step", "sampler.last-noise", checks(sampler__left=0.1)),
    row("begins late", "sampler.starts-late", checks(sampler__first=0.5, sampler__left=0.4)),
    row("leading spacing", "", checks(sampler__first=0.95)),
    row("cut off", "sampler.clipped", checks(sampler__left=0.2, sampler__largest=0.5, sampler__at_limit=0.4,
        sampler__scale=0.8)),
    row("right for another table", "sampler.other-schedule", checks(sampler__left=0.4, sampler__right_for_table=1)),
    row("right for another type", "sampler.other-type", checks(sampler__left=4.0, sampler__right_for_type=1)),
    row("misses", "sampler.wrong", checks(sampler__left=2.0, sampler__path=3.0)),
    row("never asks the network", "sampler.wrong",
        without("check/sampler") | checks(sampler__finite=1, sampler__calls=0, sampler__left=1.4), whole=True),
    row("samples that are not finite", "sampler.wrong", checks(sampler__finite=0)),
    row("samples in [0, 1]", "", checks(sampler__scale=0.5, sampler__shift=0.5)),
    row("a narrower cloud of few steps", "", checks(sampler__cloud_spread=0.75)),
    row("with gradients", "system.sampling-with-gradients", checks(sampler__with_gradients=1)),
    # generalisation
    row("copies", "generalisation.copies", measured(copies__share=([31, 127], [0, 0.08]),
        copies__chance=([31, 127], [1, 1e-6]))),
    row("a chance that many looks make likely", "", measured(copies__share=([31, 63, 127], [0, 0, 0.02]),
        copies__chance=([31, 63, 127], [1, 1, 0.002]))),
    row("eight images", "generalisation.overfitting", checks(stream__different=([0, 127], [8, 8]))),
    row("forty images", "", checks(stream__different=([0, 127], [8, 40]))),
    row("too early to say that there are few", "",
        checks(stream__different=([0, 16], [8, 8]), stream__drawn=([0, 16], [8, 128]))),
    row("held-out images become worse", "generalisation.held-out", probed([.5, .3, .2, .1], [.5, .32, .3, .36],
        [0, 2, 6, 12])),
    row("held-out images that are harder", "", probed([.5, .3, .2, .1], [.6, .45, .35, .3], [9, 9, 9, 9])),
    row("both become worse", "", probed([.5, .3, .2, .3], [.5, .32, .3, .44], [0, 2, 6, 9])),
    row("a rise that chance could have made", "", probed([.5, .3, .2, .1], [.5, .32, .3, .36], [0, 1, 2, 3.5])),
    row("worse, and then better", "generalisation.held-out", probed([.5, .2, .1, .2], [.5, .25, .3, .21],
        [0, 4, 12, 1])),
    row("classes never come", "generalisation.missing-modes", LABELS | checks(stream__shown_kinds=7)),
    row("classes have not come yet", "", LABELS | checks(stream__shown_kinds=7, stream__labels_drawn=400)),
    # distributed
    row("all processes agree", "", rolled(drift=0, same_noise=0, overlap=0)),
    row("one process drifts", "distributed.drift", measured(distributed__drift=(ROLLS, [0, 0, 1, 1]))),
    row("a drift that was mended", "distributed.drift", measured(distributed__drift=(ROLLS, [0, 2, 0, 0]))),
    row("two processes with one seed", "distributed.same-noise", rolled(same_noise=1)),
    row("all processes have the same rows", "distributed.overlap", rolled(overlap=1)),
    row("a straggler", "distributed.straggler", rolled(slowest=2.4, waiting=0.4, seconds__00=0.1, seconds__01=0.3)),
    row("slow for two looks", "",
        rolled(waiting=0.4) | measured(distributed__slowest=(ROLLS, [2.4, 2.4, 1.1, 1.1]))),
    row("slow, and nobody waits", "", rolled(slowest=2.4, waiting=0.05)),
    row("a slow network", "", rolled(slowest=1.1, waiting=0.6)),
    # system
    row("starved", "system.starved-loader", measured(speed__data_wait=(WAITS,
        [0.01, 0.01, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6]))),
    row("a slow start", "", measured(speed__data_wait=(WAITS, [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.1, 0.1]))),
]  # fmt: skip


def case_of(given: Row) -> RunHistory:
    series = given.series if given.whole else HEALTHY | given.series
    config: Config | None = resolve(preset="digits", settings=given.settings) if given.settings else None
    return RunHistory(InMemoryReadings(series, given.events), config)
