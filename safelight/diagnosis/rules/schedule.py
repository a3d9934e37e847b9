"""Schedules that cannot be right."""

from __future__ import annotations

from safelight import checks
from safelight.diagnosis.rule import error_rule, on_latest, warning_rule

MAX_SIGNAL_LEFT = 0.01  # ᾱ at the end: linear has 4e-5, cosine 2e-9, Stable Diffusion's 0.0047
MAX_FALLING_SHARE = 0.5


def _describe_reversed(rising: float, falling: float, first: float, last: float) -> str:
    what = (
        f"{rising:.0%} of its timesteps have more signal than the one before"
        if rising > 0
        else f"its betas fall at {falling:.0%} of the timesteps, so that nearly all noise comes first"
    )
    return f"The schedule is reversed: {what}. It goes from {first:.3g} to {last:.3g}."


RULES = (
    error_rule(
        "SCH001",
        "schedule.not-decreasing",
        "A reversed schedule",
        what="The share of signal rises along the timesteps, or nearly all noise is added in the first ones.",
        why="Timesteps no longer go from little noise to much; what is learnt at t is used elsewhere.",
        similar="Betas near 1 at the end are healthy in a cosine schedule.",
        limits="Tables that are only slightly wrong.",
        fix="alphas_cumprod must fall from about 1 to about 0; betas must not fall.",
        needs=(checks.SCHEDULE_RISING,),
        detect=on_latest(
            {checks.SCHEDULE_RISING: "0", checks.SCHEDULE_BETAS_FALLING: "0"},
            lambda rising, falling, *_: not (rising <= 0 and falling <= MAX_FALLING_SHARE),
            _describe_reversed,
            "large betas at the end: cosine schedules reach 0.999 there, as they should",
            also=(checks.SCHEDULE_FIRST, checks.SCHEDULE_LAST),
            step=0,
        ),
    ),
    warning_rule(
        "SCH002",
        "schedule.signal-left",
        "A schedule that ends too early",
        what="Much of the image is left at the last timestep.",
        why="Sampling begins from pure noise: a distribution that was never trained on.",
        similar="Stable Diffusion's own table has 0.0047, and works.",
        limits="Less than 0.01.",
        fix="Check that it is the cumulated product. More timesteps, larger betas at the end (a cosine schedule is cut "
        "at 0.999, not at 0.02), or zero terminal SNR.",
        needs=(checks.SCHEDULE_LAST,),
        detect=on_latest(
            {checks.SCHEDULE_LAST: "below 0.005"},
            lambda last, rising: not last <= MAX_SIGNAL_LEFT and not rising > 0,
            lambda last, _: (
                f"At the last timestep {last**0.5:.0%} of the image is still there (ᾱ = {last:.3g}). Sampling begins "
                "from pure noise, which the network never saw: samples get the brightness of the mean image, or worse."
            ),
            also=(checks.SCHEDULE_RISING,),
            step=0,
        ),
        explained_by="schedule.not-cumulated",
    ),
    error_rule(
        "SCH004",
        "schedule.not-cumulated",
        "alphas instead of their product",
        what="x_t is made of alphas = 1 − betas, and not of their cumulated product.",
        why="At nearly all timesteps the network is shown almost clean images; sampling begins from pure noise.",
        similar="A schedule that ends too early has a cumulated product that falls too slowly.",
        limits="Tables of unusual betas. Constant betas that are far too small look the same.",
        fix="alphas_cumprod = torch.cumprod(1 - betas, dim=0), and read that at t.",
        needs=(checks.SCHEDULE_UNCUMULATED,),
        detect=on_latest(
            {checks.SCHEDULE_UNCUMULATED: "0", checks.SCHEDULE_FIRST: None, checks.SCHEDULE_LAST: None},
            lambda flag, *_: flag == 1,
            "The table that x_t is made of, from {1:.6g} to {2:.4g}, is that of alphas = 1 − betas, and not of their "
            "cumulated product: nearly all timesteps have almost no noise.",
            "a schedule that ends too early: the product of these numbers is a usual schedule",
            step=0,
        ),
    ),
    error_rule(
        "SCH003",
        "schedule.zero-snr-epsilon",
        "Zero terminal SNR with epsilon prediction",
        what="ᾱ is 0 at the last timestep and the model predicts epsilon.",
        why="The image cannot be computed from the noise there: samples are NaN or blank.",
        similar="With v_prediction or sample it is the better schedule.",
        fix="Predict v, or leave a little signal.",
        needs=(checks.SCHEDULE_LAST, checks.SCHEDULE_EPSILON),
        detect=on_latest(
            {checks.SCHEDULE_LAST: "above 0, or v_prediction"},
            lambda last, epsilon: not last > 1e-14 and epsilon == 1,
            "The last timestep has no signal, and the model predicts the noise: the image there is noise divided by "
            "zero.",
            also=(checks.SCHEDULE_EPSILON,),
            step=0,
        ),
    ),
)
