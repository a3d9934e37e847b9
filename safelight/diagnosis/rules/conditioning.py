"""Labels that do not reach the network, or carry no information, and wrong guidance."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.budget import RATE, bound
from safelight.diagnosis.finding import Fix
from safelight.diagnosis.rule import (
    AtLeast,
    CountAtLeast,
    Detection,
    error_rule,
    first_of,
    on_episode,
    on_latest,
    warning_rule,
)
from safelight.diagnosis.run_history import FIRST_RESPONSIVE_UPDATE, RunHistory, episode_of

SHOWN = (
    checks.STREAM_SHOWN_KINDS,
    checks.NETWORK_LABEL_ROWS,
    checks.STREAM_SHOWN_LOWEST,
    checks.STREAM_SHOWN_HIGHEST,
    checks.STREAM_LABELS_DRAWN,
)
"""Labels shown to the network, rows of its embedding, the lowest and highest label shown, draws."""
KINDS = "as many as there are classes"
ANY_SHOWN = (checks.STREAM_SHOWN_KINDS, checks.STREAM_RECENT_KINDS, checks.STREAM_LABELS_HIDDEN)
MAX_DROPPED_LABELS = 0.7  # of the labels: a tenth to a half is dropped on purpose
MIN_DRAWS = 400  # draws without the null label: with 5 % of labels dropped, chance has 1e-9
MANY_DRAWS = 600  # of one class alone
LATE_STEP = 60  # steps
LEARNT_ERROR_SHARE = 0.6  # share of the zero predictor's loss
SMALL_LOSS_CHANGE = 0.05  # share of the loss
MIN_LOOKS = 6
BELONG = 3.0  # deviations of chance, of all looks together
ALIKE = 3  # looks at which images of one label were alike
BATCHES = 8  # in a row, where an occasional one may be without a condition
STRONG_RESPONSE = 0.05  # of the output, when all conditions are exchanged
GUIDANCE_TOLERANCE = 1e-3  # where predictions lie a tenth apart, and the arithmetic is in single precision
PLAIN_EFFECT = 5.0  # the same of a single look, where labels clearly belong
FADED_EFFECT_SHARE = 0.25  # share of it that may be chance


ignored = on_episode(
    lambda run: run.no_response(checks.NETWORK_LABEL_RESPONSE, checks.RESPONSE["labels"]),
    "The output does not change when every label is exchanged, even after a few updates.",
    "a zero output layer: updates have moved it",
    latest={checks.NETWORK_LABEL_RESPONSE: "above 0.01", checks.RESPONSE["labels"]: "above 0.001"},
)


def conditions_ignored(run: RunHistory) -> Detection | None:
    """Exact, after updates have moved layers of zeros: no condition of another sample changes the answer."""
    steps, responses = run.series(checks.RESPONSE["conditions"])
    late = steps >= FIRST_RESPONSIVE_UPDATE
    episode = episode_of(steps[late], responses[late] == 0, 2)
    if episode is None or episode.ended_at is not None:
        return None
    return Detection(
        episode.first,
        "The output is the same, to the last bit, when text, observations or other conditions of all samples are "
        "exchanged.",
        run.evidence_of({checks.RESPONSE["conditions"]: "above 0.001", checks.CONDITIONS_COUNT: None}),
        ("a zero output layer: updates have moved it",),
    )


def conditions_empty(run: RunHistory) -> Detection | None:
    """Exact: a wide condition was 0 for every sample of every batch that was looked at."""
    steps, shares = run.series(checks.CONDITIONS_EMPTY)
    if len(steps) < BATCHES or not (shares > 0).all():
        return None
    return Detection(
        int(steps[0]),
        f"Of the tensors that condition the network, {float(shares[-1]):.0%} of the wide ones hold nothing but zeros, "
        f"in all of {len(steps):,} batches.",
        run.evidence_of({checks.CONDITIONS_EMPTY: "0", checks.CONDITIONS_COUNT: None}),
        ("conditions that are dropped now and then: every batch was without",),
        severity="warning",
        fix=Fix("Check what the encoder returns, and the comparison with the share that is dropped."),
    )


def conditions_constant(run: RunHistory) -> Detection | None:
    """All conditions are the same for all samples: wrong where labels differ, a choice where one prompt is trained."""
    steps, shares = run.series(checks.CONDITIONS_CONSTANT)
    if len(steps) < BATCHES or not (shares == 1).all():
        return None
    differ = run.latest(checks.STREAM_LABELS_KINDS, 1.0) > 1
    return Detection(
        int(steps[0]),
        f"Every sample of a batch is shown the same condition, in all of {len(steps):,} batches"
        + (", though their labels differ." if differ else ": right for one prompt, wrong for anything else."),
        run.evidence_of({checks.CONDITIONS_CONSTANT: "below 1", checks.STREAM_LABELS_KINDS: None}),
        severity="warning" if differ else "info",
        fix=Fix("Check how conditions are gathered for a batch: one row for each sample."),
    )


def conditions_unhelpful(run: RunHistory) -> Detection | None:
    """As for labels. The answer depends strongly on what helps nothing: a network that was told little would not."""
    steps, gains = run.series(checks.CONDITIONS_GAIN)
    errors, losses = (run.at(check, steps) for check in (checks.CONDITIONS_GAIN_ERROR, checks.CONDITIONS_ERROR))
    responses = run.at(checks.RESPONSE["conditions"], steps, 0.0)
    late = np.flatnonzero((steps >= LATE_STEP) & (responses > STRONG_RESPONSE))
    learnt = run.latest(checks.LOSS_MSE, 1.0) < LEARNT_ERROR_SHARE * run.latest(checks.LOSS_ZERO_MSE, 0.0)
    if len(late) < 2 or not learnt or len(run.steps(checks.LABELS_GAIN)):
        return None
    certain = bound("labels that help nothing", len(late) - 1, 1)
    if not _is_nothing(gains[late], errors[late], losses[late], certain, SMALL_LOSS_CHANGE):
        return None
    return Detection(
        int(steps[late[-1]]),
        "The network uses its conditions, and those of other samples would serve it as well as the right ones: they do "
        "not belong to their images.",
        (run.evidence(checks.CONDITIONS_GAIN, "above 0"), run.evidence(checks.CONDITIONS_GAIN_ERROR)),
        ("conditions that are ignored: the output does change with them",),
        confidence=1 - RATE,
    )


def never_dropped(run: RunHistory) -> Detection | None:
    kinds, rows, low, high, drawn = map(run.latest, SHOWN)
    if run.latest(checks.STREAM_NULL_TRAINED, 0.0) == 1:
        return None  # dropped inside of the network
    unused = (high == rows - 2 and low == 0) or (low == 1 and high == rows - 1)
    if not (unused and kinds == rows - 1 >= 2 and drawn >= MIN_DRAWS):
        return None
    return Detection(
        0,
        f"The label embedding has {rows:.0f} rows, and {kinds:.0f} of them were used in {drawn:,.0f} draws: the row "
        "for the null label is never trained, and guidance would compare with noise.",
        (run.evidence(checks.STREAM_SHOWN_KINDS, f"{rows:.0f}"), run.evidence(checks.NETWORK_LABEL_ROWS)),
        confidence=0.999,
        # Without a row 0 labels may as well be counted from 1, and no guidance be meant.
        severity="info" if low == 1 else None,
    )


def always_dropped(run: RunHistory) -> Detection | None:
    kinds, rows, _, high, drawn = map(run.latest, SHOWN)
    kinds, high = run.latest(checks.STREAM_RECENT_KINDS, kinds), run.latest(checks.STREAM_RECENT_HIGHEST, high)
    hidden = run.episode(checks.STREAM_LABELS_HIDDEN, lambda shares: shares > MAX_DROPPED_LABELS)
    if not drawn >= 64 or not ((kinds == 1 and rows > 2 and high == rows - 1) or (hidden and hidden.ended_at is None)):
        return None
    one = run.episode(checks.STREAM_RECENT_KINDS, lambda numbers: numbers == 1)
    return Detection(
        hidden.first if hidden is not None else 0 if one is None or one.first < 2 else one.first,
        f"The network is shown the label {high:.0f} only, which is the null label: it learns nothing about classes."
        if kinds == 1
        else f"{run.latest(checks.STREAM_LABELS_HIDDEN):.0%} of the samples are shown to the network without their "
        "label.",
        run.evidence_of({checks.STREAM_RECENT_KINDS: KINDS, checks.STREAM_LABELS_HIDDEN: None}),
    )


def _is_one_class(kinds: float, rows: float, low: float, high: float, drawn: float) -> bool:
    one = kinds == 1 and low != rows - 1
    with_null = kinds == 2 and high == rows - 1
    return drawn >= MANY_DRAWS and rows >= 3 and (one or with_null)


def _is_nothing(gains: np.ndarray, errors: np.ndarray, losses: np.ndarray, certain: float, small: float) -> bool:
    """An equivalence test: anything larger than a small share of the loss would have been seen."""
    weights = 1 / np.square(np.maximum(errors, 1e-12))
    mean, spread = float((gains * weights).sum() / weights.sum()), float(weights.sum() ** -0.5)
    return mean <= 2 * spread and mean + certain * spread <= small * float(np.median(losses))


moved = on_episode(  # exact: the dataset has the labels
    lambda run: run.episode(checks.ROWS_LABELS_MOVED, lambda shares: shares > 0),
    lambda run, episode: (
        f"From step {episode.first:,} on, {float(run.numbers(checks.ROWS_LABELS_MOVED).max()):.0%} of the labels in a "
        "batch are those of other images."
    ),
    "labels that are dropped on purpose: they are not counted",
    evidence={checks.ROWS_LABELS_MOVED: "0"},
)


def faded(run: RunHistory) -> Detection | None:
    """Images of one label were alike, and from some look on they are no more alike than others."""
    steps, similar = run.series(checks.LABELS_EXPLAIN)
    usual = np.flatnonzero(similar > PLAIN_EFFECT)
    if len(usual) < ALIKE:
        return None
    first, level = int(usual[-1]) + 1, float(np.median(similar[usual]))
    late = similar[first:]
    if len(late) < 2 or not (late < FADED_EFFECT_SHARE * level).all() or float(late.sum()) > BELONG * len(late) ** 0.5:
        return None
    return Detection(
        (since := int(steps[first])),
        f"Images of one label were alike, {level:.1f} deviations beyond chance; from step {since:,} on they are no "
        f"more alike than images of any labels ({float(late.mean()):.1f}).",
        (run.evidence(checks.LABELS_EXPLAIN, f"{level:.1f}"),),
        ("images that are all alike: labels are compared with a random permutation of them",),
        confidence=1 - RATE,
    )


def _belong(run: RunHistory, since: int) -> bool:
    """Whether images of one label are alike, whatever the network has learnt of it."""
    steps, similar = run.series(checks.LABELS_EXPLAIN)
    recent = similar[steps >= since]
    return len(recent) > 0 and float(recent.sum()) > BELONG * len(recent) ** 0.5


def _are_unrelated(run: RunHistory) -> bool:
    """Whether at many looks images of one label were no more alike than others."""
    similar = run.numbers(checks.LABELS_EXPLAIN)
    return len(similar) >= MIN_LOOKS and abs(float(similar.sum())) < 2 * len(similar) ** 0.5


def unhelpful(run: RunHistory) -> Detection | None:
    """Paired over the samples of a batch: the error with true labels and with those of others, unless the images show
    that the labels belong to them and the network has not learnt it yet."""
    steps, gains = run.series(checks.LABELS_GAIN)
    errors, losses = run.at(checks.LABELS_GAIN_ERROR, steps), run.at(checks.LABELS_ERROR, steps)
    late = np.flatnonzero(steps >= LATE_STEP)
    learnt = run.latest(checks.LOSS_MSE, 1.0) < LEARNT_ERROR_SHARE * run.latest(checks.LOSS_ZERO_MSE, 0.0)
    if len(late) < 2 or not learnt or ignored(run) is not None:
        return None
    windows = late, late[-3:], late[-2:]
    certain = bound("labels that help nothing", len(late) - 1, len(windows))
    small = 2 * SMALL_LOSS_CHANGE if _are_unrelated(run) else SMALL_LOSS_CHANGE
    nothing = [last for last in windows if _is_nothing(gains[last], errors[last], losses[last], certain, small)]
    if not nothing or all(_belong(run, int(steps[last[0]])) for last in nothing):
        return None
    return Detection(
        int(steps[-1]),
        "The network uses the labels, and the right ones help it no more than those of other samples: they do not "
        "belong to their images.",
        (run.evidence(checks.LABELS_GAIN, "above 0"), run.evidence(checks.LABELS_GAIN_ERROR)),
        ("labels that are ignored: the output does change with them",),
        confidence=1 - RATE,
    )


RULES = (
    error_rule(
        "CON001",
        "conditioning.ignored",
        "Labels do not reach the output",
        what="The output stays the same, to the last bit, whatever the labels.",
        why="All classes look alike.",
        similar="Labels that belong to other images do change the output.",
        limits="A single one of several conditions.",
        fix="Add the label's embedding to that of the timestep, and look for a multiplication by zero or a detach().",
        needs=((checks.NETWORK_LABEL_RESPONSE, checks.RESPONSE["labels"], checks.RESPONSE["conditions"]),),
        detect=first_of(ignored, conditions_ignored),
        explained_by="model.zero-init model.bounded model.dead",
    ),
    warning_rule(
        "CON002",
        "conditioning.never-dropped",
        "Labels are never dropped",
        what="The network has a row for the null label, which no sample ever used.",
        why="Guidance subtracts the prediction for the null label: here that of random weights.",
        similar="An embedding without such a row is not meant for guidance.",
        limits="Where row 0 is the unused one, labels may be counted from 1: that is a remark.",
        fix="Replace a tenth of the labels by the null label while training.",
        needs=(*SHOWN[:-1], CountAtLeast(checks.STREAM_LABELS_DRAWN, MIN_DRAWS, "samples with labels")),
        detect=never_dropped,
        explained_by="conditioning.one-class data.not-shuffled",
    ),
    error_rule(
        "CON003",
        "conditioning.always-dropped",
        "Labels are always dropped",
        what="Every sample is shown to the network without its label.",
        why="The model is unconditional, and guidance has no effect.",
        similar="With one class only, the class itself is shown.",
        fix="Drop a tenth of the labels, not all of them: check the comparison with the drop rate.",
        limits="Text, observations and the like: only where they are zeros (a warning), or the same for all samples (a "
        "remark, and a warning where labels are passed that differ).",
        needs=((*ANY_SHOWN, AtLeast(checks.CONDITIONS_EMPTY, BATCHES), AtLeast(checks.CONDITIONS_CONSTANT, BATCHES)),),
        detect=first_of(always_dropped, conditions_empty, conditions_constant),
    ),
    error_rule(
        "CON004",
        "conditioning.one-class",
        "One class only",
        what="All samples have the same label.",
        why="The other classes are never learnt.",
        similar="Images in the order of their classes show another one sooner or later.",
        limits="Very large classes in order.",
        fix="Check the sampler's weights and the shuffling.",
        needs=(*SHOWN[:-1], CountAtLeast(checks.STREAM_LABELS_DRAWN, MANY_DRAWS, "samples with labels")),
        detect=on_latest(
            {checks.STREAM_SHOWN_KINDS: KINDS},
            _is_one_class,
            "All {4:,.0f} samples had the same class, of {1:.0f} that the network knows.",
            "classes in order: in so many samples another one would have come",
            also=SHOWN[1:],
            step=0,
            confidence=0.99,
        ),
    ),
    warning_rule(
        "CON005",
        "conditioning.permuted",
        "Labels of other images",
        what="True labels help the network no more than exchanged ones, though it uses them; or images of one label "
        "were alike, and are no longer.",
        why="For any class the model draws images of all classes.",
        similar="Labels that are ignored do not change the output at all.",
        limits="A part of the labels; labels that are renamed as a whole.",
        fix="Check where images and labels are joined: both must be shuffled by the same order.",
        needs=(
            (
                checks.ROWS_LABELS_MOVED,
                AtLeast(checks.LABELS_GAIN, 2, LATE_STEP),
                AtLeast(checks.LABELS_EXPLAIN, ALIKE + 2),
                AtLeast(checks.CONDITIONS_GAIN, 2, LATE_STEP),
            ),
        ),
        detect=first_of(moved, faded, unhelpful, conditions_unhelpful),
        explained_by="conditioning. data.not-shuffled optimizer. loss. target. lr. model. forward. timesteps. data. "
        "scale.",
    ),
    error_rule(
        "CON006",
        "conditioning.guidance",
        "A wrong formula of guidance",
        what="The guided prediction is not on the line through those with and without a label.",
        why="Labels steer samples the wrong way, or not at all.",
        similar="Labels that the network ignores leave guidance without effect.",
        limits="Loops that are not ours.",
        fix="unconditional + scale · (conditional − unconditional).",
        needs=(checks.SAMPLER_GUIDANCE,),
        detect=on_latest(
            {checks.SAMPLER_GUIDANCE: "0"},
            lambda error: not error <= GUIDANCE_TOLERANCE,
            "Guidance of 0 is not the prediction without a label, or guidance of 1 not that with it.",
        ),
    ),
)
