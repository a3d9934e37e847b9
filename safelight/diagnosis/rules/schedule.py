"""Tables of noise levels that cannot be right."""

from __future__ import annotations

from safelight.diagnosis.case import Case
from safelight.diagnosis.rule import Rule, Seen

LEFT = 0.01  # ᾱ at the end: linear has 4e-5, cosine 2e-9, Stable Diffusion's 0.0047
FALLING = 0.5


def look_not_decreasing(case: Case) -> Seen | None:
    rising, falling = case.newest("schedule/rising", 0.0), case.newest("schedule/betas_falling", 0.0)
    first, last = case.newest("schedule/first"), case.newest("schedule/last")
    if rising <= 0 and falling <= FALLING:
        return None
    what = (
        f"{rising:.0%} of its steps have more signal than the one before"
        if rising > 0
        else f"its betas fall in {falling:.0%} of the steps, so that nearly all noise comes at the beginning"
    )
    return Seen(
        0,
        f"The schedule is the wrong way round: {what}. It goes from {first:.3g} to {last:.3g}.",
        (case.evidence("schedule/rising", "0"), case.evidence("schedule/betas_falling", "0")),
        ("large betas at the end: cosine schedules reach 0.999 there, and rightly",),
    )


def look_signal_left(case: Case) -> Seen | None:
    last = case.newest("schedule/last", 0.0)
    if last <= LEFT or case.newest("schedule/rising", 0.0) > 0:
        return None
    return Seen(
        0,
        f"At the last timestep {last**0.5:.0%} of the image is still there (ᾱ = {last:.3g}). Sampling begins from pure "
        "noise, which the network never saw: samples get the brightness of the average image, or worse.",
        (case.evidence("schedule/last", "below 0.005"),),
    )


def look_zero_snr(case: Case) -> Seen | None:
    if case.newest("schedule/last", 1.0) > 1e-14 or case.newest("schedule/epsilon", 0.0) != 1:
        return None
    return Seen(
        0,
        "The last timestep holds no signal at all, and the model predicts the noise: there the image is noise divided "
        "by zero.",
        (case.evidence("schedule/last", "above 0, or v_prediction"),),
    )


RULES = (
    Rule(
        code="SCH001",
        cause="schedule.not-decreasing",
        title="A schedule the wrong way round",
        what="The share of signal rises along the timesteps, or nearly all noise is added in the first ones.",
        why="Timesteps no longer go from little noise to much; what is learnt at t is asked for elsewhere.",
        alike="Betas near 1 at the end are healthy in a cosine schedule.",
        misses="Tables that are only a little off.",
        fix="alphas_cumprod must fall from about 1 to about 0; betas must not fall.",
        look=look_not_decreasing,
    ),
    Rule(
        code="SCH002",
        cause="schedule.signal-left",
        title="A schedule that ends too early",
        what="Much of the image is left at the last timestep.",
        why="Sampling begins from pure noise: a distribution that was never trained on.",
        alike="Stable Diffusion's own table has 0.0047, and lives with it.",
        misses="Less than 0.01.",
        fix="More timesteps, larger betas at the end (a cosine schedule is cut at 0.999, not at 0.02), or zero "
        "terminal SNR.",
        severity="warning",
        look=look_signal_left,
    ),
    Rule(
        code="SCH003",
        cause="schedule.zero-snr-epsilon",
        title="No signal at the end, and the noise is predicted",
        what="ᾱ is 0 at the last timestep and the model predicts epsilon.",
        why="The image cannot be computed from the noise there: samples are NaN or empty.",
        alike="With v_prediction or sample it is the better schedule.",
        misses="",
        fix="Predict v, or leave a little signal.",
        look=look_zero_snr,
    ),
)
