"""Networks in the wrong mode: evaluation while training, training while sampling."""

from __future__ import annotations

from safelight import checks
from safelight.diagnosis.finding import Fix
from safelight.diagnosis.rule import error, on_episode, on_latest
from safelight.diagnosis.run_history import Episode, RunHistory


def eval_in_training(run: RunHistory) -> Episode | None:
    if run.latest(checks.NETWORK_DEPENDS_ON_MODE, 0.0) != 1:
        return None
    return run.episode(checks.MODE_TRAINING, lambda numbers: numbers == 0)


RULES = (
    error("MDE001", "mode.eval-in-training", "Trained in evaluation mode")(
        what="The model is in eval() while it is trained, and has layers for which that matters.",
        why="Dropout does nothing, and batch norm keeps statistics that no longer fit.",
        similar="Networks without such layers are not affected.",
        limits="Single modules in the wrong mode.",
        fix="model.train() after every validation and every round of samples.",
        default_fix=Fix("", {}, "safe"),
        needs=(checks.MODE_TRAINING, checks.NETWORK_DEPENDS_ON_MODE),
        detect=on_episode(
            eval_in_training,
            "The network was trained in evaluation mode for {episode.looks:,} steps: dropout or batch norm was off.",
            "a network without such layers: both modes are the same for it",
            evidence={checks.MODE_TRAINING: "1"},
        ),
    ),
    error("MDE002", "mode.train-in-sampling", "Sampled in training mode")(
        what="The sampler switches the network to train().",
        why="Dropout stays on: noisy samples that differ from call to call.",
        limits="Samplers that leave the mode as it is, and are given a network in training mode.",
        fix="model.eval() before sampling, and back afterwards.",
        needs=(checks.SAMPLER_IN_TRAINING,),
        detect=on_latest(
            {checks.SAMPLER_IN_TRAINING: "0"},
            lambda flag: flag == 1,
            "The sampler puts the network into training mode: with dropout its samples are noisy.",
        ),
    ),
)
