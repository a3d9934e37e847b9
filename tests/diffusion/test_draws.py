from __future__ import annotations

import hashlib
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from safelight.config.tree import Diffusion
from safelight.diffusion.densities import make_time_quantile
from safelight.diffusion.draws import draw_label_drop, draw_noise, draw_times, sample_generators

STEPS = range(400)
T = 1000


def timesteps(sampling: str, step: int, batch_size: int, count: int = T, seed: int = 0) -> Tensor:
    density = make_time_quantile(Diffusion(timesteps=count))
    return draw_times(sampling, density, seed=seed, step=step, batch_size=batch_size)  # type: ignore[arg-type]


def strata(t: Tensor, parts: int) -> list[int]:
    return sorted((t * parts // T).tolist())


@pytest.mark.parametrize("batch_size", [1, 2, 4, 5, 8, 10, 20, 50, 125, 250, 1000])
def test_every_stratum_is_hit_exactly_once(batch_size: int) -> None:
    """Batch sizes that divide T, so that the strata end between two timesteps."""
    for step in range(20):
        assert strata(timesteps("stratified", step, batch_size), batch_size) == list(range(batch_size))


def test_uniform_draws_do_not_fill_the_strata() -> None:
    """Negative control."""
    assert all(strata(timesteps("uniform", step, 50), 50) != list(range(50)) for step in range(20))


@pytest.mark.parametrize(("batch_size", "micro_batches"), [(8, 2), (20, 5), (64, 2), (64, 8), (100, 10), (128, 16)])
def test_contiguous_micro_batches_are_spread_too(batch_size: int, micro_batches: int) -> None:
    """No gap of a micro-batch is wider than three even spaces (rows in order would leave all but one empty)."""
    size = batch_size // micro_batches
    for step in range(20):
        t = timesteps("stratified", step, batch_size)
        for micro in t.view(micro_batches, size):
            ends = torch.cat([torch.tensor([0]), micro.sort().values, torch.tensor([T])])
            assert ends.diff().max() <= 3 * T / size
    in_order = timesteps("stratified", 0, batch_size).sort().values[:size]
    assert in_order.max() <= T / micro_batches + 1, "negative control: sorted rows fill one corner"


@pytest.mark.parametrize("sampling", ["stratified", "uniform"])
@pytest.mark.parametrize("batch_size", [7, 64])
def test_marginal_is_uniform(sampling: str, batch_size: int) -> None:
    """χ² over 50 bins against its 99.99 % point, for a fixed seed; and both ends are within reach."""
    drawn = torch.cat([timesteps(sampling, step, batch_size) for step in STEPS])
    found = torch.bincount(drawn * 50 // T, minlength=50).double()
    expected = len(drawn) / 50
    assert ((found - expected).square() / expected).sum() < 94.60
    assert drawn.min() < 5
    assert drawn.max() > T - 6


def test_chi_square_sees_a_bias() -> None:
    """Negative control: u^1.1 instead of u, a few per cent more of the low timesteps."""
    drawn = torch.cat([timesteps("uniform", step, 64) for step in STEPS]).double() / T
    found = torch.bincount((drawn.pow(1.1) * 50).long(), minlength=50).double()
    expected = len(drawn) / 50
    assert ((found - expected).square() / expected).sum() > 94.60


def test_batch_means_vary_less_than_uniform_ones() -> None:
    """The point of it: theory says 1 / batch_size² of the variance of a uniform batch's mean."""
    means = {
        sampling: torch.stack([timesteps(sampling, step, 64).double().mean() for step in STEPS])
        for sampling in ("stratified", "uniform")
    }
    assert means["stratified"].var() < means["uniform"].var() / 1000


@pytest.mark.parametrize("sampling", ["stratified", "uniform"])
@pytest.mark.parametrize(("batch_size", "count"), [(1, 2), (3, 2), (64, 10), (1000, 7), (7, 1000)])
def test_stays_inside_the_table(sampling: str, batch_size: int, count: int) -> None:
    for step in range(50):
        t = timesteps(sampling, step, batch_size, count)
        assert t.dtype == torch.int64
        assert t.shape == (batch_size,)
        assert t.min() >= 0
        assert t.max() < count


def test_timesteps_depend_on_seed_and_step_only() -> None:
    torch.manual_seed(1)
    first = timesteps("stratified", 3, 64)
    torch.manual_seed(2)
    assert torch.equal(first, timesteps("stratified", 3, 64))
    assert not torch.equal(first, timesteps("stratified", 4, 64))
    assert not torch.equal(first, timesteps("stratified", 3, 64, seed=1))


@pytest.mark.parametrize("cuts", [(0, 16), (0, 8, 16), (0, 4, 8, 12, 16), (0, 1, 15, 16)])
def test_noise_of_a_row_does_not_know_its_batch(cuts: tuple[int, ...]) -> None:
    whole = draw_noise(5, 9, 0, 16, (1, 3, 3))
    pieces = [draw_noise(5, 9, start, stop, (1, 3, 3)) for start, stop in pairwise(cuts)]
    assert torch.equal(torch.cat(pieces), whole)
    assert torch.equal(draw_noise(5, 9, 0, 64, (1, 3, 3))[:16], whole)


@pytest.mark.parametrize("other", [(6, 9), (5, 10)], ids=["seed", "step"])
def test_noise_differs_between_seeds_steps_and_rows(other: tuple[int, int]) -> None:
    noise, changed = draw_noise(5, 9, 0, 16, (64,)), draw_noise(*other, 0, 16, (64,))
    rows = torch.cat([noise, changed])
    assert len(rows.unique(dim=0)) == 32
    assert torch.corrcoef(rows).fill_diagonal_(0).abs().max() < 0.6


def test_noise_is_standard_normal() -> None:
    noise = draw_noise(0, 0, 0, 500, (1, 8, 8)).double()
    assert abs(float(noise.mean())) < 0.02
    assert abs(float(noise.std()) - 1) < 0.02
    assert abs(float((noise**4).mean()) - 3) < 0.15, "the fourth moment of a normal is 3"


def test_pinned_draws_never_change() -> None:
    """Another hash would change every run ever made."""
    noise = draw_noise(0, 3, 0, 4, (1, 4, 4))
    digest = hashlib.sha256(noise.numpy().astype("<f4").tobytes()).hexdigest()
    assert digest == "decd199280a22595c862c990f6d48b9b71839ddb6ef53dea72ac64965c1b3f98"
    assert timesteps("stratified", 3, 8).tolist() == [103, 676, 325, 877, 527, 231, 861, 492]
    assert timesteps("uniform", 3, 8).tolist() == [824, 410, 602, 19, 223, 854, 891, 941]


def test_image_of_a_seed_has_its_own_generator() -> None:
    """Image 3 is image 3, whether four or forty are drawn, and from wherever the batch starts."""
    alone, among = sample_generators(7, 3, 4)[0], sample_generators(7, 0, 40)[3]
    assert torch.equal(torch.randn(8, generator=alone), torch.randn(8, generator=among))
    first = [float(torch.randn((), generator=g)) for g in sample_generators(7, 0, 40)]
    assert len(set(first)) == 40


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0, 0), (0.1, 0.08, 0.12), (1.0, 1, 1)])
def test_labels_are_dropped_as_often_as_asked(share: float, low: float, high: float) -> None:
    dropped = torch.cat([draw_label_drop(0, step, 64, share) for step in range(100)])
    assert low <= float(dropped.double().mean()) <= high
    assert torch.equal(draw_label_drop(0, 5, 64, share), draw_label_drop(0, 5, 64, share))


def test_nothing_random_has_state() -> None:
    before = torch.random.get_rng_state()
    timesteps("stratified", 0, 8)
    draw_noise(0, 0, 0, 4, (2,))
    draw_label_drop(0, 0, 8, 0.5)
    sample_generators(0, 0, 4)
    assert torch.equal(torch.random.get_rng_state(), before)
