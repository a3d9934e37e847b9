"""The gradient of the loss beside that of the squared error: none, opposite, of something else, of few samples."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Evidence
from safelight.diagnosis.rule import Detection, on_episode
from safelight.diagnosis.run_history import Episode, RunHistory, episode_of
from safelight.vocabulary import GRADIENT_NORM, LOSS

MIN_STEPS = 8
OPPOSITE_COSINE = -0.5  # cosine with the gradient of the squared error
UNRELATED_COSINE = 0.1  # L1 and weighted losses have 0.5 to 1
# The same of a loss that is the squared error: 1 in fp32, 0.99 in bf16, 0.89 where values are clipped
SAME_COSINE = 0.7
SIGNS = 0.9  # of the values have the same sign: 1 in healthy gradients, also where values are clipped; else 0.5
ENDLESS_FACTOR = 10.0  # times what a loss below 0 was at first
MAX_UNHEARD_SHARE = 0.1  # of the samples; with a zero terminal SNR one timestep in a thousand may have a weight of 0
LOW_COSINE, MAX_SWING = 0.5, 0.7  # healthy weightings have first cosines of 0.8 to 1, and swings of 0.2 to 0.3


def _replayed(run: RunHistory) -> tuple[np.ndarray, np.ndarray]:
    """(steps, cosines) of the replays that had a gradient to compare."""
    steps, cosines = run.series(checks.REPLAY_COSINE)
    norms, own = run.at(checks.APPLIED_GRADIENT_NORM, steps), run.at(checks.REPLAY_GRADIENT_NORM, steps)
    there = (norms > 0) & (own > 0) & np.isfinite(cosines)
    return steps[there], cosines[there]


def _first(steps: np.ndarray) -> np.ndarray:
    """The replays before anything was learnt: later, weighted losses diverge from the plain one."""
    return steps < (steps[0] + 3 if len(steps) else 0)


def is_plain(run: RunHistory) -> bool:
    """Whether the loss that the loop passes is the squared error: then its gradient must be the replayed one."""
    steps, losses = run.series(checks.LOOP_LOSS)
    return len(steps) > 0 and bool(_is_error(run, steps, losses).all())


def _is_error(run: RunHistory, steps: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Whether the losses of these replays are the squared errors."""
    errors = run.at(checks.REPLAY_MSE, steps)
    return np.abs(losses - errors) <= 0.01 * np.abs(errors)


def below_zero(run: RunHistory) -> Detection | None:
    """Where only the loss is known: it is below 0 from the first step on, and falls without bound."""
    steps, losses = run.series(LOSS)
    if len(losses) < 4 * MIN_STEPS or not (losses < 0).all():
        return None
    begin, end = float(np.median(losses[:MIN_STEPS])), float(np.median(losses[-MIN_STEPS:]))
    if not end < ENDLESS_FACTOR * begin:
        return None
    return Detection(
        int(steps[0]),
        f"The loss is below 0 at every step and went from {begin:.3g} to {end:.3g}: an error is never below 0, and a "
        "likelihood does not grow like this. Its sign is reversed.",
        (Evidence(LOSS.name, end, (int(steps[0]), int(steps[-1])), "above 0"),),
        confidence=0.95,
    )


def opposite(run: RunHistory) -> Episode | None:
    steps, cosines = _replayed(run)
    plain = _is_error(run, steps, np.abs(run.at(checks.LOOP_LOSS, steps)))  # its sign aside; then one look is enough
    early = _first(steps) | plain
    against = cosines < OPPOSITE_COSINE
    return episode_of(steps[plain], against[plain]) or episode_of(steps[early], against[early], 2)


def unrelated(run: RunHistory) -> Episode | None:
    if not len(run.steps(checks.REPLAY_COSINE)) or not len(run.steps(checks.REPLAY_MSE)):
        return None
    steps, cosines = _replayed(run)
    plain = is_plain(run)
    early = np.ones(len(steps), bool) if plain else _first(steps)
    low = (cosines >= OPPOSITE_COSINE) & (cosines < (SAME_COSINE if plain else UNRELATED_COSINE))
    low &= run.at(checks.REPLAY_SIGNS, steps, 0.0) < SIGNS
    if plain:  # a single tensor that goes the other way
        low |= run.at(checks.REPLAY_WORST, steps, 1.0) < OPPOSITE_COSINE
    return episode_of(steps[early], low[early], 2) or _without_gradient(run, came=True)


