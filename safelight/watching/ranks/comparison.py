"""What the looks of all processes at one update say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from safelight.observing.process_check import MAX_NAMED_PROCESSES, shared_by_processes
from safelight.probes.dataset import DEVIATION_RATIO, MEAN_APART
from safelight.vocabulary import DATA_APART, DRIFT, GRADIENTS_APART, OVERLAP, REDUCTION, SAME_NOISE

Look = Mapping[str, np.ndarray]
MAX_UNEXPLAINED = 0.05  # of a reduced gradient: what a multiple of the mean leaves over; half precision leaves 0.004
MIN_LOOKS_AT_DATA = 4  # of each process: means of a few samples differ by chance
SOURCES = ("passed", "loaded")  # of data: what the loop says, else what its loader returns


class Comparison:
    """Of one watch; remembers what the data of each process was like."""

    def __init__(self, layouts: Sequence[Sequence[str]], *, is_bound: bool) -> None:
        """`layouts`: which piece of each parameter each process holds. `is_bound`: the processes are known to train one
        model; else they do if they begin with the same weights."""
        self._kinds = [sorted(set(layout)) for layout in layouts]
        self._is_bound: bool | None = True if is_bound else None
        self._data = {source: [list[np.ndarray]() for _ in layouts] for source in SOURCES}

    def readings(self, looks: Sequence[Look]) -> dict[str, float]:
        """`looks`: by process."""
        apart = self._apart(looks, "weights")
        if self._is_bound is None and apart is not None:
            self._is_bound = apart == 0
        found: dict[str, float] = {}
        if self._is_bound:
            gradients = _most(self._apart(looks, "gradients"), _withheld(looks))
            found |= {} if apart is None else {DRIFT.name: apart}
            found |= {} if gradients is None else {GRADIENTS_APART.name: gradients}
            if not gradients and (factor := reduction(looks)) is not None:
                found[REDUCTION.name] = factor
        return found | _noise(looks) | self._compare_data(looks)

    def _apart(self, looks: Sequence[Look], name: str) -> float | None:
        """How many processes have something else than the first one that holds the same piece; None if no two do."""
        first: dict[str, int] = {}
        wrong, is_compared = set[int](), False
        for rank, (kinds, look) in enumerate(zip(self._kinds, looks, strict=True)):
            for kind, number in zip(kinds, look[name].tolist(), strict=True):
                is_compared |= kind in first
                if first.setdefault(kind, number) != number:
                    wrong.add(rank)
        return float(len(wrong)) if is_compared else None

    def _compare_data(self, looks: Sequence[Look]) -> dict[str, float]:
        source = next((each for each in SOURCES if all(f"{each}/rows" in look for look in looks)), None)
        if source is None:
            return {}
        data = self._data[source]
        for seen, look in zip(data, looks, strict=True):
            seen.append(look[f"{source}/moments"])
        found = {OVERLAP.name: shared_by_processes([look[f"{source}/rows"] for look in looks])}
        if len(data[0]) >= MIN_LOOKS_AT_DATA:
            apart = _data_apart(np.array(data).mean(1))[:MAX_NAMED_PROCESSES]
            found |= {f"{DATA_APART.name}/{rank:02d}": float(each) for rank, each in enumerate(apart)}
        return found


def reduction(looks: Sequence[Look]) -> float | None:
    """By how much the gradient of the optimizer is the mean of those that the processes computed: 1, and their number
    where they are added. Below 1 where it was clipped. None where it is no multiple of it. Of sharded weights, what
    FSDP2 is set to."""
    if all("multiple" in look for look in looks):
        return float(looks[0]["multiple"][0])
    parts = [look["parts"] for look in looks if "parts" in look]
    if len(parts) < len(looks):
        return None
    mean, reduced = np.mean([own for own, _ in parts], 0), parts[0][1]
    length, whole = float(mean @ mean), float(np.linalg.norm(reduced))
    if not (np.isfinite(length) and np.isfinite(whole) and length > 0 and whole > 0):
        return None
    factor = float(reduced @ mean) / length
    return factor if np.linalg.norm(reduced - factor * mean) <= MAX_UNEXPLAINED * whole else None


def _withheld(looks: Sequence[Look]) -> float | None:
    """How many processes keep gradients to themselves."""
    told = [int(look["withheld"][0]) for look in looks if "withheld" in look]
    return float(sum(told)) if told else None


def _most(*numbers: float | None) -> float | None:
    return max((each for each in numbers if each is not None), default=None)


def _noise(looks: Sequence[Look]) -> dict[str, float]:
    """By the noise itself where it is passed; else by the state of the generator, where it is used at all."""
    if all("noise" in look for look in looks):
        noise = [int(look["noise"][0]) for look in looks]
    elif all(look["random"][1] for look in looks):
        noise = [int(look["random"][0]) for look in looks]
    else:
        return {}
    return {SAME_NOISE.name: float(len(noise) - len(set(noise)))}


def _data_apart(moments: np.ndarray) -> list[float]:
    """Of each process from the median of the others, by mean and deviation, over what data may differ by; `moments`
    [processes, mean and mean square]."""
    means, deviations = moments[:, 0], np.sqrt(np.maximum(moments[:, 1] - moments[:, 0] ** 2, 1e-12))
    found = []
    for rank in range(len(moments)):
        others = np.arange(len(moments)) != rank
        mean, deviation = np.median(means[others]), np.median(deviations[others])
        by_mean = abs(means[rank] - mean) / max(deviation, deviations[rank]) / MEAN_APART
        found.append(max(by_mean, abs(np.log(deviations[rank] / deviation)) / np.log(DEVIATION_RATIO)))
    return found
