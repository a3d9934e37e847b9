"""What an optimizer holds, and should: the network, its adapters, and nothing that is frozen."""

from __future__ import annotations

from safelight import checks
from safelight.diagnosis.rule import Detection, error_rule, on_count, on_latest, warning_rule
from safelight.diagnosis.run_history import RunHistory

BASE = 0.1  # of the network: norms and the like are less


def missing_parameters(run: RunHistory) -> Detection | None:
    share = run.latest(checks.OPTIMIZER_MISSING, 0.0)
    if not 0 < share < 1:
        return None
    return Detection(
        0,
        f"{share:.1%} of the network requires gradients and is not in the optimizer: "
        f"{run.named_parameters('missing')}.",
        (run.evidence(checks.OPTIMIZER_MISSING, "0"),),
        ("parts that are frozen on purpose: they do not require a gradient",),
    )


RULES = (
    error_rule(
        "OPT003",
        "optimizer.other-parameters",
        "An optimizer of another model",
        what="The optimizer holds none of the model's parameters.",
        why="This model is not trained.",
        fix="Make the optimizer after the model was copied, moved or wrapped, from its parameters().",
        needs=(checks.OPTIMIZER_MISSING,),
        detect=on_latest(
            {checks.OPTIMIZER_MISSING: "0", checks.OPTIMIZER_FOREIGN: "0"},
            lambda missing, foreign: not missing < 1 or (missing > 0 and foreign > 0),
            lambda missing, foreign: (
                f"The optimizer lacks {missing:.0%} of what the model trains and holds parameters that are not the "
                "model's: it trains another model, a copy, or a layer that was replaced."
                if foreign > 0
                else "The optimizer holds parameters of the model, but none that require a gradient: those that do "
                "were added or unfrozen after it was made."
            ),
            step=0,
        ),
        explained_by="optimizer.adapters-missing",
    ),
    warning_rule(
        "OPT004",
        "optimizer.missing-parameters",
        "Parameters that no optimizer holds",
        what="Parts of the network require gradients and are in no group of the optimizer.",
        why="They stay as they were initialised.",
        similar="Parts that are frozen on purpose do not require gradients.",
        limits="A second optimizer that is not passed.",
        fix="Give the optimizer all parameters that require gradients, or freeze the others.",
        needs=(checks.OPTIMIZER_MISSING,),
        detect=missing_parameters,
        explained_by="optimizer.other-parameters optimizer.adapters-missing",
    ),
    error_rule(
        "OPT012",
        "optimizer.adapters-missing",
        "Adapters that no optimizer holds",
        what="Adapters of low rank require gradients and are in no group of the optimizer.",
        why="They stay as they were made: their output is 0, and the network is the one without adapters.",
        similar="Adapters whose matrices are both 0 are in the optimizer, and have no gradient.",
        limits="Adapters that neither their names nor their classes tell.",
        fix="Make the optimizer after the adapters were added, from all parameters that require a gradient.",
        needs=(checks.ADAPTER_MISSING,),
        detect=on_latest(
            {checks.ADAPTER_MISSING: "0"},
            lambda share: share > 0,
            "{:.0%} of the adapters are in no optimizer, and are never trained: it was made before they were added, or "
            "without them.",
            step=0,
        ),
    ),
    warning_rule(
        "OPT009",
        "optimizer.base-trained",
        "The network beside its adapters is trained",
        what="Adapters of low rank are in the network, and the weights that they adapt are trained as well.",
        why="The adapters alone, which are saved, do not hold what was learnt.",
        similar="A few layers that are trained beside adapters, such as norms, are a choice.",
        limits="Adapters whose names do not say so.",
        fix="requires_grad_(False) on the network before adapters are added, and pass only what is left to the "
        "optimizer.",
        needs=(checks.ADAPTER_BASE_TRAINED,),
        detect=on_latest(
            {checks.ADAPTER_BASE_TRAINED: "below 0.1"},
            lambda share: share > BASE,
            "{:.0%} of the network beside its adapters requires a gradient and is trained with them.",
            step=0,
        ),
    ),
    error_rule(
        "OPT010",
        "optimizer.adapter-dead",
        "Adapters that cannot learn",
        what="Both matrices of an adapter are 0.",
        why="Each of them is multiplied by the other: neither has a gradient, ever.",
        similar="Usually the second one is 0, and the first is not.",
        fix="Initialise the first matrix by random numbers and only the second one by zeros.",
        needs=(checks.ADAPTER_DEAD,),
        detect=on_latest(
            {checks.ADAPTER_DEAD: "0"},
            lambda share: share > 0,
            "{:.0%} of the adapters have two matrices of zeros: they have no gradient and stay so.",
            step=0,
        ),
    ),
    warning_rule(
        "OPT011",
        "optimizer.frozen-changed",
        "Weights that are not trained have changed",
        what="Weights that require no gradient are not what they were when the watch began.",
        why="What is frozen is not saved with adapters, and not expected to differ.",
        similar="Buffers, such as the statistics of batch norm, may change.",
        fix="Look for what writes to them: an EMA that is copied into the model, a merge of adapters, a cast.",
        needs=(checks.FROZEN_CHANGED,),
        detect=on_count(
            checks.FROZEN_CHANGED,
            1,
            "Weights that are not trained were changed, as seen at {} looks.",
            "swapped weights that were put back: they would be the same again",
        ),
    ),
)
