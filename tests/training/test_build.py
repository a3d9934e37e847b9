"""What a config is refused for before anything is built, in words and with numbers."""

from __future__ import annotations

import pytest
from tiny import parts_of, tiny

from safelight.errors import UsageError
from safelight.training.build import check_divisible, check_micro_batches, out_of_memory


@pytest.mark.parametrize(
    ("batch", "micro_batches", "processes", "words"),
    [
        (8, 2, 4, None),
        (30, 1, 4, "Use 28 or 32"),
        (12, 8, 1, "Use 8 or 16"),
        (3, 2, 2, r"Use 4\."),  # nothing below
    ],
)
def test_a_batch_is_shared_evenly(batch: int, micro_batches: int, processes: int, words: str | None) -> None:
    if words is None:
        check_micro_batches(batch, micro_batches, processes)
    else:
        with pytest.raises(UsageError, match=words):
            check_micro_batches(batch, micro_batches, processes)


@pytest.mark.parametrize(("shards", "processes", "fits"), [(4, 2, True), (4, 4, True), (4, 3, False), (None, 3, False)])
def test_shards_are_shared_evenly(shards: int | None, processes: int, fits: bool) -> None:
    config = tiny(train__shards=shards)
    if fits:
        check_divisible(config, processes)
    else:
        with pytest.raises(UsageError, match="3 processes"):
            check_divisible(config, processes)


def test_a_setup_has_numbers_where_the_config_says_auto() -> None:
    setup = parts_of(train__accumulate="auto")
    assert (setup.config.train.accumulate, setup.config.data.channels, setup.config.data.classes) == (1, 1, 10)
    assert (setup.is_sharded, setup.group.size) == (False, 1)


@pytest.mark.parametrize(("settings", "words"), [({}, "micro-batches of 8"), ({"train__shards": 4}, "shards of 2")])
def test_what_did_not_fit_is_named(settings: dict[str, int], words: str) -> None:
    assert words in str(out_of_memory(tiny(**settings)))
