"""The sums that a plan beyond one machine is made of."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from bench.horizon import (
    BYTES,
    FAST,
    Moment,
    Network,
    efficiency,
    measure_moments,
    saving,
    seconds_of_sum,
    seconds_of_work,
    traffic,
)
from safelight.config.resolve import resolve

NETWORK = Network("some", 100_000_000, 1e12, 32)


def test_a_process_sends_nothing_alone_and_never_more_than_twice_the_gradient() -> None:
    assert traffic(1000, 1) == 0
    assert traffic(1000, 2) == 1000 * BYTES
    assert traffic(1000, 10**6) == pytest.approx(2 * 1000 * BYTES)


def test_a_slow_network_between_machines_is_felt_only_with_more_than_one_machine() -> None:
    slow = replace(FAST, between=1e9)
    assert seconds_of_sum(10**8, 8, slow) == seconds_of_sum(10**8, 8, FAST)
    assert seconds_of_sum(10**8, 16, slow) > 10 * seconds_of_sum(10**8, 16, FAST)


def test_what_is_hidden_behind_the_backward_pass_costs_nothing_but_the_last_bucket_always_something() -> None:
    assert efficiency(NETWORK, 1, FAST) == 1
    work, backward = seconds_of_work(NETWORK, FAST), 2 / 3 * seconds_of_work(NETWORK, FAST)
    together = seconds_of_sum(NETWORK.parameters, 64, FAST)
    assert efficiency(NETWORK, 64, FAST) == pytest.approx(work / (work + together / 10))
    early = replace(NETWORK, moments=(Moment(0.0, 1.0),))
    assert efficiency(early, 64, FAST) == 1
    thin = replace(FAST, between=1e8)
    waited = seconds_of_sum(NETWORK.parameters, 64, thin) - backward
    assert efficiency(early, 64, thin) == pytest.approx(work / (work + waited))


def test_buckets_that_are_full_late_hide_less() -> None:
    late = replace(NETWORK, moments=(Moment(0.7, 0.1), Moment(0.75, 0.8), Moment(1.0, 0.1)))
    slow = replace(FAST, between=8e9)
    assert efficiency(late, 64, slow) < efficiency(NETWORK, 64, slow) < 1
    assert efficiency(NETWORK, 64, slow, passes=4) < efficiency(NETWORK, 64, slow)


def test_moments_of_a_network_are_measured() -> None:
    config = resolve(preset="tiny", settings={"data.source": "shapes", "train.device": "cpu", "data.image_size": 16})
    moments = measure_moments(config)
    assert sum(moment.share for moment in moments) == pytest.approx(1)
    assert all(a.reached <= b.reached for a, b in itertools.pairwise(moments))
    assert 0 < moments[0].reached < moments[-1].reached <= 1


def test_the_interval_between_saves_is_the_best_there_is() -> None:
    """Longer or shorter, more is lost."""
    best = saving(NETWORK, 64, FAST)
    for factor in (0.5, 2.0):
        interval = best.interval * factor
        lost = best.stall / interval + (interval / 2 + FAST.restart) / best.between
        assert lost > best.lost
    assert saving(NETWORK, 1024, FAST).interval < best.interval
    assert saving(NETWORK, 64, replace(FAST, disk=1e6)).interval >= saving(NETWORK, 64, replace(FAST, disk=1e6)).written
