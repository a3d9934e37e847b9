"""How long the Fréchet term takes against the usual matrix root, and what streaming the statistics costs in memory."""

from __future__ import annotations

import argparse
import os
import time
import tracemalloc
from collections.abc import Callable, Sequence

import numpy as np
from scipy.linalg import sqrtm

from bench.measure import ratios, spread, turns, write_table
from safelight.evaluate import Moments, Reference, fit_reference, frechet
from safelight.evaluate.statistics.jackknife import assemble

WANTED = {1280: 4.0, 2048: 8.0}  # times faster than the matrix root
STREAMED = (1_000, 10_000, 100_000)
CHUNK = 500  # images of a batch of features
Row = list[object]


def features(count: int, dimension: int, seed: int) -> np.ndarray:
    """Rectified mixtures, as the last layer of an extractor gives them."""
    draw = np.random.default_rng(seed)
    mix = np.random.default_rng(0).normal(size=(dimension, dimension)) / np.arange(1, dimension + 1) ** 0.5
    return np.maximum(draw.normal(size=(count, dimension)) @ mix, 0)


def by_kept_root(moments: Moments, reference: Reference) -> float:
    """As safelight does it: one eigenvalue problem, symmetric and so always real."""
    own, root = moments.covariance, reference.root
    return assemble(moments.mean - reference.mean, np.trace(own), root @ own @ root, reference)


def by_root(moments: Moments, reference: Reference) -> float:
    """As pytorch-fid, clean-fid and EDM do it."""
    own, shift = moments.covariance, moments.mean - reference.mean
    middle = np.real(sqrtm(own @ reference.covariance))
    return float(shift @ shift + np.trace(own) + np.trace(reference.covariance) - 2 * np.trace(middle))


def by_eigenvalues(moments: Moments, reference: Reference) -> float:
    """As torch-fidelity and torchmetrics do it."""
    own, shift = moments.covariance, moments.mean - reference.mean
    values = np.linalg.eigvals(own @ reference.covariance)
    return float(
        shift @ shift + np.trace(own) + np.trace(reference.covariance) - 2 * np.real(np.sqrt(values + 0j)).sum()
    )


def race(dimension: int, rounds: int, few: int) -> tuple[list[Row], bool]:
    count = dimension * 2
    real = Moments.of(features(count, dimension, 1))
    samples = features(count, dimension, 2)
    moments = Moments.of(samples)
    reference, root_time = timed(lambda: fit_reference(real))
    contenders: dict[str, Callable[[], float]] = {
        "safelight": lambda: by_kept_root(moments, reference),
        "matrix root": lambda: by_root(moments, reference),
        "eigenvalues": lambda: by_eigenvalues(moments, reference),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    values: dict[str, float] = {}
    for name in turns(list(contenders), rounds):
        values[name], spent = timed(contenders[name])
        seconds[name].append(spent)
    agree = max(abs(value / values["safelight"] - 1) for value in values.values())
    wanted = WANTED.get(dimension, 0.0)
    faster = ratios(seconds["safelight"], seconds["matrix root"])
    what = f"d = {dimension:,}"
    rows: list[Row] = [
        [f"{what}: safelight, root of the reference kept", f"{spread(seconds['safelight']).show('.3f')} s", ""],
        [f"{what}: scipy sqrtm", f"{spread(seconds['matrix root']).show('.3f')} s", ""],
        [f"{what}: numpy eigvals", f"{spread(seconds['eigenvalues']).show('.3f')} s", ""],
        [f"{what}: faster than sqrtm", f"{faster.show('.1f')} x", f"at least {wanted:g} x"],
        [f"{what}: faster than eigvals", f"{ratios(seconds['safelight'], seconds['eigenvalues']).show('.1f')} x", ""],
        [f"{what}: largest difference between the three", f"{agree:.1e}", "below 1e-5"],
        [f"{what}: root of the reference, once per dataset", f"{root_time:.3f} s", ""],
        [f"{what}: with bias and error, N = {few}", f"{timed(lambda: frechet(samples[:few], reference))[1]:.3f} s", ""],
    ]
    return rows, bool(faster.median >= wanted and agree < 1e-5)


def axes(dimension: int, count: int, components: int) -> Row:
    """What a checkpoint costs in practice: few components, with bias and error."""
    reference = fit_reference(features(4 * components, dimension, 1), components=components)
    samples = features(count, dimension, 2)
    seconds = [timed(lambda: frechet(samples, reference))[1] for _ in range(5)]
    what = f"d = {dimension:,}, {components} main axes, N = {count:,}: with bias and error"
    return [what, f"{spread(seconds).show('.3f')} s", ""]


def stream(counts: Sequence[int], dimension: int) -> tuple[list[Row], bool]:
    """Peak of what adding features one batch after the other holds, beyond the batch."""
    batch = features(CHUNK, dimension, 3)
    # The least of some: other threads of the process can only add to it.
    peaks = [min(peak_of(batch, count) for _ in range(3)) for count in counts]
    rows: list[Row] = [
        [f"streaming {count:,} features of {dimension:,} dimensions: peak", f"{peak:.1f} MB", "constant"]
        for count, peak in zip(counts, peaks, strict=True)
    ]
    return rows, max(peaks) <= 1.01 * min(peaks)


def peak_of(batch: np.ndarray, count: int) -> float:
    """MB."""
    tracemalloc.start()
    moments = Moments(batch.shape[1])
    for _ in range(0, count, CHUNK):
        moments.add(batch)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    assert moments.count == count
    return peak


def timed(work: Callable) -> tuple:
    begun = time.perf_counter()
    found = work()
    return found, time.perf_counter() - begun


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dimensions", type=int, nargs="+", default=sorted(WANTED))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--few", type=int, default=512, help="samples for the row with bias and error")
    parser.add_argument("--streamed", type=int, nargs="+", default=STREAMED, help="features to stream")
    parser.add_argument("--streamed-dimension", type=int, default=512)
    options = parser.parse_args(words)
    rows, good = stream(options.streamed, options.streamed_dimension)
    for dimension in options.dimensions:
        found, fast = race(dimension, options.rounds, options.few)
        rows += [*found, axes(dimension, 32 * min(64, dimension // 4), min(64, dimension // 4))]
        good = good and fast
    notes = [
        "Medians of rounds in which all take turns, with the quartiles in brackets. All get the same float64 moments.",
        "With bias and error: two leave-outs for each of 32 groups (8 above 512) on top of the plain number.",
        f"Streaming: batches of {CHUNK} features; a d x d matrix, one for the batch and one for the update.",
        f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}.",
    ]
    write_table("evaluate", "What the statistics of an evaluation cost", ["what", "found", "wanted"], rows, notes)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
