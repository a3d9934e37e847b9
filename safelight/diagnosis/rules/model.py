"""Parts of the network that do not learn."""

from __future__ import annotations

from safelight.diagnosis.case import Case
from safelight.diagnosis.finding import Evidence, Finding, Fix
from safelight.diagnosis.rule import Rule
from safelight.vocabulary import GRADIENT_NORM, GRADIENT_PART

ENOUGH = 8  # steps: an output layer of zeros sends no gradient down in the first step, and a little in the second


def look_dead_part(case: Case) -> Finding | None:
    """Exact: the gradient of a whole part is zero, to the last bit, at every step but the first ones."""
    steps, norms = case.series(GRADIENT_NORM.name)
    if len(steps) < ENOUGH + 1 or not (norms[ENOUGH:] > 0).any():
        return None  # nothing learns at all: another disease
    dead = []
    for part in case.parts(GRADIENT_PART.name):
        _, numbers = case.series(f"{GRADIENT_PART.name}/{part}")
        if len(numbers) > ENOUGH and not (numbers[ENOUGH:] != 0).any():
            dead.append(part)
    if not dead:
        return None
    parts = case.parts(GRADIENT_PART.name)
    return Finding(
        code="MOD001",
        cause="model.no-gradient",
        severity="error",
        step=int(steps[0]),
        confidence=1.0,
        summary=f"{len(dead)} of {len(parts)} parts of the network never had a gradient: {', '.join(dead)}.",
        evidence=tuple(
            Evidence(f"{GRADIENT_PART.name}/{part}", 0.0, (int(steps[ENOUGH]), int(steps[-1])), "above 0")
            for part in dead
        ),
        fix=Fix(
            "The output does not depend on these parts, or a detach() or no_grad() stands between: connect them, or "
            "take them out of the optimizer.",
        ),
        ruled_out=(
            "a frozen network: other parts do have gradients",
            "an output layer of zeros: that ends after two steps",
        ),
    )


def look_no_gradient_at_all(case: Case) -> Finding | None:
    steps, norms = case.series(GRADIENT_NORM.name)
    if len(steps) < ENOUGH + 1 or (norms != 0).any():
        return None
    return Finding(
        code="MOD002",
        cause="model.detached",
        severity="error",
        step=int(steps[0]),
        confidence=1.0,
        summary=f"No parameter had a gradient in any of {len(steps):,} steps: the loss does not reach the network.",
        evidence=(Evidence(GRADIENT_NORM.name, 0.0, (int(steps[0]), int(steps[-1])), "above 0"),),
        fix=Fix(
            "Look for detach(), no_grad() or .data between the network and the loss, and for a missing backward()."
        ),
        ruled_out=("a learning rate of 0: gradients would be there all the same",),
    )


RULES = (
    Rule(
        code="MOD001",
        cause="model.no-gradient",
        title="A part of the network without a gradient",
        what="Every parameter of a block has a gradient of exactly zero, step after step, while others learn.",
        why="It stays as it was initialised: capacity and, in an embedding of timesteps or labels, meaning are lost.",
        alike="A zero output layer gives zeros below it in the first step only. Dead units give small gradients, not "
        "exact zeros over a whole block.",
        misses="Single dead layers within a block that learns; a block whose inputs are constant.",
        fix="Connect it to the output, or leave it out.",
        look=look_dead_part,
    ),
    Rule(
        code="MOD002",
        cause="model.detached",
        title="No gradient anywhere",
        what="The gradient of every parameter is exactly zero in every step.",
        why="Nothing is learnt.",
        alike="With optimizer.no-update (OPT001) there are gradients and the weights do not follow them.",
        misses="A loss that reaches the network through a path that means nothing.",
        fix="Remove the detach() or no_grad(), call backward().",
        look=look_no_gradient_at_all,
    ),
)
