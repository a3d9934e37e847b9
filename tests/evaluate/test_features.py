"""Extractors by what they may be called, and features by what they must not depend on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from networks import photographs, shuffled
from torch import nn

from safelight.errors import DataError, SafelightError, UsageError
from safelight.evaluate.features import Extractor, extract, fold, load_extractor, own_extractor
from safelight.evaluate.networks import inception, lite0
from safelight.evaluate.networks.weights import CONVERTED_FILE, SOURCES, find_weights, load_network


def close(one: np.ndarray, other: np.ndarray, relative: float = 1e-5) -> bool:
    return float(np.linalg.norm(one - other)) <= relative * float(np.linalg.norm(other))


# Folding


@pytest.mark.parametrize(("make", "side"), [(lite0.Lite0, 64), (inception.Inception, 139)])
def test_folding_changes_nothing(make: type[nn.Module], side: int) -> None:
    network = shuffled(make())
    levels = torch.from_numpy(photographs(2, side)).float()
    before = network(levels).numpy()
    folded = fold(network)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in folded.modules())
    assert close(folded(levels).numpy(), before)


# Extractors


def test_the_default_extractor() -> None:
    found = load_extractor(image_size=32)
    assert (found.name, found.label, found.dimension, found.side, found.resize) == (
        "lite0", "FD-lite0", 1280, 64, "bilinear"
    )  # fmt: skip
    assert found.fingerprint == SOURCES["lite0"].tensors
    assert not found.network.training
    identity = found.identity()
    assert all(identity[key] == value for key, value in {"side": 64, "weights": found.fingerprint}.items())
    assert identity != load_extractor(image_size=64).identity()
    assert load_extractor(resize="clean").label == "FD-lite0-clean"


def test_lite0_knows_images_apart() -> None:
    """Not random weights: smooth photographs lie closer to one another than to noise."""
    extractor = load_extractor(image_size=32)
    smooth = extract(extractor, photographs(24))
    noise = extract(extractor, np.random.default_rng(0).integers(0, 256, (12, 3, 32, 32), dtype=np.uint8))
    within = np.linalg.norm(smooth[:12].mean(0) - smooth[12:].mean(0))
    assert np.linalg.norm(smooth.mean(0) - noise.mean(0)) > 3 * within


def test_weights_of_the_users_own_are_not_called_fid(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    safetensors.torch.save_file(shuffled(inception.Inception()).state_dict(), path)
    told: list[str] = []
    found = load_extractor("inception", path=path, say=told.append)
    assert len(told) == 1
    assert found.label == f"FD-inception-{found.fingerprint[:8]}"
    assert (found.dimension, found.side, found.resize) == (2048, 299, "tf1")
    with pytest.warns(UserWarning, match="no file of inception that safelight knows"):
        assert load_extractor("inception", path=path, resize="clean").label.startswith("FD-inception-clean-")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"name": "inceptoin"}, "lite0 and inception"), ({"resize": "lanczos"}, "tf1, clean, bilinear")],
)
def test_wrong_words(arguments: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load_extractor(**arguments)  # pyright: ignore[reportArgumentType]


class Means(nn.Module):
    """Mean and spread of each channel, of images in [0, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        assert images.min() >= 0
        assert images.max() <= 1
        assert not self.training
        return torch.cat([images.mean((2, 3)) * self.scale, images.std((2, 3))], 1)


def test_a_module_of_the_users_own() -> None:
    module = Means().train()
    found = own_extractor(module, name="means", side=16)
    assert (found.label, found.dimension, found.resize) == ("FD-means", 6, "bilinear")
    assert module.training
    assert module.scale.requires_grad
    images = photographs(5, 16)
    assert np.allclose(extract(found, images)[:, :3], images.mean((2, 3)) / 255, atol=1e-6)
    with torch.no_grad():
        module.scale.mul_(2)
    assert own_extractor(module, name="means", side=16).fingerprint != found.fingerprint
    assert np.allclose(extract(found, images)[:, :3], images.mean((2, 3)) / 255, atol=1e-6), "it has a copy"


def test_a_module_may_call_view() -> None:
    class Rows(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.view(len(images), -1)

    assert own_extractor(Rows(), name="rows", side=4, dimension=48).dimension == 48


@pytest.mark.parametrize("name", ["lite0", "inception", "", "FID 2", "a/b"])
def test_names_that_could_deceive_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be named"):
        own_extractor(Means(), name=name, side=16)


@pytest.mark.parametrize(("module", "dimension"), [(Means(), 7), (nn.Identity(), None), (nn.Flatten(0), None)])
def test_a_module_of_another_shape_is_refused(module: nn.Module, dimension: int | None) -> None:
    with pytest.raises(UsageError, match="one row of features per image"):
        own_extractor(module, name="mine", side=8, dimension=dimension)


# Features


@pytest.fixture(scope="module")
def means() -> Extractor:
    return own_extractor(Means(), name="means", side=16)


def test_features_do_not_depend_on_the_batch() -> None:
    extractor = load_extractor(image_size=32)
    images = photographs(70)
    found = {size: extract(extractor, images, batch_size=size) for size in (1, 7, 64)}
    assert found[64].shape == (70, 1280)
    assert found[64].dtype == np.float32
    assert close(found[1], found[64])
    assert close(found[7], found[64])


def test_arrays_tensors_and_iterators_are_the_same(means: Extractor) -> None:
    images = photographs(11)
    expected = extract(means, images)

    def ragged() -> Iterator[np.ndarray | torch.Tensor]:
        yield images[:1]
        yield torch.from_numpy(images[1:8])
        yield images[8:8]
        yield images[8:]

    for size in (1, 3, 64):
        assert close(extract(means, torch.from_numpy(images), batch_size=size), expected)
        assert close(extract(means, ragged(), batch_size=size), expected)
    assert close(extract(means, [images[:, :, ::-1][:, :, ::-1]]), expected)


def test_iterators_are_gathered_into_batches_of_one_shape(means: Extractor) -> None:
    done: list[int] = []
    mixed = [*photographs(5)[:, None], *photographs(3, 24)[:, None], *photographs(4, 24, 1)[:, None]]
    assert extract(means, mixed, batch_size=4, on_batch=done.append).shape == (12, 6)
    assert done == [4, 5, 8, 12]


def test_grey_is_seen_as_colour(means: Extractor) -> None:
    grey = photographs(3, channels=1)
    assert np.array_equal(extract(means, grey), extract(means, grey.repeat(3, axis=1)))


def test_the_callers_settings_are_left_alone(means: Extractor) -> None:
    torch.set_float32_matmul_precision("high")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            features = extract(means, photographs(4))
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert np.array_equal(features, extract(means, photographs(4)))
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (np.zeros((2, 3, 8, 8), np.float32), "are torch.float32. Use safelight.evaluate.networks.pixels.quantise"),
        (np.zeros((2, 8, 8, 3), np.uint8), r"\[n, 1 or 3, height, width\]"),
        ([], "no images"),
        (np.zeros((0, 3, 8, 8), np.uint8), "no images"),
    ],
)
def test_what_is_no_image_is_refused(means: Extractor, images: np.ndarray, words: str) -> None:
    with pytest.raises(DataError, match=words):
        extract(means, images)