def _without_gradient(run: RunHistory, *, came: bool) -> Episode | None:
    """The gradient is 0 where that of the error is not: it came out of the backward pass as exactly 0, at two looks, or
    it never came."""
    steps, norms = run.series(checks.APPLIED_GRADIENT_NORM)
    largest = run.at(checks.REPLAY_SAMPLE_GRADIENT, steps)  # below 0: none came
    zero = (norms == 0) & (largest == 0) if came else ~(norms > 0) & (largest < 0)
    return episode_of(steps, zero & (run.at(checks.REPLAY_GRADIENT_NORM, steps) > 0), 2 if came else 1)


def detached(run: RunHistory) -> Detection | None:
    """The loss does not reach the network, or backward() is never called."""
    episode = _without_gradient(run, came=False)
    if episode is not None:
        own = run.latest(checks.REPLAY_GRADIENT_NORM)
        return _detached(episode.first, f"though the error of the prediction has one of {own:.3g}")
    steps, norms = run.series(GRADIENT_NORM)
    if len(steps) <= MIN_STEPS or (norms != 0).any() or (run.numbers(checks.SAMPLE_PARAMETER_BACKWARD) > 0).any():
        return None
    return _detached(int(steps[0]), f"in any of {len(steps):,} steps")


def _detached(step: int, where: str) -> Detection:
    return Detection(
        step,
        f"No parameter had a gradient, {where}: the loss does not reach the network.",
        (Evidence(GRADIENT_NORM.name, 0.0, healthy_range="above 0"),),
        ("a learning rate of 0: there would be gradients",),
    )


weights_of_zero = on_episode(  # exact
    lambda run: run.episode(checks.ANSWER_UNHEARD, lambda shares: (shares > MAX_UNHEARD_SHARE) & (shares < 1), 3),
    lambda run, episode: (
        f"{run.median(checks.ANSWER_UNHEARD, episode):.0%} of the samples get no gradient at all: "
        "their weight in the loss is 0, and the network learns nothing from them."
    ),
    "errors that are small: none is exactly 0",
    evidence={checks.ANSWER_UNHEARD: "0"},
)


def few_decide(run: RunHistory) -> Detection | None:
    """Weights that let a few samples of a batch decide it: the loss over the plain error swings from batch to batch, or
    its gradient differs from the plain one at nearly every look."""
    steps, cosines = _replayed(run)
    early = _first(steps)
    low = episode_of(steps[early], (cosines[early] >= UNRELATED_COSINE) & (cosines[early] < LOW_COSINE), 2)
    places, losses = run.series(checks.LOSS_REPORTED)
    errors = run.at(checks.LOSS_MSE, places)
    healthy = np.isfinite(losses) & np.isfinite(errors) & (errors > 0) & (losses > 0)
    ratios = losses[healthy] / errors[healthy]
    ratio = float(np.median(ratios)) if len(ratios) else 1.0
    # Of neighbours: a loss that becomes another one once and for all does not swing.
    swing = float(np.std(np.diff(np.log(ratios)))) / 2**0.5 if len(ratios) >= 8 else 0.0
    if is_plain(run) or (low is None and swing < MAX_SWING):
        return None
    return Detection(
        int(steps[0]) if low is None and len(steps) else (low.first if low is not None else 0),
        f"A few timesteps outweigh all others: the loss is {ratio:.3g} times the plain error and "
        f"swings by a factor of {float(np.exp(swing)):.3g} from batch to batch; its gradient has a cosine of "
        f"{float(np.median(cosines)) if len(cosines) else 1.0:.2f} with the plain one.",
        (
            run.evidence(checks.REPLAY_COSINE, "above 0.5"),
            Evidence("loss over error", swing, healthy_range="below 0.5"),
        ),
        confidence=0.95,
    )
