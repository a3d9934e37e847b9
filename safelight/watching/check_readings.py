"""Readings of a few steps under plain names, with what a healthy loop has. Does not import torch."""

from __future__ import annotations

from collections.abc import Callable

from safelight import checks
from safelight.checks import ProbeReading
from safelight.diagnosis.rules.sampler import FEWEST_CALLS
from safelight.diagnosis.run_history import name_of
from safelight.watching.check_report import Row, state_of

TINY = 1e-12

# (part, name, reading, healthy range); the row is shown where the reading is there.
READINGS: tuple[tuple[str, str, ProbeReading, str], ...] = (
    ("output", "error over that of predicting 0", checks.LOSS_MSE, "untrained about 1, always below 2"),
    ("output", "randomness in evaluation mode", checks.NETWORK_RANDOM, "0"),
    ("gradients", "share of parameters with a gradient", checks.NETWORK_REACHED, "1"),
    ("gradients", "largest share of dead units", checks.NETWORK_SILENT, "below 0.5"),
    ("gradients", "loss after a few updates on a copy", checks.NETWORK_REHEARSED, "below 1"),
    ("timesteps", "response, after a few updates", checks.NETWORK_TIME_RESPONSE, "above 1e-6"),
    ("timesteps", "least cosine of two embeddings", checks.NETWORK_TIME_COLLISION, "below 0.99"),
    ("labels", "response, after a few updates", checks.NETWORK_LABEL_RESPONSE, "above 1e-6"),
    ("labels", "rows of the embedding", checks.NETWORK_LABEL_ROWS, ""),
    ("schedule", "timesteps", checks.SCHEDULE_TIMESTEPS, ""),
    ("schedule", "first alphas_cumprod", checks.SCHEDULE_FIRST, "about 1"),
    ("schedule", "last alphas_cumprod", checks.SCHEDULE_LAST, "about 0"),
    ("schedule", "share of steps at which it rises", checks.SCHEDULE_RISING, "0"),
    ("schedule", "largest jump of log-SNR", checks.SCHEDULE_LARGEST_JUMP, ""),
    ("images", "lowest", checks.DATA_LOWEST, "-1"),
    ("images", "highest", checks.DATA_HIGHEST, "1"),
    ("images", "mean", checks.DATA_MEAN, ""),
    ("images", "standard deviation", checks.DATA_STD, ""),
    ("samples", "error with a network that knows the answer", checks.SAMPLER_LEFT, f"below {checks.SAMPLER_LIMIT}"),
    ("samples", "calls of the network", checks.SAMPLER_CALLS, ""),
    ("optimizer", "learning rate", checks.OPTIMIZER_RATE, ""),
    ("optimizer", "share of parameters it lacks", checks.OPTIMIZER_MISSING, "0"),
    ("optimizer", "loss after its update", checks.LINE_SEARCH_RATIO["1"], "below 1"),
)
ALSO: dict[ProbeReading, tuple[ProbeReading, ...]] = {
    checks.NETWORK_TIME_RESPONSE: (checks.RESPONSE["t"],),
    checks.NETWORK_LABEL_RESPONSE: (checks.RESPONSE["labels"],),
    checks.LOSS_MSE: (checks.LOSS_ZERO_MSE, checks.LOSS_SLOPE),
    checks.DATA_LOWEST: (checks.BATCH_LOWEST,),
    checks.DATA_HIGHEST: (checks.BATCH_HIGHEST,),
    checks.DATA_STD: (checks.BATCH_STD,),
}


def rows_of_readings(first: Callable[[ProbeReading], float | None]) -> list[Row]:
    """`first`: a reading at its earliest step, at which the model is still as it came; None if it was not taken."""
    rows = []
    for part, name, check, usual in READINGS:
        if (value := first(check)) is None:
            continue
        if check == checks.LOSS_MSE:
            value /= max(first(checks.LOSS_ZERO_MSE) or 1.0, TINY)
        note = f"healthy: {usual}" if usual else ""
        dead = check == checks.NETWORK_REACHED and value == 0
        note = "the output has no gradient: look for detach() and no_grad() in the forward pass" if dead else note
        if check == checks.SAMPLER_LEFT and (first(checks.SAMPLER_CALLS) or FEWEST_CALLS) < FEWEST_CALLS:
            usual, note = "", f"not judged: fewer than {FEWEST_CALLS} calls"
        state = "finding" if dead else state_of(value, usual)
        proof = tuple(name_of(each) for each in (check, *ALSO.get(check, ())))
        rows.append(Row(part, name, value, state, note, proof))
    return rows
