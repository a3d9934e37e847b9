"""Losses that are not finite, or not of this prediction."""

from __future__ import annotations

from safelight import checks
from safelight.diagnosis.rule import AtLeast, error_rule, first_of, on_episode, on_latest, warning_rule
from safelight.diagnosis.rules.loss.divergence import WINDOW, diverged
from safelight.diagnosis.rules.loss.finite import nonfinite, weight_nonfinite
from safelight.diagnosis.rules.loss.gradient import (
    MIN_STEPS,
    below_zero,
    detached,
    few_decide,
    opposite,
    unrelated,
    weights_of_zero,
)
from safelight.diagnosis.spacing import LogNeed
from safelight.vocabulary import GRADIENT_NORM, LOSS

RULES = (
    error_rule(
        "LOS001",
        "loss.nonfinite",
        "A loss or gradient that is not finite",
        what="NaN or infinity in the loss or in a gradient. Safelight's own trainer refuses such an update.",
        why="One such update makes every weight NaN; refused updates are steps that were not trained.",
        similar="fp16 overflows on purpose while it searches for its loss scale; those are not counted (PRE001 reports "
        "them if they never end). A NaN in the data comes back whenever that image is drawn: compare the samples of "
        "the events.",
        limits="Values that are finite and far too large.",
        fix="Check the images and timesteps that the event names. If it happens at random steps, lower the learning "
        "rate, lengthen the warm-up or clip gradients by their norm; in fp16, use bf16. In a loss or layer of your "
        "own, look for log(0), a division by zero and the root of 0.",
        detect=nonfinite,
        logs=LogNeed(),
        explained_by="data.nonfinite loss.weight loss.diverged lr. model. scale. precision. optimizer. forward. "
        "target. timesteps. schedule.",
    ),
    error_rule(
        "LOS002",
        "loss.detached",
        "No gradient anywhere",
        what="The gradient of every parameter is exactly zero, or missing.",
        why="Nothing is learnt.",
        similar="With optimizer.no-update (OPT001) there are gradients and the weights do not follow them. Gradients "
        "that are cleared before the update did come out of the backward pass.",
        limits="A loss that reaches the network through a meaningless path.",
        fix="Look for detach(), no_grad() or .data between the network and the loss, and for a missing backward().",
        needs=((AtLeast(GRADIENT_NORM, MIN_STEPS + 1), checks.REPLAY_GRADIENT_NORM),),
        detect=detached,
        logs=LogNeed(),
        explained_by="model.zero-init model.frozen model.bounded optimizer.other loss.not-of optimizer.zeroed "
        "distributed.not-reduced",
    ),
    error_rule(
        "LOS003",
        "loss.sign",
        "The sign of the loss is reversed",
        what="The gradient is opposite to that of the squared error of the same prediction.",
        why="Every update makes predictions worse.",
        similar="An optimizer that maximises gets the right gradient and goes the wrong way.",
        fix="Minimise the loss: no minus in front of it.",
        needs=((checks.REPLAY_COSINE, AtLeast(LOSS, 4 * MIN_STEPS)),),
        detect=first_of(
            on_episode(
                opposite,
                "The gradient is opposite to that of the error: the training makes predictions worse.",
                "an optimizer that maximises: it gets the right gradient",
                evidence={checks.REPLAY_COSINE: "above 0.5"},
            ),
            below_zero,
        ),
        logs=LogNeed(),
    ),
    error_rule(
        "LOS004",
        "loss.weight-nonfinite",
        "A loss that is not finite by itself",
        what="Prediction and target are finite, and the loss is not.",
        why="One such step would make every weight NaN.",
        similar="Networks that overflow give predictions that are not finite.",
        limits="Loops that do not pass prediction and target. A weight so rare that it comes once in a run.",
        fix="Cap the weights: 1 / SNR is infinite where no signal is left. In a loss of your own, look for log(0) and "
        "a division by zero, and add a small number.",
        needs=(checks.NONFINITE["loss"],),
        detect=weight_nonfinite,
        explained_by="precision.transient lr. clipping. optimizer. data.nonfinite loss.sign",
    ),
    error_rule(
        "LOS005",
        "loss.shape",
        "Prediction and target of different shapes",
        what="The loss broadcasts one against the other.",
        why="Every prediction is compared with every target: the best prediction is their mean.",
        fix="Make both [batch, channels, height, width]; look for a squeeze().",
        needs=(checks.LOSS_SAME_SHAPE,),
        detect=on_latest(
            {checks.LOSS_SAME_SHAPE: "1"},
            lambda flag: flag == 0,
            "Prediction and target have different shapes: the loss compares each with all by broadcasting.",
        ),
    ),
    error_rule(
        "LOS006",
        "loss.not-of-prediction",
        "A gradient of something else",
        what="The gradient is unrelated to that of the squared error of this prediction and this target.",
        why="The network learns something else than what is monitored.",
        similar="L1, Huber and weighted losses point in nearly the same direction.",
        limits="Losses that are added to the right one.",
        fix="Compare what goes into the loss with what goes into the model: batches, targets, masks.",
        needs=(checks.REPLAY_COSINE, checks.APPLIED_GRADIENT_NORM, checks.REPLAY_GRADIENT_NORM, checks.REPLAY_MSE),
        detect=on_episode(
            unrelated,
            "The gradient that the optimizer gets is unrelated to this prediction and this target.",
            evidence={checks.REPLAY_COSINE: "above 0.5"},
        ),
        explained_by="accumulation.short loss.shape loss.sign optimizer.no-zero target. data.nonfinite precision. "
        "model.bounded model.zero-init",
    ),
    warning_rule(
        "LOS008",
        "loss.weighting",
        "Weights that ignore most of the batch",
        what="The loss weighs a few timesteps so much that they decide every update.",
        why="All other noise levels are hardly trained, and updates are as noisy as those of a batch of one.",
        similar="min-SNR weights stay within a factor of the usual.",
        limits="Wrong weights that are mild.",
        fix="Cap the weights: min(SNR, 5), divided by SNR for epsilon and by SNR + 1 for v.",
        needs=((checks.ANSWER_UNHEARD, checks.LOSS_REPORTED, checks.REPLAY_COSINE),),
        detect=first_of(weights_of_zero, few_decide),
        explained_by="loss.sign loss.not-of loss.weight-nonfinite target. loss.shape precision. optimizer. timesteps. "
        "forward.",
    ),
    error_rule(
        "LOS007",
        "loss.diverged",
        "A training that diverges",
        what="The error is several times that of a model that always predicts 0, and had been far better; or the loss "
        "is ten times what it was at first, and targets that the network makes itself have grown with it.",
        why="Weights grow without bound.",
        similar="A single spike is over within a few steps. Images of another range raise the loss as well.",
        limits="A rise that stays below the zero predictor. By the loss alone: less than ten times the first loss.",
        fix="Return to the last good checkpoint, lower optimizer.lr, lengthen optimizer.warmup.",
        needs=((AtLeast(checks.LOSS_MSE, 3 * WINDOW), AtLeast(LOSS, 4 * WINDOW)),),
        detect=diverged,
        logs=LogNeed(),
        explained_by="*",
    ),
)
