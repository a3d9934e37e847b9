"""Networks that do not learn in part, or are in the wrong mode."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.nonfinite import first_steps
from safelight.diagnosis.rule import AtLeast, Detection, error_rule, on_episode, on_latest, warning_rule
from safelight.diagnosis.run_history import Episode, RunHistory, name_of
from safelight.diagnosis.vanishing import or_vanishes
from safelight.vocabulary import GRADIENT_NORM, GRADIENT_PART

LOUD_ERROR_FACTOR = 4.0  # times the zero predictor; healthy networks begin at 1 to 1.5
BOUND = 20.0  # of an output whose last layer was made 10,000 times as strong; healthy ones have 100,000
MAX_SILENT_SHARE, MAX_DROPPED_SHARE, MAX_UNUSED_SHARE = 0.5, 0.6, 0.2
UNIT = 1.5  # the highest time of networks that are told times from 0 to 1
# Updates; of the answer, when timesteps are exchanged: 0.02 to 1 in healthy networks, less while blocks are at 0.
LEARNT_STEP, FAINT_RESPONSE = 512, 0.005
COLLISION_COSINE = 0.9  # cosine; sines of 64 numbers have 0 between the first and the last timestep

MIN_STEPS = 8  # steps: an output layer of zeros sends no gradient down in the first step, and a little in the second


def dead_parts(run: RunHistory) -> Detection | None:
    """Exact: the gradient of a whole part is zero, to the last bit, at every step but the first ones, or for good."""
    steps, norms = run.series(GRADIENT_NORM)
    if len(steps) < MIN_STEPS + 1 or not (norms[MIN_STEPS:] > 0).any():
        return None  # nothing learns at all: another cause
    dead, parts = {}, run.parts(GRADIENT_PART)
    for part in parts:
        places, numbers = run.series(f"{GRADIENT_PART.name}/{part}")
        since = len(numbers) - int(np.argmax(numbers[::-1] != 0)) if (numbers != 0).any() else 0
        if len(numbers) - since > MIN_STEPS and np.isfinite(numbers).all():
            dead[part] = 0 if since <= MIN_STEPS else int(places[since])
    if not dead or (norms[-MIN_STEPS:] == 0).any():
        return None
    first = min(dead.values())
    when = f"have had no gradient since step {first:,}" if first else "never had a gradient"
    return Detection(
        first or int(steps[0]),
        f"{len(dead)} of {len(parts)} parts of the network {when}: {', '.join(dead)}.",
        tuple(
            Evidence(f"{GRADIENT_PART.name}/{part}", 0.0, (since or int(steps[MIN_STEPS]), int(steps[-1])), "above 0")
            for part, since in dead.items()
        ),
        ("a frozen network: other parts do have gradients", "an output layer of zeros: that ends after two steps"),
    )


def init_gain(run: RunHistory) -> Detection | None:
    steps, errors = run.series(checks.LOSS_MSE)
    zeros = run.at(checks.LOSS_ZERO_MSE, steps[:1])
    if not len(steps) or not LOUD_ERROR_FACTOR * zeros[0] < errors[0] < np.inf:
        return None
    step = int(steps[0])
    return Detection(
        step,
        f"The first error is {float(errors[0] / zeros[0]):.3g} times that of a model which predicts 0: the output of "
        "the new network is far too large.",
        (run.evidence(checks.LOSS_MSE, "at most 1.5 times loss/zero", step), run.evidence(checks.LOSS_ZERO_MSE)),
        ("a learning rate: no update had been made",),
    )


def nonfinite(run: RunHistory) -> Detection | None:
    alone = first_steps(run, "pred")
    if not alone:
        return None
    half = run.latest(checks.PRECISION_HALF, 0.0) == 1
    has_seen = alone[0] in run.steps(checks.BATCH_ABS_MAX)
    place = next(
        (note.facts["first_nonfinite"] for note in run.events("stopped") if note.facts.get("first_nonfinite")), ""
    )
    return Detection(
        alone[0],
        f"The output is not finite{' for finite inputs' if has_seen else ''}, first at step {alone[0]:,}"
        + (", in fp16, which ends at 65,504." if half else ".")
        + (f" The run was stopped; the first such value had appeared in {place}." if place else ""),
        (Evidence(name_of(checks.NONFINITE["pred"]), 0.0, (alone[0], alone[-1]), "1"),),
        ("the data: images and noise were finite",) if has_seen else (),
    )


def frozen(run: RunHistory) -> Detection | None:
    share = run.latest(checks.OPTIMIZER_FROZEN, 0.0)
    if share <= 0:
        return None
    return Detection(
        0,
        f"The optimizer holds {share:.1%} of the network that requires no gradient and never moves: "
        f"{run.named_parameters('frozen')}.",
        (run.evidence(checks.OPTIMIZER_FROZEN, "0"),),
        ("parts that are frozen on purpose: those are not in the optimizer",),
    )


def embedding_collapsed(run: RunHistory) -> Detection | None:
    """Not an error in itself: layers behind an embedding can pull close vectors apart. It hurts where the network
    hardly answers to its time; and where whole timesteps are shrunk inside of the network, that was not meant."""
    cosine = run.latest(checks.NETWORK_TIME_COLLISION)
    if not cosine > COLLISION_COSINE:
        return None
    steps, responses = run.series(checks.RESPONSE["t"])
    late = responses[steps >= LEARNT_STEP]
    is_faint = len(late) > 1 and float(np.median(late)) < FAINT_RESPONSE
    is_unit = run.latest(checks.NETWORK_TIME_HIGHEST, 1000.0) <= UNIT
    return Detection(
        run.latest_step(checks.NETWORK_TIME_COLLISION),
        f"The embeddings of any two timesteps have a cosine of at least {cosine:.4f}: the network can hardly tell the "
        "first from the last." + (" After hundreds of updates its answer hardly depends on them." if is_faint else ""),
        run.evidence_of({checks.NETWORK_TIME_COLLISION: "below 0.5", checks.RESPONSE["t"]: "above 0.01"}),
        ("a network that ignores its timestep: this one uses it, and always sees the same",),
        severity="info" if is_unit and not is_faint else None,
    )


def eval_in_training(run: RunHistory) -> Episode | None:
    if run.latest(checks.NETWORK_DEPENDS_ON_MODE, 0.0) != 1:
        return None
    return run.episode(checks.MODE_TRAINING, lambda numbers: numbers == 0)


UNCONNECTED = (
    "The output does not depend on these parts, or there is a detach() or no_grad() in between: connect them, or "
    "remove them from the optimizer."
)
BLIND = "Add the embedding in every block, and look for a multiplication by zero or a detach()."
blind_to_time = on_episode(
    lambda run: run.no_response(checks.NETWORK_TIME_RESPONSE, checks.RESPONSE["t"]),
    "The output is the same at every timestep, even after a few updates: the network cannot know how much noise "
    "there is.",
    "a zero output layer: updates have moved it",
    latest={checks.NETWORK_TIME_RESPONSE: "above 0.01", checks.RESPONSE["t"]: "above 0.001"},
)

RULES = (
    error_rule(
        "MOD001",
        "model.no-gradient",
        "A part of the network without a gradient",
        what="Every parameter of a block has a gradient of exactly zero, step after step, while others learn.",
        why="It stays as it was initialised: capacity is lost, and in an embedding the timestep or the label.",
        similar="A zero output layer gives zeros below it in the first step only. Dead units give small gradients, not "
        "exact zeros over a whole block.",
        limits="Single dead layers within a block that learns; a block whose inputs are constant.",
        fix=UNCONNECTED,
        needs=(AtLeast(GRADIENT_NORM, MIN_STEPS + 1), GRADIENT_PART),
        detect=or_vanishes(dead_parts, UNCONNECTED),
        explained_by="model.zero-init model.blind conditioning. loss. model.frozen model.dead optimizer. lr. "
        "precision. model.bounded",
    ),
    error_rule(
        "MOD002",
        "model.zero-init",
        "A network of zeros",
        what="Most weight matrices are zero, and get no gradient through each other.",
        why="Units stay the same for ever; only the last bias is learnt.",
        similar="A zero output layer alone is healthy: gradients pass it after one update.",
        fix="Initialise the weights; only the last layer may begin at zero.",
        needs=(checks.NETWORK_ZERO_WEIGHTS, checks.NETWORK_MATRICES_REACHED),
        detect=on_latest(
            {checks.NETWORK_ZERO_WEIGHTS: "below 0.1", checks.NETWORK_MATRICES_REACHED: "1"},
            lambda zero, reached: not zero < 0.3 and not reached > 0.5,
            lambda zero, reached: (
                f"{zero:.0%} of the weight matrices are zero as a whole, and {1 - reached:.0%} get no gradient even "
                "after a few updates: they stay zero for ever."
            ),
            "a zero output layer: one matrix alone, and all others get gradients after one update",
        ),
    ),
    error_rule(
        "MOD003",
        "model.init-gain",
        "An initial output that is too large",
        what="The first prediction is many times larger than any target.",
        why="Hundreds of steps are spent on making it smaller, and may overflow.",
        similar="Images of another range make the output large as well. A learning rate acts after the first step.",
        limits="Less than four times the target.",
        fix="Initialise with the usual gain; let the last layer begin at zero.",
        needs=(checks.LOSS_MSE, checks.LOSS_ZERO_MSE),
        detect=init_gain,
        explained_by="scale. data.nonfinite forward.noise-not-normal timesteps.scaled",
    ),
    error_rule(
        "MOD004",
        "model.bounded-output",
        "An activation after the last layer",
        what="The output cannot leave an interval, or one side of 0, whatever the last layer.",
        why="Noise and velocity reach beyond any such limit: the loss has a floor.",
        limits="Limits beyond 20.",
        fix="No tanh, sigmoid or ReLU at the end.",
        needs=(checks.NETWORK_LOUDEST,),
        detect=on_latest(
            {checks.NETWORK_LOUDEST: "above 1,000", checks.NETWORK_ONE_SIDED: "0"},
            lambda loudest, sided: loudest < BOUND or sided == 1,
            lambda loudest, sided: (
                "With a last layer ten thousand times as strong the output is "
                + ("only on one side of 0" if sided == 1 else f"never beyond {loudest:.3g}")
                + ": an activation follows it, and targets beyond cannot be reached."
            ),
        ),
        explained_by="model.dead model.batch-coupling model.zero-init",
    ),
    error_rule(
        "MOD005",
        "model.dead-units",
        "Dead units",
        what="Most units of a layer are 0 for every sample.",
        why="They have no gradient and stay at 0.",
        similar="Units that are 0 for some samples are healthy.",
        limits="Activations that are not modules of torch.nn.",
        fix="Check the biases of the layer before, and the learning rate.",
        needs=(checks.NETWORK_SILENT,),
        detect=on_latest(
            {checks.NETWORK_SILENT: "0", checks.NETWORK_SUNK: "0"},
            lambda silent, sunk: silent > MAX_SILENT_SHARE or sunk > MAX_SILENT_SHARE,
            lambda silent, sunk: f"In one layer {np.fmax(silent, sunk):.0%} of the units are 0 for every sample.",
            "a zero output layer: units before it are not 0",
        ),
        explained_by="model.zero-init scale. timesteps.scaled",
    ),
    warning_rule(
        "MOD006",
        "model.dropout",
        "Too much dropout",
        what="A dropout of 0.6 or more.",
        why="The network that is trained is a small part of the one that samples.",
        limits="Dropout that is not a module of torch.nn.",
        fix="0 to 0.3.",
        needs=(checks.NETWORK_DROPOUT,),
        detect=on_latest(
            {checks.NETWORK_DROPOUT: "0 to 0.3"},
            lambda share: not share < MAX_DROPPED_SHARE,
            "The dropout is {:g}: denoisers use 0 to 0.3.",
        ),
    ),
    error_rule(
        "MOD007",
        "model.blind-to-timestep",
        "The timestep does not reach the output",
        what="The output stays the same, to the last bit, at every timestep.",
        why="One prediction has to fit every noise level: blurred, noisy samples and a slightly high loss.",
        similar="An embedding that collapsed changes the output a little.",
        fix=BLIND,
        needs=((checks.NETWORK_TIME_RESPONSE, checks.RESPONSE["t"]),),
        detect=or_vanishes(blind_to_time, BLIND),
        explained_by="model.zero-init model.bounded model.dead model.embedding timesteps.not-passed-on",
    ),
    warning_rule(
        "MOD008",
        "model.embedding-collapsed",
        "Timestep embeddings that are all alike",
        what="The embeddings of the first and the last timestep are nearly the same vector.",
        why="The network can hardly tell noise levels apart.",
        similar="A network that ignores its timestep does not respond at all.",
        limits="Embeddings that do not pass through a linear layer. Networks that are told times from 0 to 1 often "
        "learn to tell them apart: a remark, unless the trained network hardly answers to them.",
        fix="Pass timesteps from 0 to 999 to a sinusoidal embedding; multiply those in [0, 1] by 1,000.",
        needs=(checks.NETWORK_TIME_COLLISION,),
        detect=embedding_collapsed,
        explained_by="timesteps.scaled",
    ),
    error_rule(
        "MOD009",
        "model.batch-coupling",
        "Samples that depend on each other",
        what="One image of a batch changes the outputs for the others.",
        why="Samples depend on the rest of their batch; the batch size becomes part of the model.",
        similar="Batch norm couples samples in training only.",
        fix="Look for a reshape, softmax or norm over the first dimension.",
        needs=(checks.NETWORK_COUPLING,),
        detect=on_latest(
            {checks.NETWORK_COUPLING: "0", checks.NETWORK_RESPONSE: None},
            lambda coupling, response: 1e-5 <= coupling < np.inf and coupling > 1e-3 * max(response, 1e-6),
            "Replacing one image of a batch changes the outputs for all others (by {:.2g} of their length).",
            "batch norm: in evaluation mode it does not do that",
        ),
    ),
    error_rule(
        "MOD010",
        "model.nonfinite",
        "Outputs that are not finite",
        what="The output is NaN or infinite for finite images.",
        why="The step is lost, or every weight.",
        similar="NaN in the images comes before the network; NaN in the loss or a gradient leaves weights of NaN, and "
        "outputs are its consequence.",
        fix="In fp16 use bf16; otherwise a lower learning rate, or normalised queries and keys in attention.",
        needs=(checks.NONFINITE["pred"],),
        detect=nonfinite,
        explained_by="accumulation. lr. scale. loss.weight optimizer. loss.sign data.nonfinite precision. "
        "model.init-gain",
    ),
    warning_rule(
        "MOD011",
        "model.frozen",
        "Frozen parts in the optimizer",
        what="The optimizer holds parameters that do not require a gradient.",
        why="They stay as they were initialised, though they were meant to learn.",
        similar="Parts that are frozen on purpose are not in the optimizer.",
        limits="Parts that are frozen before the optimizer is made from them.",
        fix="requires_grad_(True), or remove them from the optimizer.",
        needs=(checks.OPTIMIZER_FROZEN,),
        detect=frozen,
        explained_by="optimizer.adapters-missing",
    ),
    error_rule(
        "MOD012",
        "model.skip-cut",
        "Inputs of a layer that are always zero",
        what="A part of the inputs of a layer is zero for every sample: a skip connection that is cut.",
        why="Details never reach the decoder: blurred samples, a loss that stays high at low noise.",
        similar="A network that is too small has no zero inputs. Units that have died are model.dead-units.",
        limits="Connections that are removed together with their weights.",
        fix="Concatenate the encoder's outputs, in the right order, in every block of the decoder.",
        needs=(checks.NETWORK_UNUSED,),
        detect=on_latest(
            {checks.NETWORK_UNUSED: "0"},
            lambda share: not share < MAX_UNUSED_SHARE,
            "One layer never uses {:.0%} of its inputs: they are zero for every sample, as where a skip connection is "
            "cut or filled with zeros.",
            "a zero output layer: layers have zero weights then, not zero inputs",
        ),
        explained_by="model.blind model.dead model.zero-init model.bounded",
    ),
    error_rule(
        "MDE001",
        "mode.eval-in-training",
        "Trained in evaluation mode",
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
    error_rule(
        "MDE002",
        "mode.train-in-sampling",
        "Sampled in training mode",
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
