"""Schedules that cannot be right."""

from __future__ import annotations

from safelight import checks
from safelight.diagnosis.rule import Detection, Rule
from safelight.diagnosis.run_history import RunHistory

LEFT = 0.01  # ᾱ at the end: linear has 4e-5, cosine 2e-9, Stable Diffusion's 0.0047
FALLING = 0.5


def look_not_decreasing(run: RunHistory) -> Detection | None:
    rising, falling = run.latest(checks.SCHEDULE_RISING, 0.0), run.latest(checks.SCHEDULE_BETAS_FALLING, 0.0)
    first, last = run.latest(checks.SCHEDULE_FIRST), run.latest(checks.SCHEDULE_LAST)
    if rising <= 0 and falling <= FALLING:
        return None
    what = (
        f"{rising:.0%} of its timesteps have more signal than the one before"
        if rising > 0
        else f"its betas fall at {falling:.0%} of the timesteps, so that nearly all noise comes first"
    )
    return Detection(
        0,
        f"The schedule is reversed: {what}. It goes from {first:.3g} to {last:.3g}.",
        (run.evidence(checks.SCHEDULE_RISING, "0"), run.evidence(checks.SCHEDULE_BETAS_FALLING, "0")),
        ("large betas at the end: cosine schedules reach 0.999 there, as they should",),
    )


def look_signal_left(run: RunHistory) -> Detection | None:
    last = run.latest(checks.SCHEDULE_LAST, 0.0)
    if last <= LEFT or run.latest(checks.SCHEDULE_RISING, 0.0) > 0:
        return None
    return Detection(
        0,
        f"At the last timestep {last**0.5:.0%} of the image is still there (ᾱ = {last:.3g}). Sampling begins from pure "
        "noise, which the network never saw: samples get the brightness of the mean image, or worse.",
        (run.evidence(checks.SCHEDULE_LAST, "below 0.005"),),
    )


def look_zero_snr(run: RunHistory) -> Detection | None:
    if run.latest(checks.SCHEDULE_LAST, 1.0) > 1e-14 or run.latest(checks.SCHEDULE_EPSILON, 0.0) != 1:
        return None
    return Detection(
        0,
        "The last timestep has no signal, and the model predicts the noise: the image there is noise divided by zero.",
        (run.evidence(checks.SCHEDULE_LAST, "above 0, or v_prediction"),),
    )


RULES = (
    Rule(
        code="SCH001",
        cause="schedule.not-decreasing",
        title="A reversed schedule",
        what="The share of signal rises along the timesteps, or nearly all noise is added in the first ones.",
        why="Timesteps no longer go from little noise to much; what is learnt at t is used elsewhere.",
        similar="Betas near 1 at the end are healthy in a cosine schedule.",
        limits="Tables that are only slightly wrong.",
        fix="alphas_cumprod must fall from about 1 to about 0; betas must not fall.",
        needs=((checks.SCHEDULE_RISING, checks.SCHEDULE_BETAS_FALLING),),
        detect=look_not_decreasing,
    ),
    Rule(
        code="SCH002",
        cause="schedule.signal-left",
        title="A schedule that ends too early",
        what="Much of the image is left at the last timestep.",
        why="Sampling begins from pure noise: a distribution that was never trained on.",
        similar="Stable Diffusion's own table has 0.0047, and works.",
        limits="Less than 0.01.",
        fix="More timesteps, larger betas at the end (a cosine schedule is cut at 0.999, not at 0.02), or zero "
        "terminal SNR.",
        severity="warning",
        needs=(checks.SCHEDULE_LAST,),
        detect=look_signal_left,
    ),
    Rule(
        code="SCH003",
        cause="schedule.zero-snr-epsilon",
        title="Zero terminal SNR with epsilon prediction",
        what="ᾱ is 0 at the last timestep and the model predicts epsilon.",
        why="The image cannot be computed from the noise there: samples are NaN or blank.",
        similar="With v_prediction or sample it is the better schedule.",
        fix="Predict v, or leave a little signal.",
        needs=(checks.SCHEDULE_LAST, checks.SCHEDULE_EPSILON),
        detect=look_zero_snr,
    ),
)
