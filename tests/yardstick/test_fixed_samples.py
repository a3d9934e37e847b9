"""Samples that stay the same, and skills by signal."""

from __future__ import annotations

import pytest
import torch

from safelight.config.tree import Diffusion, Prediction
from safelight.diffusion.objective import Objective
from safelight.diffusion.process import per_sample
from safelight.diffusion.schedule import make_process
from safelight.diffusion.targets import target_of
from safelight.yardstick.denoisers import ClosedFormDenoisers
from safelight.yardstick.fixed_samples import FixedSamples, draw_samples

IMAGES = torch.rand(96, 1, 4, 4, generator=torch.Generator().manual_seed(0)).cumsum(2) - 1.5


def samples(prediction: Prediction = "epsilon") -> FixedSamples:
    settings = Diffusion(prediction=prediction, timesteps=100)
    return draw_samples(1, Objective(settings, make_process(settings), torch.device("cpu")), IMAGES[:64])


def test_they_are_the_same_every_time() -> None:
    first, again = samples(), samples()
    for name in ("x0", "noise", "t"):
        assert torch.equal(getattr(first, name), getattr(again, name))
    assert sorted(set(first.level.tolist())) == list(range(16)), "every noise level"


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_skill_of_answers_that_are_known(prediction: Prediction) -> None:
    found, denoisers = samples(prediction), ClosedFormDenoisers(IMAGES.split(40))
    stick, noised = found.compare(denoisers), found.noised()
    a, s = found.objective.signal_scale[found.t], found.objective.noise_scale[found.t]
    x0 = denoisers.linear.denoise(noised.x_t, a, s).float()
    wide = per_sample(a, x0), per_sample(s, x0)
    linear = found.losses(target_of(prediction, x0, (noised.x_t - wide[0] * x0) / wide[1], *wide), noised)
    skills = found.skills(stick, linear, torch.zeros_like(linear))
    assert skills["skill/raw"] == pytest.approx(1, abs=1e-3)
    assert skills["skill/floor"] == pytest.approx(0, abs=1e-3)
    assert skills["skill/ema"] > 1
    level = next(name for name in skills if name.startswith("skill/level/"))
    assert skills[level] > 1, "of the EMA"
    alone = found.skills(stick, linear, None)
    assert "skill/ema" not in alone
    assert alone[level] == pytest.approx(1, abs=1e-3)


def test_a_denoiser_that_knows_the_training_images_alone_is_beaten_on_others() -> None:
    """The linear filter generalises; on the images that it knows, the exact denoiser is better than that."""
    found, others = samples(), IMAGES[64:]
    known, unknown = (found.compare(ClosedFormDenoisers([each])) for each in (IMAGES, others))
    assert found.held_out_skill(known, torch.from_numpy(known.linear))["skill/held_exact"] > 1
    skills = found.held_out_skill(unknown, torch.from_numpy(unknown.linear))
    assert skills["skill/held"] == pytest.approx(1)
    assert skills["skill/held_exact"] < 0.5


def test_what_is_not_finite_says_nothing() -> None:
    found = samples()
    stick = found.compare(ClosedFormDenoisers([IMAGES]))
    assert set(found.skills(stick, torch.full((64,), torch.nan), None)) == {"skill/exact"}
