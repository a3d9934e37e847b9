"""What is drawn is what was recorded, at every zoom: no spike and no NaN lost, and a trend that does not move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from safelight.pages.data.series import MOST_NEW, delta, heatmap, newer, series
from safelight.record.history import History, open_history
from safelight.record.smoothing import exponential_mean
from safelight.record.store import RecordWriter

STEPS = 20_000


@pytest.fixture(scope="module")
def numbers() -> np.ndarray:
    draw = np.random.default_rng(1)
    found = draw.normal(size=STEPS).astype(np.float32)
    found[[777, 12_345]] = np.nan, np.inf
    found[15_001] = 1000.0
    return found


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, numbers: np.ndarray) -> Path:
    path = tmp_path_factory.mktemp("curves") / "record.sqlite"
    record = RecordWriter(path, from_step=0, say=print)
    for part in np.array_split(np.arange(STEPS), 10):
        record.add_window(part, ("a",), numbers[part][:, None])
    for step in range(63, STEPS, 64):
        record.add(step, {f"loss/level/{level:02d}": level + step / STEPS for level in range(16) if level != 3})
    record.add(STEPS - 1, {"late": 1.0})
    record.close()
    return path


@pytest.fixture
def history(path: Path):
    with open_history(path) as found:
        yield found


@pytest.mark.parametrize("pixels", [8, 50, 333, 800, 4000])
@pytest.mark.parametrize(("first", "last"), [(None, None), (0, 99), (700, 15_100), (12_345, 12_345), (19_000, 10**9)])
def test_spans_hold_all_that_lies_in_them(history, numbers, pixels, first, last) -> None:
    found = series(history, ["a"], first, last, pixels)["series"]["a"]
    low, high = first or 0, min(STEPS - 1, STEPS if last is None else last)
    assert found["x"][0] == low
    assert found["end"][-1] == high
    assert min(pixels, high - low + 1) / 2 - 1 <= len(found["x"]) <= pixels
    assert found["x"][1:] == [end + 1 for end in found["end"][:-1]]  # no gap, no overlap
    columns = [found[key] for key in ("x", "end", "low", "high", "mean", "nonfinite")]
    for x, end, lowest, highest, mean, bad in zip(*columns, strict=True):
        part = numbers[x : end + 1].astype(np.float64)
        kept = part[np.isfinite(part)]
        assert bad == len(part) - len(kept)
        if len(kept):
            assert (lowest, highest) == pytest.approx((kept.min(), kept.max()), rel=1e-5)
            assert mean == pytest.approx(kept.mean(), rel=1e-4, abs=1e-5)
        else:
            assert lowest is highest is mean is None


def test_a_grid_stays_in_place_while_the_run_grows(history: History) -> None:
    short = series(history, ["a"], 0, 15_000, 100)["series"]["a"]
    long = series(history, ["a"], 0, 16_000, 100)["series"]["a"]
    assert short["x"][:100] == long["x"][: len(short["x"])]


@pytest.mark.parametrize("half_life", [1.0, 5.0, 40.0, 600.0, 3000.0])
def test_a_trend_is_the_same_at_every_zoom_and_close_to_the_exact_one(history, numbers, half_life) -> None:
    exact = exponential_mean(np.arange(STEPS), numbers, half_life)
    values: dict[int, float] = {}
    for first, last, pixels in [(None, None, 400), (5000, 9000, 400), (8000, 8100, 30), (0, 20_000, 37)]:
        found = series(history, ["a"], first, last, pixels, half_life)["series"]["a"]
        for end, value in zip(found["end"], found["smooth"], strict=True):
            assert values.setdefault(end, value) == pytest.approx(value, rel=1e-3, abs=1e-3)
            if 1000 < end < 15_000:  # at the very start a span is most of what there is
                assert value == pytest.approx(exact[end], abs=0.35 / half_life**0.5)


def test_what_is_new_is_told_once_and_what_is_late_is_not_lost(history: History, numbers: np.ndarray) -> None:
    found = delta(history, ["a", "late", "none"], STEPS - 3)
    assert found["series"]["a"]["x"] == [STEPS - 3, STEPS - 2, STEPS - 1]
    assert found["series"]["late"] == {"x": [STEPS - 1], "y": [1.0]}
    assert found["cursor"] == STEPS - 1
    assert not found["reset"]
    exact = newer(history, {"a": STEPS - 2, "late": STEPS - 1})
    assert exact["series"]["a"]["x"] == [STEPS - 1]
    assert list(exact["series"]) == ["a"]
    assert newer(history, {"a": 775})["reset"]  # far too much to send
    assert len(newer(history, {"a": STEPS - 1 - MOST_NEW})["series"]["a"]["x"]) == MOST_NEW
    assert newer(history, {"a": STEPS - 2 - MOST_NEW})["reset"]
    assert delta(history, ["a"], STEPS + 5)["reset"]  # the record was cut


@pytest.mark.parametrize("pixels", [8, 100, 4000])
def test_the_heatmap_has_a_column_for_every_span_and_a_row_for_every_level(history: History, pixels: int) -> None:
    found = heatmap(history, pixels=pixels)
    assert found["levels"] == 16
    assert len(found["x"]) == len(found["end"]) == len(found["values"]) <= pixels
    assert all(len(column) == 16 and column[3] is None for column in found["values"])
    for column in found["values"]:
        assert column[5] - column[2] == pytest.approx(3, abs=1e-3)
    assert heatmap(history, 30_000, 40_000) == {"levels": 16, "x": [], "end": [], "values": []}


def test_an_unknown_signal_is_absent_and_one_without_readings_here_is_empty(history: History) -> None:
    found = series(history, ["none", "late"], 0, 100)
    assert list(found["series"]) == ["late"]
    assert found["series"]["late"]["x"] == []
