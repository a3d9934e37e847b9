"""How good a trained run is, and the distance between two sets of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from safelight.changes import check_data
from safelight.config.tree import COMPONENTS, Data, Features
from safelight.data.batches import Augmentation, Batches
from safelight.data.cache import cache_root
from safelight.data.images import Images, hold_out
from safelight.data.prepare import open_images
from safelight.diagnosis.sample_quality import SampleQuality, judge_samples
from safelight.errors import UsageError
from safelight.evaluate.examination import Distances, Examination, Real, examine, measure_distances, prepare_real
from safelight.evaluate.features import Extractor, extract, load_extractor
from safelight.evaluate.moments import MIN_FEATURES
from safelight.evaluate.networks.pixels import quantise
from safelight.evaluate.piles import pile_features
from safelight.evaluate.thumbnails import draw_closest, find_copies
from safelight.generate import Request, counting, generate
from safelight.opened import LoadedModel
from safelight.run import RunFolder
from safelight.training.fixed_set import MAX_FITTED_IMAGES, FirstRows
from safelight.yardstick.linear import fit_linear

REFERENCES = 10_000  # real images whose features are compared
MAX_SEARCHED_IMAGES = 100_000  # training images that copies are looked for among

Say = Callable[[str], None]
Advance = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FeatureChoice:
    """Which features are compared, and in how many dimensions."""

    features: Features = "lite0"
    weights: Path | None = None
    resize: str | None = None
    components: int | None = None
    device: str = "cpu"

    def extractor(self, image_size: int | None, say: Say) -> Extractor:
        return load_extractor(
            self.features, path=self.weights, resize=self.resize, image_size=image_size, device=self.device, say=say
        )

    def axes(self) -> int:
        """Main axes of the real images that the distance is taken in, 0 for all."""
        return COMPONENTS[self.features] if self.components is None else self.components


@dataclass(frozen=True, slots=True)
class Assessment:
    examination: Examination
    extractor: Extractor
    closest: Image.Image | None
    """Samples that look most like copies, with the training images they look like."""

    @property
    def quality(self) -> SampleQuality:
        return judge_samples(self.examination.to_json())


def assess_run(
    folder: RunFolder, loaded: LoadedModel, request: Request, choice: FeatureChoice, *, say: Say, advance: Advance
) -> Assessment:
    """Samples of a run against the images it was trained on."""
    config = loaded.config
    extractor = choice.extractor(config.data.image_size, say)  # before the samples: they take longest
    _check_count(request.count, "-n")
    # As it was set then: a value that the data decided would name another cache.
    channels = folder.status().get("asked_channels", config.data.channels)
    images = open_images(replace(config.data, channels=channels), say=say)
    check_data(folder, images, force=False)
    samples = quantise(generate(loaded.model, config, request, on_step=counting(request, advance)))
    limits = {"references": REFERENCES, "searched": MAX_SEARCHED_IMAGES, "components": choice.axes()}
    real, small = prepare_real(images, config.data, extractor, cache=cache_root(config.data, say), **limits)
    pixels = samples.numpy()
    copies = find_copies(pixels, small)
    gaussian = measure_gaussian(images, config.data, extractor, real, request.count)
    found = examine(extract(extractor, samples), real, copies, gaussian=gaussian)
    return Assessment(found, extractor, None if copies is None else draw_closest(copies, pixels, images, small))


def measure_gaussian(images: Images, data: Data, extractor: Extractor, real: Real, count: int) -> Distances:
    """Distances of so many random images with the mean and covariance of the training images."""
    training, _ = hold_out(images, data.held_out)
    read = min(MAX_FITTED_IMAGES, len(images) if training is None else len(training))
    views = Augmentation(side=data.image_size)
    batches = Batches(images, seed=0, batch_size=read, views=views, ids=training)
    drawn = fit_linear(FirstRows(batches, read)).draw(count, 0)
    return measure_distances(extract(extractor, quantise(drawn)), real)


def assess_sets(
    generated: str, real: str, choice: FeatureChoice, *, most: int | None, say: Say, advance: Advance
) -> Assessment:
    """Any two sets of images: folders, zips or known sets. The second one is the reference."""
    extractor = choice.extractor(None, say)
    sets = {
        source: pile_features(source, extractor, most=most, say=say, on_image=lambda done: advance(done, 0))
        for source in (generated, real)
    }
    for source, features in sets.items():
        _check_count(len(features), source)
    found = examine(sets[generated], Real(sets[real], extractor.label, components=choice.axes()), finite_reference=True)
    return Assessment(found, extractor, None)


def _check_count(count: int, where: str) -> None:
    if count < MIN_FEATURES:
        raise UsageError(f"{where}: {count} images are too few to compare; at least {MIN_FEATURES} are needed.")
