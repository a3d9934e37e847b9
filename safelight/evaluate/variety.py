"""Diversity in anyone's loop: five numbers of samples, each beside what real images score, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from safelight.config.tree import COMPONENTS
from safelight.diagnosis.rules.samples import RULES
from safelight.diagnosis.sample_quality import Kind, judge_samples
from safelight.errors import UsageError
from safelight.evaluate.diversity import MAX_IMAGES, mean_distance
from safelight.evaluate.examination import LEAST_REAL, Real, likeness
from safelight.evaluate.features import Extractor
from safelight.evaluate.fid import FeatureName, SampleFeatures
from safelight.evaluate.figures import Figure, draw_rows, range_text
from safelight.evaluate.neighbours import NEIGHBOURS

CODES: dict[Kind, str] = {
    "crowded": "DIV001", "missing": "DIV002", "narrow": "DIV003", "vague": "DIV004", "mush": "DIV005",
}  # fmt: skip
# By number, in the order of likelihood; each is given where the number is worse than that of real images.
ADVICE = {
    "variance": "Train longer: samples of an undertrained model keep to the middle. With few images, augment them.",
    "distance": "Compare with samples of the raw weights: if those vary more, the EMA is too long for the run. Lower "
    "the guidance, and draw the noise with a standard deviation of 1.",
    "modes": "Train longer, and look for the kinds that are missing among the training images.",
    "largest mode": "Balance the classes of the training images; if they are, the network may be too small.",
    "coverage": "Train longer; if the loss no longer falls, use a larger network.",
}
UNUSUAL = {
    "variance": "Samples vary more than real images: look at them for noise and broken images.",
    "distance": "Samples lie further apart than real images: look at them for noise and broken images.",
}


@dataclass(frozen=True, slots=True)
class DiversityReport:
    """Five numbers, what they mean together, and what to do; `str` of it is a page."""

    variance_ratio: Figure
    distance_ratio: Figure
    sample_distance: float  # mean distance between two samples
    real_distance: float  # and between two real images
    mode_coverage: Figure  # share of the kinds of real images that samples fall into
    largest_mode: Figure  # share of the most frequent kind
    real_coverage: Figure  # share of the real images that have a sample nearby
    kind: Kind | None  # crowded, missing, narrow, vague or mush; None if nothing is clearly wrong
    code: str | None  # `safelight explain CODE`
    sentence: str
    advice: tuple[str, ...]
    n: int

    @property
    def figures(self) -> tuple[Figure, ...]:
        return self.variance_ratio, self.distance_ratio, self.mode_coverage, self.largest_mode, self.real_coverage

    @property
    def is_good(self) -> bool:
        """Whether all five numbers are as those of real images."""
        return not self.advice

    def to_json(self) -> dict[str, Any]:
        return {
            "figures": {figure.name: figure.to_json() for figure in self.figures},
            "sample_distance": self.sample_distance,
            "real_distance": self.real_distance,
            "kind": self.kind,
            "code": self.code,
            "sentence": self.sentence,
            "advice": [*self.advice],
            "count": self.n,
        }

    def __str__(self) -> str:
        head = self.sentence if self.code is None else f"{self.code}: {self.sentence}"
        lines = [head, *(f"  {figure.sentence}" for figure in self.figures)]
        lines.append(
            f"  Mean distance of two samples: {self.sample_distance:.4g}; of real images: {self.real_distance:.4g}."
        )
        return "\n".join([*lines, *(f"  do  {each}" for each in self.advice)])


class Diversity:
    """How much samples vary, against real images.

    `real_images` and `settings` as for `safelight.FID`; at least 100 images. Every number is judged against what other
    real images score at the same count, so that neither few samples nor the features make a finding.
    """

    def __init__(self, real_images: Any, features: FeatureName | Extractor = "lite0", **settings: Any) -> None:
        self._samples = SampleFeatures(real_images, features, **settings)
        extractor, real = self._samples.extractor, self._samples.real
        if len(real) < LEAST_REAL:
            raise UsageError(
                f"Expected at least {LEAST_REAL} real images to compare with each other, came {len(real)}."
            )
        self._real = Real(real, extractor.label, components=COMPONENTS.get(extractor.name, 0))

    def __repr__(self) -> str:
        samples = self._samples
        return f"Diversity(features={samples.extractor.label!r}, real={len(samples.real)}, n={samples.n})"

    @property
    def ranges(self) -> dict[str, str]:
        return self._samples.ranges

    def add(self, samples: Any) -> Diversity:
        """More samples; 200 and more say something, 1,000 a lot."""
        self._samples.add(samples)
        return self

    def reset(self) -> None:
        """Forgets the samples, not the real images."""
        self._samples.reset()

    def compute(self) -> DiversityReport:
        """The report on all samples so far."""
        features = self._samples.features()
        if len(features) <= NEIGHBOURS:
            raise UsageError(f"Expected more than {NEIGHBOURS} samples, came {len(features)}. Add some.")
        figures, shares = likeness(features, self._real)
        named = {figure.name: figure for figure in figures}
        facts = {"figures": {name: figure.to_json() for name, figure in named.items()}}
        quality = judge_samples(facts | {"kinds": None if shares is None else shares.tolist()})
        rows = draw_rows(len(features), min(MAX_IMAGES, len(self._real.features) // 2))
        chosen = self._real.reference.project(features)[rows]
        apart = mean_distance(chosen)
        code = None if quality.kind is None else CODES[quality.kind]
        return DiversityReport(
            named["variance"],
            named["distance"],
            apart,
            apart / named["distance"].value if named["distance"].value else float("nan"),
            named["modes"],
            named["largest mode"],
            named["coverage"],
            quality.kind,
            code,
            quality.sentence,
            _advice(named, code),
            len(features),
        )


def _advice(named: dict[str, Figure], code: str | None) -> tuple[str, ...]:
    """By number, and where they make a finding together, that of its rule first."""
    words = [rule.fix for rule in RULES if rule.code == code]
    for name, text in ADVICE.items():
        figure, crowds = named[name], name == "largest mode"
        if (figure.low > figure.baseline[1]) if crowds else (figure.high < figure.baseline[0]):
            words.append(f"{text} ({figure.name}: {figure.value:.2f}, real images {range_text(*figure.baseline)})")
        elif name in UNUSUAL and figure.low > figure.baseline[1]:
            words.append(UNUSUAL[name])
    return tuple(words)
