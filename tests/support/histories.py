"""Hand-written histories: what a sound run records, and how to change it."""

from __future__ import annotations

from typing import Any

import numpy as np

STEPS = np.arange(128)
LOOKS = np.array([1, 4, 16, 32, 48, 64, 96])  # where the line is searched

Series = dict[str, tuple[Any, Any]]
Event = tuple[int, str, dict[str, Any]]


def chance(low: float, high: float, count: int = 128, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, count)


def checks(**answers: Any) -> Series:
    """Answers of probes, `/` written as `__`: one number (at step 0), several (from step 0 on), or (steps, numbers)."""
    found: Series = {}
    for name, value in answers.items():
        if not isinstance(value, tuple):
            numbers = np.atleast_1d(np.asarray(value, np.float64))
            value = np.arange(len(numbers)), numbers
        found[f"check/{name.replace('__', '/')}"] = value
    return found


def measured(**series: Any) -> Series:
    """Readings of monitors, `/` written as `__`."""
    return {name.replace("__", "/"): value for name, value in series.items()}


MONITORS: Series = measured(
    loss__mean=(STEPS, 1 / (1 + STEPS)),
    gradient__norm=(STEPS, np.full(128, 0.3)),
    gradient__part__conv_in=(STEPS, np.where(STEPS == 0, 0.0, 0.2)),  # an output layer of zeros
    gradient__part__conv_out=(STEPS, np.full(128, 0.2)),
    optimizer__lr=(STEPS, np.full(128, 1e-3)),
    update__ratio__conv_in=([0, 64], [0.0, 1e-3]),
    update__ratio__conv_out=([0, 64], [1e-3, 1e-3]),
    update__refused=(STEPS, np.zeros(128)),
    precision__scale=(STEPS, np.ones(128)),
    speed__data_wait=(np.arange(0, 128, 16), np.full(8, 0.01)),
    copies__share=([31, 63, 127], [0.0, 0.004, 0.0]),
    copies__chance=([31, 63, 127], [1.0, 0.3, 1.0]),
)

ERROR = 0.3 + 0.7 / (1 + STEPS / 8)  # begins at the zero predictor's, as an output layer of zeros has it

