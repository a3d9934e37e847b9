"""Learning rates: too high, too low, 0, ended too early, or jumping."""

from __future__ import annotations

from safelight import checks
from safelight.diagnosis.rule import AtLeast, error_rule, first_of, on_count, warning_rule
from safelight.diagnosis.rules.learning import LOOKS, short_updates, stays_by_short_updates
from safelight.diagnosis.rules.lr.course import LONG_STEPS, MIN_RATES, MIN_ZERO_RATES, anew, ended_early, jump, zero
from safelight.diagnosis.rules.lr.high import no_warmup, too_high
from safelight.diagnosis.rules.lr.low import SEARCHES, too_low
from safelight.diagnosis.run_history import MIN_STEPS_AT_RATE
from safelight.diagnosis.spacing import LogNeed
from safelight.diagnosis.vanishing import or_vanishes
from safelight.vocabulary import LEARNING_RATE, LOSS, SKILL_RAW

CAUSES_BEFORE_LR = (
    "scale. loss.sign loss.shape optimizer.maximize optimizer.no-zero optimizer.not-its target. model.init "
    "data.nonfinite precision. optimizer.weight-decay data.shifted model.dead mode. model.bounded"
)

# Not those of its curve, which are symptoms.
LOSS_CAUSES = "loss.nonfinite loss.detached loss.weight loss.not-of loss.diverged"

RAISE = "Raise optimizer.lr."

RULES = (
    error_rule(
        "LRA001",
        "lr.too-high",
        "A learning rate that is too high",
        what="The update of a step raises the error on its own batch; or the first steps bring the error far above "
        "that of a network that predicts 0, where it stays, or make the network overflow; or updates that the "
        "preflight tries do.",
        why="The loss fluctuates or rises; weights grow until they overflow.",
        similar="A bad batch has a large loss before the update too. With a wrong sign every length is worse.",
        limits="Rates that are only unstable later: see `loss.diverged`.",
        fix="Lower optimizer.lr, or lengthen optimizer.warmup.",
        needs=((checks.LINE_SEARCH_RATIO["1"], checks.LOSS_MSE, checks.TRIAL_RATE, SKILL_RAW),),
        detect=too_high,
        explained_by=f"{CAUSES_BEFORE_LR} lr.jump accumulation. forward.",
    ),
    warning_rule(
        "LRA002",
        "lr.too-low",
        "A learning rate that is too low",
        what="Updates gain nearly nothing where a hundred times longer ones would gain much, after the warm-up.",
        why="The run would take a hundred times as long.",
        similar="In a run that has converged longer updates do not help. A fine-tuning rate is low on purpose: there "
        "is little left to gain.",
        limits="Rates that are ten times too low. By the loss alone: networks that do not predict the noise.",
        fix=RAISE,
        needs=(
            (
                AtLeast(checks.LINE_SEARCH_RATIO["1"], SEARCHES),
                AtLeast(SKILL_RAW, LOOKS),
                AtLeast(LOSS, MIN_STEPS_AT_RATE),
            ),
        ),
        detect=or_vanishes(first_of(too_low, short_updates, stays_by_short_updates), RAISE),
        explained_by=f"{CAUSES_BEFORE_LR} forward. clipping. model. ema. lr.zero lr.ended optimizer. {LOSS_CAUSES}",
    ),
    error_rule(
        "LRA003",
        "lr.zero",
        "A learning rate of 0",
        what="The learning rate is exactly 0.",
        why="Nothing is learnt.",
        similar="The first step of a warm-up may be 0, and only that one.",
        fix="Check the scheduler: its warm-up, its end, and whether it is stepped.",
        needs=(AtLeast(LEARNING_RATE, MIN_ZERO_RATES),),
        detect=zero,
        logs=LogNeed(),
    ),
    warning_rule(
        "LRA004",
        "lr.ended-early",
        "A schedule that ends before the run",
        what="The learning rate has been almost 0 for a long time while the training continues.",
        why="The rest of the run is wasted.",
        similar="Every decay ends low; this one ended long ago.",
        limits="Decays that end a little early.",
        fix="Step the scheduler once per update, not per micro-batch or process, and give it the number of updates.",
        needs=(AtLeast(LEARNING_RATE, LONG_STEPS),),
        detect=ended_early,
        logs=LogNeed(),
    ),
    warning_rule(
        "LRA007",
        "lr.every-micro-batch",
        "A schedule that is stepped with every micro-batch",
        what="The learning rate changes between the micro-batches of one update.",
        why="With k micro-batches a schedule that was made for updates ends after a k-th of the run.",
        similar="A schedule that ended before the run shows only at its end.",
        limits="A schedule that was made for micro-batches on purpose ends with the run, and can be ignored.",
        fix="scheduler.step() after optimizer.step() only.",
        needs=(checks.RATE_BETWEEN,),
        detect=on_count(
            checks.RATE_BETWEEN,
            3,
            "Before {} updates the learning rate changed between micro-batches, where no weight moves: its schedule "
            "runs faster than the updates.",
        ),
    ),
    warning_rule(
        "LRA006",
        "lr.no-warmup",
        "A rate that is high from the first step",
        what="One of the first updates raises the error on its own batch several times; later ones do not.",
        why="The damage of the first steps may be permanent: dead units, labels that are ignored.",
        similar="A rate that is too high for the run raises the error at later steps too.",
        fix="Lengthen optimizer.warmup.",
        needs=((checks.LINE_SEARCH_RATIO["1"], checks.LOSS_MSE),),
        detect=no_warmup,
        explained_by=f"{CAUSES_BEFORE_LR} lr.jump accumulation. forward.",
    ),
    warning_rule(
        "LRA005",
        "lr.jump",
        "A learning rate that jumps",
        what="From one step to the next the learning rate rises to several times what it ever was; or it begins again "
        "as at the first step, in the middle of its schedule.",
        why="The optimizer's moments were averaged for another rate: updates are too large. A schedule that begins "
        "again ends too late.",
        similar="Restarts return to where the rate was before. Those that are meant come when the rate is at its "
        "lowest.",
        limits="Jumps within the first ten steps.",
        fix="After a resume: is the scheduler's state loaded? Otherwise check what sets the rate.",
        needs=(AtLeast(LEARNING_RATE, MIN_RATES),),
        detect=first_of(jump, anew),
        logs=LogNeed("known steps"),
    ),
)
