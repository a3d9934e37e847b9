"""Parts of the network that do not learn."""

from __future__ import annotations

import numpy as np

from safelight.diagnosis.case import Case
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Rule, Seen
from safelight.vocabulary import CHECK, GRADIENT_NORM, GRADIENT_PART

LOUD = 4.0  # times the zero predictor; sound networks begin at 1 to 1.5
BOUND = 20.0  # of an output whose last layer was made 10,000 times as strong; sound ones have 100,000
SILENT, DROPPED, UNUSED = 0.5, 0.6, 0.2
COLLIDED = 0.9  # cosine; sines of 64 numbers have 0 between the first and the last timestep

ENOUGH = 8  # steps: an output layer of zeros sends no gradient down in the first step, and a little in the second


def look_dead_part(case: Case) -> Seen | None:
    """Exact: the gradient of a whole part is zero, to the last bit, at every step but the first ones, or for good."""
    steps, norms = case.series(GRADIENT_NORM.name)
    if len(steps) < ENOUGH + 1 or not (norms[ENOUGH:] > 0).any():
        return None  # nothing learns at all: another disease
    dead, parts = {}, case.parts(GRADIENT_PART.name)
    for part in parts:
        places, numbers = case.series(f"{GRADIENT_PART.name}/{part}")
        since = len(numbers) - int(np.argmax(numbers[::-1] != 0)) if (numbers != 0).any() else 0
        if len(numbers) - since > ENOUGH and np.isfinite(numbers).all():
            dead[part] = 0 if since <= ENOUGH else int(places[since])
    if not dead or (norms[-ENOUGH:] == 0).any():
        return None
    first = min(dead.values())
    when = f"have had no gradient since step {first:,}" if first else "never had a gradient"
    return Seen(
        severity="error",
        step=first or int(steps[0]),
        confidence=1.0,
        summary=f"{len(dead)} of {len(parts)} parts of the network {when}: {', '.join(dead)}.",
        evidence=tuple(
            Evidence(f"{GRADIENT_PART.name}/{part}", 0.0, (since or int(steps[ENOUGH]), int(steps[-1])), "above 0")
            for part, since in dead.items()
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


def look_zero_init(case: Case) -> Seen | None:
    zero, reached = case.newest("network/zero_weights", 0.0), case.newest("network/matrices_reached", 1.0)
    if zero < 0.3 or reached > 0.5:
        return None
    return Seen(
        case.asked("network/zero_weights"),
        f"{zero:.0%} of the weight matrices are zero as a whole, and {1 - reached:.0%} get no gradient even after a "
        "rehearsal: they stay zero for ever.",
        (case.evidence("network/zero_weights", "below 0.1"), case.evidence("network/matrices_reached", "1")),
        ("a zero output layer: one matrix alone, and all others get gradients after one update",),
    )


def look_init_gain(case: Case) -> Seen | None:
    steps, errors = case.check("loss/error")
    _, zeros = case.check("loss/zero")
    if not len(steps) or not errors[0] > LOUD * zeros[0] or not np.isfinite(errors[0]):
        return None
    return Seen(
        int(steps[0]),
        f"The first error is {float(errors[0] / zeros[0]):.3g} times that of a model which answers 0: the network "
        f"begins "
        "far too loud.",
        (case.evidence("loss/error", "at most 1.5 times loss/zero", int(steps[0])), case.evidence("loss/zero")),
        ("a learning rate: no update had been made",),
    )


def look_bounded(case: Case) -> Seen | None:
    loudest = case.newest("network/loudest")
    sided = case.newest("network/one_sided", 0.0) == 1
    if not loudest < BOUND and not sided:
        return None
    what = "only on one side of 0" if sided else f"never beyond {loudest:.3g}"
    return Seen(
        case.asked("network/loudest"),
        f"With a last layer ten thousand times as strong the output lies {what}: an activation stands behind it, and "
        "targets beyond cannot be reached.",
        (case.evidence("network/loudest", "above 1,000"), case.evidence("network/one_sided", "0")),
    )


def look_dead(case: Case) -> Seen | None:
    share = max(case.newest("network/silent", 0.0), case.newest("network/sunk", 0.0))
    if share <= SILENT:
        return None
    return Seen(
        case.asked("network/silent"),
        f"In one layer {share:.0%} of the units answer nothing to any of the samples.",
        (case.evidence("network/silent", "0"), case.evidence("network/sunk", "0")),
        ("a zero output layer: units before it are heard",),
    )


def look_dropout(case: Case) -> Seen | None:
    share = case.newest("network/dropout", 0.0)
    if share < DROPPED:
        return None
    return Seen(
        case.asked("network/dropout"),
        f"A dropout of {share:g} leaves {1 - share:.0%} of the units: denoisers use 0 to 0.3.",
        (case.evidence("network/dropout", "0 to 0.3"),),
    )


def look_blind(case: Case) -> Seen | None:
    spell = case.silent("network/time_response", "response/time")
    if spell is None:
        return None
    return Seen(
        spell.first,
        "The output is the same at every timestep, also after a few updates: the network cannot know how much noise "
        "there is.",
        (case.evidence("network/time_response", "above 0.01"), case.evidence("response/time", "above 0.001")),
        ("a zero output layer: updates have moved it",),
        over=spell.over,
    )


def look_collapsed(case: Case) -> Seen | None:
    cosine = case.newest("network/time_collision")
    if not cosine > COLLIDED:
        return None
    return Seen(
        case.asked("network/time_collision"),
        f"The codes of any two timesteps have a cosine of at least {cosine:.4f}: the network can hardly tell the first "
        "from the last.",
        (case.evidence("network/time_collision", "below 0.5"),),
        ("a network that ignores its timestep: this one looks at it, and sees always the same",),
    )


def look_coupling(case: Case) -> Seen | None:
    coupling, response = case.newest("network/coupling", 0.0), case.newest("network/response", 1.0)
    if not np.isfinite(coupling) or coupling <= 1e-3 * max(response, 1e-6) or coupling < 1e-5:
        return None
    return Seen(
        case.asked("network/coupling"),
        f"Another image in the batch changes the answers for all others (by {coupling:.2g} of their length).",
        (case.evidence("network/coupling", "0"), case.evidence("network/response")),
        ("batch norm: in evaluation mode it does not do that",),
    )


def look_skip_cut(case: Case) -> Seen | None:
    share = case.newest("network/unused", 0.0)
    if share < UNUSED:
        return None
    return Seen(
        case.asked("network/unused"),
        f"One layer never hears {share:.0%} of its inputs: they are zero for every sample, as where a skip "
        f"connection is "
        "cut or filled with zeros.",
        (case.evidence("network/unused", "0"),),
        ("a zero output layer: layers have zero weights then, not zero inputs",),
    )


def look_nonfinite(case: Case) -> Seen | None:
    steps, _ = case.check("finite/pred")
    before = {int(s) for name in ("x0", "noise", "x_t") for s in case.check(f"finite/{name}")[0]}
    alone = [int(step) for step in steps if int(step) not in before]
    if not alone:
        return None
    half = case.newest("precision/half", 0.0) == 1
    return Seen(
        alone[0],
        f"The network answered with numbers that are not finite to finite inputs, first at step {alone[0]:,}"
        + (", in fp16, which ends at 65,504." if half else "."),
        (Evidence(f"{CHECK.name}/finite/pred", 0.0, (alone[0], alone[-1]), "1"),),
        ("the data: images and noise were finite",),
    )


def look_frozen(case: Case) -> Seen | None:
    share = case.newest("optimizer/frozen", 0.0)
    if share <= 0:
        return None
    named = [name for note in case.events("parameters") for name in note.facts.get("frozen", [])]
    names = ", ".join(named[:4]) + (" …" if len(named) > 4 else "")
    return Seen(
        0,
        f"The optimizer holds {share:.1%} of the network that does not require a gradient and never moves: {names}.",
        (case.evidence("optimizer/frozen", "0"),),
        ("parts that are frozen on purpose: those are left out of the optimizer",),
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
        yields=(
            "model.zero-init",
            "model.blind",
            "conditioning.",
            "loss.",
            "model.frozen",
            "model.dead",
            "optimizer.",
            "lr.",
            "precision.",
            "model.bounded",
        ),
    ),
    Rule(
        code="MOD002",
        cause="model.zero-init",
        title="A network that begins as zeros",
        what="Most weight matrices are zero, and get no gradient through each other.",
        why="Units stay alike for ever; nothing but the last bias is learnt.",
        alike="A zero output layer alone is healthy: gradients pass it after one update.",
        misses="",
        fix="Initialise the weights; only the last layer may begin at zero.",
        look=look_zero_init,
    ),
    Rule(
        code="MOD003",
        cause="model.init-gain",
        title="A network that begins too loud",
        what="The first prediction is many times larger than any target.",
        why="The first hundreds of steps only make it quieter, and may not survive it.",
        alike="Images of another range make the network loud as well. A learning rate acts after the first step.",
        misses="Less than four times the target.",
        fix="Initialise with the usual gain; let the last layer begin at zero.",
        look=look_init_gain,
        yields=("scale.", "data.nonfinite", "forward.noise-not-normal"),
    ),
    Rule(
        code="MOD004",
        cause="model.bounded-output",
        title="An activation behind the last layer",
        what="The output cannot leave an interval, or one side of 0, however strong the last layer.",
        why="Noise and velocity reach beyond any such limit: the loss has a floor.",
        alike="",
        misses="Limits beyond 20.",
        fix="No tanh, sigmoid or ReLU at the end.",
        look=look_bounded,
        yields=(
            "model.dead",
            "model.batch-coupling",
            "model.zero-init",
        ),
    ),
    Rule(
        code="MOD005",
        cause="model.dead-units",
        title="Units that never answer",
        what="Most units of a layer are silent for every sample.",
        why="They have no gradient and stay silent.",
        alike="Units that are silent for some samples are at work.",
        misses="Activations that are not modules of torch.nn.",
        fix="Look at the biases of the layer before, and at the learning rate that drove it there.",
        look=look_dead,
        yields=("model.zero-init", "scale."),
    ),
    Rule(
        code="MOD006",
        cause="model.dropout",
        title="Too much dropout",
        what="A dropout of 0.6 or more.",
        why="The network that is trained is a small part of the one that samples.",
        alike="",
        misses="Dropout that is not a module of torch.nn.",
        fix="0 to 0.3.",
        severity="warning",
        look=look_dropout,
    ),
    Rule(
        code="MOD007",
        cause="model.blind-to-timestep",
        title="The timestep does not reach the output",
        what="The output stays the same, to the last bit, at every timestep.",
        why="One answer must do for every noise level: blurred, noisy samples and a mildly high loss.",
        alike="An embedding that collapsed changes the output a little.",
        misses="",
        fix="Add the embedding in every block, and look for a multiplication by zero or a detach().",
        look=look_blind,
        yields=("model.zero-init", "model.bounded", "model.embedding", "timesteps.not-passed-on"),
    ),
    Rule(
        code="MOD008",
        cause="model.embedding-collapsed",
        title="Timesteps that all look alike",
        what="The codes of the first and the last timestep are nearly the same vector.",
        why="The network can hardly tell noise levels apart.",
        alike="A network that ignores its timestep does not respond at all.",
        misses="Embeddings that do not pass through a linear layer.",
        fix="Timesteps from 0 to 999 for sines made for that; multiply those in [0, 1] by 1,000.",
        look=look_collapsed,
    ),
    Rule(
        code="MOD009",
        cause="model.batch-coupling",
        title="Samples that see each other",
        what="One image of a batch changes the answers for the others.",
        why="Samples depend on what they are drawn with; batch size becomes part of the model.",
        alike="Batch norm couples samples in training only.",
        misses="",
        fix="Look for a reshape, softmax or norm over the first dimension.",
        look=look_coupling,
    ),
    Rule(
        code="MOD010",
        cause="model.nonfinite",
        title="Answers that are not finite",
        what="The network answers NaN or infinity to finite images.",
        why="The step is lost, or with it every weight.",
        alike="NaN in the images comes before the network.",
        misses="",
        fix="In fp16 use bf16; else a lower learning rate, or normalised queries and keys in attention.",
        look=look_nonfinite,
        yields=(
            "accumulation.",
            "lr.",
            "scale.",
            "loss.weight",
            "optimizer.",
            "loss.sign",
            "data.nonfinite",
            "precision.",
            "model.init-gain",
        ),
    ),
    Rule(
        code="MOD011",
        cause="model.frozen",
        title="Frozen parts in the optimizer",
        what="The optimizer holds parameters that do not require a gradient.",
        why="They stay as they were initialised, though somebody meant them to learn.",
        alike="Parts that are frozen on purpose are not in the optimizer.",
        misses="Parts that are frozen before the optimizer is made from them.",
        fix="requires_grad_(True), or leave them out of the optimizer.",
        severity="warning",
        look=look_frozen,
    ),
    Rule(
        code="MOD012",
        cause="model.skip-cut",
        title="Inputs of a layer that are always zero",
        what="A part of what a layer is given is zero for every sample: a skip connection that is cut.",
        why="What the encoder saw in detail never reaches the decoder: blurred samples, a loss that stays high at low "
        "noise.",
        alike="A network that is too small has no zero inputs. Units that have died are model.dead-units.",
        misses="Connections that are left out together with their weights.",
        fix="Concatenate the encoder's outputs, in the right order, in every block of the decoder.",
        look=look_skip_cut,
        yields=("model.blind", "model.dead", "model.zero-init", "model.bounded"),
    ),
)
