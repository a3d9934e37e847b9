"""Networks in the wrong mode: evaluation while training, training while sampling."""

from __future__ import annotations

from safelight.diagnosis.case import Case
from safelight.diagnosis.finding import Fix
from safelight.diagnosis.rule import Rule, Seen


def look_eval(case: Case) -> Seen | None:
    spell = case.spell("mode/training", lambda numbers: numbers == 0)
    if spell is None or case.newest("network/depends_on_mode", 0.0) != 1:
        return None
    return Seen(
        spell.first,
        f"The network was trained in evaluation mode for {spell.looks:,} steps: its dropout or batch norm was off.",
        (case.evidence("mode/training", "1", spell.last),),
        ("a network without such layers: for it both modes are the same",),
        over=spell.over,
    )


def look_train(case: Case) -> Seen | None:
    if case.newest("sampler/in_training", 0.0) != 1:
        return None
    return Seen(
        case.asked("sampler/in_training"),
        "The sampler puts the network into training mode: with dropout its samples are noisy.",
        (case.evidence("sampler/in_training", "0"),),
    )


RULES = (
    Rule(
        code="MDE001",
        cause="mode.eval-in-training",
        title="Trained in evaluation mode",
        what="The model is in eval() while it is trained, and has layers for which that matters.",
        why="Dropout does nothing, and batch norm keeps statistics that no longer fit.",
        alike="Networks without such layers do not care.",
        misses="Single modules in the wrong mode.",
        fix="model.train() after every validation and every round of samples.",
        cure=Fix("", {}, "safe"),
        look=look_eval,
    ),
    Rule(
        code="MDE002",
        cause="mode.train-in-sampling",
        title="Sampled in training mode",
        what="The sampler switches the network to train().",
        why="Dropout stays on: noisy samples that differ from call to call.",
        alike="",
        misses="Samplers that leave the mode as it is, and are given a network in training mode.",
        fix="model.eval() before sampling, and back afterwards.",
        look=look_train,
    ),
)
