"""What is found among all objects that live, while other threads go on."""

from __future__ import annotations

import gc
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from safelight.capturing.living import averages_like, held_by_others, living, optimizer_of, whole_of


@pytest.fixture
def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))


@pytest.mark.parametrize("kind", [list, tuple, dict, OrderedDict])
def test_averages_are_found_in_containers_of_all_kinds(kind: type, network: nn.Module) -> None:
    copies = {name: p.detach().clone() for name, p in network.named_parameters()}
    average = kind(copies.values()) if kind in (list, tuple) else kind(copies)
    holder = SimpleNamespace(shadow=average)
    lazy = nn.LazyLinear(2)  # its weight has no shape
    found = averages_like(network)
    assert any(each is holder.shadow for each in found)
    assert lazy is not None


def test_an_average_that_is_a_module_is_found_and_the_network_is_not(network: nn.Module) -> None:
    average = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    found = averages_like(network)
    assert any(each is average for each in found)
    assert not any(each is network for each in found)


def test_optimizers_of_any_subclass_are_found(network: nn.Module) -> None:
    class Mine(torch.optim.SGD):
        pass

    optimizer = Mine(network.parameters(), lr=0.1)
    assert optimizer_of(network) is optimizer


def tuples_beside(look: Callable[[], Any], looks: int) -> list[BaseException]:
    """What goes wrong in a thread that builds tuples, as sqlite's cursors and many libraries do, beside looks."""
    ended, failed = threading.Event(), list[BaseException]()

    def items() -> Iterator[int]:
        yield from range(200)

    def build() -> None:
        while not ended.is_set() and not failed:
            try:
                tuple(items())
            except BaseException as error:
                failed.append(error)

    thread, interval = threading.Thread(target=build), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for _ in range(looks):
            look()
            if failed:
                break
    finally:
        sys.setswitchinterval(interval)
        ended.set()
        thread.join()
    return failed


def test_other_threads_are_not_disturbed(network: nn.Module) -> None:
    def look() -> None:
        living(torch.optim.Optimizer)
        averages_like(network)

    assert tuples_beside(look, 10) == []


def test_a_list_of_all_objects_would_disturb_them() -> None:
    """The control: objects that are held while other threads have their turn."""
    failed = tuples_beside(lambda: [each for each in gc.get_objects() if type(each) is set], 1000)
    assert isinstance(failed[0], SystemError)


def test_what_another_optimizer_holds_is_known(network: nn.Module) -> None:
    first, last = network[0], network[1]  # type: ignore[index]
    one, other = torch.optim.SGD(first.parameters()), torch.optim.SGD(last.parameters())
    assert {id(p) for p in last.parameters()} <= held_by_others(one)
    assert not {id(p) for p in last.parameters()} & held_by_others(other)


def test_the_whole_of_a_part_is_the_smallest_that_the_optimizer_trains(network: nn.Module) -> None:
    larger = nn.ModuleList([network, nn.Linear(64, 64)])
    optimizer = torch.optim.SGD(network.parameters())
    assert whole_of(network[1], optimizer) is network  # type: ignore[index]
    assert whole_of(network, optimizer) is None
    assert len(larger) == 2
