"""The sums that a plan beyond one machine is made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.horizon import BYTES, FAST, Network, efficiency, saving, seconds_of_sum, seconds_of_work, traffic

NETWORK = Network("some", 100_000_000, 1e12, 32)


def test_a_process_sends_nothing_alone_and_never_more_than_twice_the_gradient() -> None:
    assert traffic(1000, 1) == 0
    assert traffic(1000, 2) == 1000 * BYTES
    assert traffic(1000, 10**6) == pytest.approx(2 * 1000 * BYTES)


def test_a_slow_network_between_machines_is_felt_only_with_more_than_one_machine() -> None:
    slow = replace(FAST, between=1e9)
    assert seconds_of_sum(10**8, 8, slow) == seconds_of_sum(10**8, 8, FAST)
    assert seconds_of_sum(10**8, 16, slow) > 10 * seconds_of_sum(10**8, 16, FAST)


def test_what_is_hidden_behind_the_backward_pass_costs_nothing_and_the_exact_sum_always_something() -> None:
    assert efficiency(NETWORK, 1, FAST, hidden=False) == 1
    assert efficiency(NETWORK, 64, FAST, hidden=True) == 1
    assert 0.5 < efficiency(NETWORK, 64, FAST, hidden=False) < 1
    thin = replace(FAST, between=1e8)
    waited = seconds_of_sum(NETWORK.parameters, 64, thin) - 2 / 3 * (work := seconds_of_work(NETWORK, FAST))
    assert efficiency(NETWORK, 64, thin, hidden=True) == pytest.approx(work / (work + waited))


def test_the_interval_between_saves_is_the_best_there_is() -> None:
    """Longer or shorter, more is lost."""
    best = saving(NETWORK, 64, FAST)
    for factor in (0.5, 2.0):
        interval = best.interval * factor
        lost = best.stall / interval + (interval / 2 + FAST.restart) / best.between
        assert lost > best.lost
    assert saving(NETWORK, 1024, FAST).interval < best.interval
    assert saving(NETWORK, 64, replace(FAST, disk=1e6)).interval >= saving(NETWORK, 64, replace(FAST, disk=1e6)).written