PROBES: Series = checks(
    schedule__betas_falling=0, schedule__rising=0, schedule__first=0.9999, schedule__last=4e-5, schedule__epsilon=1,
    schedule__timesteps=1000, schedule__uncumulated=0,
    optimizer__missing=0, optimizer__foreign=0, optimizer__frozen=0, optimizer__maximize=0,
    optimizer__weight_decay=0.01, optimizer__half_weights=0, optimizer__forgotten=(np.arange(1, 16), np.zeros(15)),
    data__images=512, data__nonfinite=0, data__lowest=-1, data__highest=1, data__blank=0, data__duplicates=0,
    data__largest_group=1 / 512, data__integer=0, data__held_out_overlap=0,
    target__declared=0, precision__scaled=0,
    batch__mean=chance(-0.35, -0.25), batch__std=chance(0.68, 0.72, seed=1), batch__lowest=np.full(128, -1.0),
    batch__highest=np.full(128, 1.0), batch__integer=0, batch__dimensions=4,
    noise__mean=chance(-0.01, 0.01, 16), noise__std=chance(0.99, 1.01, 16), noise__kurtosis=chance(2.9, 3.1, 16),
    noise__count=np.full(16, 8192.0), noise__within=np.ones(16), noise__between=np.ones(16),
    forward__wrong=np.zeros(16), forward__error=np.full(16, 1e-7), forward__residual=np.full(16, 1e-7),
    forward__noise_seen=np.full(16, 0.7), forward__clean=np.full(16, 0.7), forward__order=np.full(16, 1e-7),
    forward__order_error=np.full(16, 1e-7), forward__rough=np.full(16, 0.1), forward__at_limit=np.full(16, 1e-3),
    forward__input_error=np.zeros(16), timesteps__passed_on=np.ones(16),
    forward__clean_root=np.full(16, 0.1), forward__noise_root=np.full(16, 0.1),
    target__epsilon=np.zeros(16), target__sample=np.full(16, 1.5), target__v_prediction=np.full(16, 1.0),
    target__epsilon_cosine=np.ones(16), target__sample_cosine=np.zeros(16),
    target__v_prediction_cosine=np.full(16, 0.6),
    loss__error=ERROR, loss__zero=np.ones(128), loss__told=ERROR, loss__same_shape=1,
    stream__times_drawn=([0, 127], [8.0, 1024.0]), stream__times_gap=([0, 127], [0.5, 0.03]),
    stream__times_lowest=([0, 127], [90.0, 1.0]), stream__times_highest=([0, 127], [800.0, 998.0]),
    stream__different=([0, 127], [8.0, 900.0]), stream__drawn=([0, 127], [8.0, 1024.0]),
    network__finite=1, network__square=0, network__silent=0, network__sunk=0, network__random=0, network__dropout=0.1,
    network__depends_on_mode=1, network__zero_weights=0.05, network__reached=1, network__matrices_reached=1,
    network__rehearsed=0.97, network__time_response=0.1, network__time_collision=-0.1, network__coupling=0,
    network__response=0.5, network__unused=0, network__loudest=1e5, network__one_sided=0,
    sampler__finite=1, sampler__calls=20, sampler__left=1e-7, sampler__scale=1, sampler__shift=0, sampler__share=0.5,
    sampler__largest=0.66, sampler__reach=0.66, sampler__at_limit=1e-3, sampler__error=1e-7, sampler__first=1,
    sampler__last=0, sampler__highest_time=999, sampler__falling=1, sampler__start=1, sampler__path=1.05,
    sampler__cloud_spread=0.9, sampler__in_training=0, sampler__with_gradients=0, sampler__guidance=0,
    checkpoint__model=0, checkpoint__average=0, checkpoint__optimizer=0, checkpoint__step=0,
    replay__cosine=np.ones(3), replay__ratio=np.ones(3), replay__norm=np.full(3, 0.3), replay__own_norm=np.full(3, 0.3),
    replay__came=np.full(3, 0.1), replay__missing=np.zeros(3), replay__vanished=np.zeros(3),
    replay__micro_batches=np.ones(3), replay__told=ERROR[:3], replay__error=ERROR[:3], replay__zero=np.ones(3),
    replay__output_error=np.zeros(3), replay__carried=([1, 2], [0.0, 0.01]), replay__explained=([1, 2], [1.0, 1.0]),
    update__moved=np.full(3, 1e-2), update__expected=np.full(3, 1e-2), update__error=np.zeros(3),
    update__alignment=np.full(3, 0.8), update__lost=np.zeros(3), update__decay_share=np.full(3, 0.01),
    update__coarse=np.zeros(3), update__weights=np.full(3, 10.0),
    search__1=(LOOKS, np.full(7, 0.95)), search__10=(LOOKS, np.full(7, 1.5)),
    search__100=(LOOKS, np.full(7, 30.0)), search__start=(LOOKS, np.full(7, 0.5)), search__zero=(LOOKS, np.ones(7)),
    search__rate=(LOOKS, np.full(7, 1e-3)),
    sentinel__moved=np.ones(128), sentinel__gradient=np.full(128, 0.1), sentinel__echo=np.zeros(128),
    average__decay=([1, 2, 3, 16, 32], [0.5, 0.6, 0.7, 0.9, 0.95]),
    average__moved=([1, 2, 3, 16, 32], np.full(5, 0.01)),
    average__left=([1, 2, 3, 16, 32], np.full(5, 1e-6)), average__distance=([1, 2, 3, 16, 32], np.full(5, 0.1)),
    average__coarse=([1, 2, 3, 16, 32], np.zeros(5)), average__between=([1, 2], [0.0, 0.0]),
    mode__training=np.ones(128), precision__half=np.zeros(128), accumulation__micro_batches=1,
) | {f"check/search/{length}": (LOOKS, np.full(7, number)) for length, number in (("0.1", 0.99), ("0.3", 0.98), ("3", 1.1))}  # fmt: skip  # noqa: E501

HEALTHY: Series = MONITORS | PROBES

LABELS: Series = checks(
    network__label_rows=11, network__label_response=0.2, stream__labels_kinds=10, stream__labels_drawn=1024,
    stream__labels_neighbours=0.1, stream__labels_neighbours_expected=0.1, stream__labels_pairs=896,
    stream__labels_hidden=0.1, stream__shown_kinds=11, stream__shown_lowest=0, stream__shown_highest=10,
    labels__gain=(LOOKS, np.full(7, 0.05)), labels__gain_error=(LOOKS, np.full(7, 0.002)),
    labels__error=(LOOKS, np.full(7, 0.35)),
)  # fmt: skip
"""What a run with labels records beside: ten classes, and a row for no label that a tenth of the samples is shown."""


def refusals(steps: Any, *, overflow: bool = False) -> list[Event]:
    return [(int(step), "refused", {"overflow": overflow, "nonfinite_gradients": ["conv_in.weight"]}) for step in steps]


def broken(steps: Any) -> tuple[Event, ...]:
    """Updates of a loop that is not ours, with gradients that were not finite."""
    return tuple((int(step), "nonfinite", {"parameters": ["conv_in.weight"], "count": 1}) for step in steps)


def flagged(steps: Any) -> tuple[np.ndarray, np.ndarray]:
    return STEPS, np.isin(STEPS, list(steps)).astype(float)
