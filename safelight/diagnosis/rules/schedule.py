"""Schedules that cannot be right."""

from __future__ import annotations

from safelight import checks
from safelight.diagnosis.case import Case
from safelight.diagnosis.rule import Rule, Seen

LEFT = 0.01  # ᾱ at the end: linear has 4e-5, cosine 2e-9, Stable Diffusion's 0.0047
FALLING = 0.5


def look_not_decreasing(case: Case) -> Seen | None:
    rising, falling = case.latest(checks.SCHEDULE_RISING, 0.0), case.latest(checks.SCHEDULE_BETAS_FALLING, 0.0)
    first, last = case.latest(checks.SCHEDULE_FIRST), case.latest(checks.SCHEDULE_LAST)
    if rising <= 0 and falling <= FALLING:
        return None
    what = (
        f"{rising:.0%} of its timesteps have more signal than the one before"
        if rising > 0
        else f"its betas fall at {falling:.0%} of the timesteps, so that nearly all noise comes first"
    )
    return Seen(
        0,
        f"The schedule is reversed: {what}. It goes from {first:.3g} to {last:.3g}.",
        (case.evidence(checks.SCHEDULE_RISING, "0"), case.evidence(checks.SCHEDULE_BETAS_FALLING, "0")),
        ("large betas at the end: cosine schedules reach 0.999 there, as they should",),
    )


def look_signal_left(case: Case) -> Seen | None:
    last = case.latest(checks.SCHEDULE_LAST, 0.0)
    if last <= LEFT or case.latest(checks.SCHEDULE_RISING, 0.0) > 0:
        return None
    return Seen(
        0,
        f"At the last timestep {last**0.5:.0%} of the image is still there (ᾱ = {last:.3g}). Sampling begins from pure "
        "noise, which the network never saw: samples get the brightness of the mean image, or worse.",
        (case.evidence(checks.SCHEDULE_LAST, "below 0.005"),),
    )


def look_zero_snr(case: Case) -> Seen | None:
    if case.latest(checks.SCHEDULE_LAST, 1.0) > 1e-14 or case.latest(checks.SCHEDULE_EPSILON, 0.0) != 1:
        return None
    return Seen(
        0,
        "The last timestep has no signal, and the model predicts the noise: the image there is noise divided by zero.",
        (case.evidence(checks.SCHEDULE_LAST, "above 0, or v_prediction"),),
    )


RULES = (
    Rule(
        code="SCH001",
        cause="schedule.not-decreasing",
        title="A reversed schedule",
        what="The share of signal rises along the timesteps, or nearly all noise is added in the first ones.",
        why="Timesteps no longer go from little noise to much; what is learnt at t is used elsewhere.",
        alike="Betas near 1 at the end are healthy in a cosine schedule.",
        misses="Tables that are only slightly wrong.",
        fix="alphas_cumprod must fall from about 1 to about 0; betas must not fall.",
        needs=((checks.SCHEDULE_RISING, checks.SCHEDULE_BETAS_FALLING),),
        look=look_not_decreasing,
    ),
    Rule(
        code="SCH002",
        cause="schedule.signal-left",
        title="A schedule that ends too early",
        what="Much of the image is left at the last timestep.",
        why="Sampling begins from pure noise: a distribution that was never trained on.",
        alike="Stable Diffusion's own table has 0.0047, and works.",
        misses="Less than 0.01.",
        fix="More timesteps, larger betas at the end (a cosine schedule is cut at 0.999, not at 0.02), or zero "
        "terminal SNR.",
        severity="warning",
        needs=(checks.SCHEDULE_LAST,),
        look=look_signal_left,
    ),
    Rule(
        code="SCH003",
        cause="schedule.zero-snr-epsilon",
        title="Zero terminal SNR with epsilon prediction",
        what="ᾱ is 0 at the last timestep and the model predicts epsilon.",
        why="The image cannot be computed from the noise there: samples are NaN or blank.",
        alike="With v_prediction or sample it is the better schedule.",
        fix="Predict v, or leave a little signal.",
        needs=(checks.SCHEDULE_LAST, checks.SCHEDULE_EPSILON),
        look=look_zero_snr,
    ),
)
