"""What comes back, what never comes, and labels in order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from micro_batches import micro_batch

from safelight.probes.draw_history import MAX_FINGERPRINTS, DrawHistory, fingerprints
from safelight.probes.forward_pass import Call


def readings_of(**streams: np.ndarray) -> dict[str, float]:
    """All that was told; each stream is [steps, samples]."""
    stream, readings = DrawHistory(1000), dict[str, float]()
    for step in range(16):
        for name, value in stream.add_step(**{name: values[step] for name, values in streams.items()}).items():
            readings[name] = max(readings.get(name, 0.0), value) if name.endswith(("again", "alike")) else value
    return readings


RANDOM = np.random.default_rng(0)
NEW = RANDOM.normal(size=(16, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "prints", "again", "alike"),
    [
        ("always new", NEW, 0, 0),
        ("always the same", np.repeat(NEW[:1], 16, 0), 1, 1),
        ("two in turn", np.tile(NEW[:2], (8, 1)), 1, 0),
        ("one number differs", NEW[0] + np.arange(16, dtype=np.float32)[:, None] * [0, 0, 0, 1e-3], 0, 0),
    ],
)
@pytest.mark.parametrize("of", ["noise", "images"])
def test_what_comes_back(name: str, prints: np.ndarray, again: float, alike: float, of: str) -> None:
    readings = readings_of(**{of: prints})
    assert (readings[f"stream/{of}_again"], readings[f"stream/{of}_alike"]) == (again, alike)


def test_prints_differ_where_batches_do() -> None:
    one, same, other = (fingerprints(micro_batch(seed)) for seed in (1, 1, 2))
    for name in ("noise", "images", "times"):
        assert torch.equal(one[name], same[name])
        assert not torch.equal(one[name], other[name])
    turned = fingerprints(micro_batch(1, x0=micro_batch(1).x0.flip(3)))  # type: ignore[union-attr]
    assert not torch.equal(one["images"], turned["images"])


@pytest.mark.parametrize(
    ("name", "times", "gap", "again"),
    [
        ("uniform", RANDOM.integers(0, 1000, (16, 64)), 0.0, 0),
        ("the first half", RANDOM.integers(0, 500, (16, 64)), 0.5, 0),
        ("without the end", RANDOM.integers(0, 900, (16, 64)), 6 / 64, 0),
        ("all the same again", np.repeat(RANDOM.integers(0, 1000, (1, 64)), 16, 0), None, 1),
    ],
)
def test_timesteps(name: str, times: np.ndarray, gap: float | None, again: float) -> None:
    readings = readings_of(times=times.astype(np.float64))
    assert readings["stream/times_again"] == again
    assert readings["stream/times_lowest"] == times.min()
    assert readings["stream/times_highest"] == times.max()
    if gap is not None:
        assert readings["stream/times_gap"] == pytest.approx(gap, abs=1 / 64)


@pytest.mark.parametrize(
    ("highest", "outside"),
    [
        (999, False),
        (1000, True),
        (1001, True),
        (-1, True),
    ],
)
def test_timesteps_that_the_schedule_does_not_have(highest: int, outside: bool) -> None:
    readings = DrawHistory(1000).add_step(times=np.array([5.0, 7.0, 9.0, highest]))
    assert ("stream/times_outside" in readings) == outside


def test_few_timesteps_may_come_back_by_chance() -> None:
    assert "stream/times_again" not in readings_of(times=np.ones((16, 2)))


def test_without_a_table_timesteps_are_still_compared() -> None:
    stream = DrawHistory(None)
    assert stream.add_step(times=np.arange(8.0))["stream/times_again"] == 0
    assert stream.add_step(times=np.arange(8.0))["stream/times_again"] == 1


@pytest.mark.parametrize(
    ("name", "labels", "neighbours", "expected"),
    [
        ("shuffled", RANDOM.integers(0, 10, (16, 64)), 0.1, 0.1),
        ("in order", np.sort(RANDOM.integers(0, 10, 1024)).reshape(16, 64), 0.99, 0.1),
        ("one class", np.zeros((16, 64)), 1.0, 1.0),
        ("unequal classes", (RANDOM.random((16, 64)) < 0.1).astype(float), 0.82, 0.82),
    ],
)
def test_neighbours_among_labels(name: str, labels: np.ndarray, neighbours: float, expected: float) -> None:
    readings = readings_of(labels=labels)
    assert readings["stream/labels_neighbours"] == pytest.approx(neighbours, abs=0.04)
    assert readings["stream/labels_neighbours_expected"] == pytest.approx(expected, abs=0.04)
    assert readings["stream/labels_drawn"] == 1024


def test_labels_that_are_hidden_from_the_network() -> None:
    labels = RANDOM.integers(0, 10, (16, 64)).astype(float)
    hidden = np.where(RANDOM.random((16, 64)) < 0.1, 10, labels)
    readings = readings_of(labels=labels, shown_labels=hidden)
    assert readings["stream/labels_hidden"] == pytest.approx(0.1, abs=0.04)
    assert (readings["stream/shown_kinds"], readings["stream/shown_highest"]) == (11, 10)
    assert readings["stream/labels_kinds"] == 10
    assert readings_of(labels=labels, shown_labels=np.full((16, 64), 10.0))["stream/labels_hidden"] == 1


def test_labels_of_the_call_stand_in_for_those_not_told() -> None:
    readings = readings_of(shown_labels=RANDOM.integers(0, 3, (16, 64)).astype(float))
    assert (readings["stream/labels_kinds"], readings["stream/labels_hidden"]) == (3, 0)


def test_different_images_are_counted() -> None:
    samples = RANDOM.normal(size=(8, 1)).astype(np.float32)
    readings = readings_of(images=np.stack([samples[RANDOM.permutation(8)[:4], 0] for _ in range(16)]))
    assert (readings["stream/different"], readings["stream/drawn"]) == (8, 64)


def test_images_of_a_step_are_counted_beyond_what_is_remembered() -> None:
    stream, readings = DrawHistory(1000), dict[str, float]()
    for step in range(16):
        images = np.arange(1024, dtype=np.float32)[: 1024 if step % 4 else 512] + 1024 * step
        readings |= stream.add_step(images=images)
    assert readings["stream/per_step"] == (12 * 1024 + 4 * 512) / 16
    assert readings["stream/drawn"] < 16 * 512


def test_counts_are_told_now_and_then_only() -> None:
    stream = DrawHistory(1000)
    readings = [step for step in range(40) if "stream/times_drawn" in stream.add_step(times=np.arange(8.0) + step)]
    assert readings == [0, 1, 3, 7, 15, 31]


def test_memory_is_bounded() -> None:
    stream = DrawHistory(1000)
    for step in range(MAX_FINGERPRINTS + 10):
        stream.add_step(noise=np.array([step], np.float32))
    assert len(stream._hashes["noise"]) == MAX_FINGERPRINTS


def test_prints_of_what_was_told_only() -> None:
    bare = micro_batch(x0=None, noise=None, t=None)
    assert fingerprints(bare) == {}
    called = micro_batch(
        x0=None, noise=None, t=None, call=Call((torch.zeros(4, 2), torch.arange(4), torch.arange(4)), {})
    )
    assert set(fingerprints(called)) == {"times", "shown_labels"}
