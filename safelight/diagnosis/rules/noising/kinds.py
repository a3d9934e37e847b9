"""Which of the causes it is where x_t is not what the schedule gives: exactly one of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from safelight import checks
from safelight.diagnosis.rule import (
    Detector,
    on_episode,
)
from safelight.diagnosis.run_history import Episode, RunHistory

SOME_SAMPLES_SHARE, MOST_SAMPLES_SHARE = 0.05, 0.5  # of the samples; at t near 0 x_t is clean in every loop
ROUGH_SHARE = 0.5  # neighbours' difference over the whole spread; tables have 0.1, anything else 1
AT_LIMIT = 0.02  # share of the values; whatever is not clamped has one value in a batch


def _kind(run: RunHistory) -> tuple[str, Episode] | None:
    """Which of the causes in the noising it is; exactly one of them."""
    episode = run.episode(checks.FORWARD_WRONG, lambda numbers: ~(numbers <= SOME_SAMPLES_SHARE))
    if episode is None:
        return None
    at = partial(run.median, episode=episode)
    if at(checks.FORWARD_CLEAN) < checks.FORWARD_LIMIT and at(checks.FORWARD_WRONG) > MOST_SAMPLES_SHARE:
        return "no-noise", episode
    if at(checks.FORWARD_AT_LIMIT) > AT_LIMIT:
        return "clamped", episode
    if at(checks.FORWARD_RESIDUAL) <= checks.FORWARD_LIMIT:
        if at(checks.FORWARD_ORDER) < min(0.005, 0.2 * at(checks.FORWARD_ORDER_ERROR)):
            return "shuffled", episode
        if at(checks.FORWARD_ROUGH) < ROUGH_SHARE:
            return "other-schedule", episode
    return "not-the-formula", episode


def on_kind(kind: str, summary: str | Callable[[RunHistory, Episode], str]) -> Detector:
    def find(run: RunHistory) -> Episode | None:
        found = _kind(run)
        return found[1] if found is not None and found[0] == kind else None

    return on_episode(
        find,
        summary,
        "a network that does not learn: it plays no part in this check",
        evidence={
            checks.FORWARD_WRONG: "0",
            checks.FORWARD_ERROR: "below 0.01",
            checks.FORWARD_RESIDUAL: "0",
            checks.FORWARD_NOISE_SEEN: None,
            checks.FORWARD_AT_LIMIT: "0",
        },
    )