def test_features_that_are_not_finite_are_counted_and_refused() -> None:
    class Logarithm(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.mean((2, 3)).sub(1e-3).log() if len(images) > 2 else images.mean((2, 3))

    images = photographs(6)
    images[[2, 5]] = 0
    extractor = own_extractor(Logarithm(), name="logarithm", side=8)
    with pytest.raises(SafelightError, match=r"of 2 of 6 images are not finite \(the first: image 2\)"):
        extract(extractor, images)


# The true Inception, where it is


@pytest.fixture
def true_inception() -> Path:
    """Tests have a cache of their own: the user's is only looked into."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "safelight" / "weights" / CONVERTED_FILE
    found = find_weights("inception")
    path = home if found is None else found.path
    if not path.is_file():
        pytest.skip("needs the weights of Inception: safelight weights get inception")
    return path


def test_the_true_inception(true_inception: Path) -> None:
    network = load_network("inception", true_inception, say=pytest.fail).network
    assert inception.self_check(network) == pytest.approx(inception.PUBLISHED_FID, abs=inception.TOLERANCE)
    found = {
        way: load_extractor("inception", path=true_inception, resize=way).label for way in ("tf1", "clean", "bilinear")
    }
    assert found == {"tf1": "FID", "clean": "FID-clean", "bilinear": "FD-inception-bilinear"}
    extractor, images = load_extractor("inception", path=true_inception), photographs(9)
    features = extract(extractor, images)
    assert close(extract(extractor, images, batch_size=1), features)
    # Through all 94 convolutions: the same sum as torch-fidelity 0.4 has with these weights.
    ramp = np.arange(3 * 64 * 64).reshape(1, 3, 64, 64) % 251
    assert extract(extractor, ramp.astype(np.uint8)).sum() == pytest.approx(520.94126, rel=1e-5)
