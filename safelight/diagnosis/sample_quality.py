"""What the numbers of one evaluation say of its samples: as real ones, too few kinds, too alike, vague, or mush."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "crowded", "missing", "narrow", "vague", "mush",  # by features
    "blank", "alike", "saturated", "noisy", "off-colour",  # by pixels: sample_appearance.py
]  # fmt: skip

# From digits and garments: 20 halves of each against the other half, at 128 and at 256 images, of which none is outside
# any of these; and sets of them with classes, variety or sharpness taken away, as tests/evaluate/test_collapse.py has.
# Of the density of real images: from here on samples lie where real images do; a Gaussian's have 0.5
AMONG_REAL_DENSITY = 0.75
SHRUNK = 0.85  # of the variance of real images: below it samples keep to the middle, whatever kinds are missing
LESS = 0.9  # of the lower end of real images: less variety than chance makes
CROWDED_KIND_FACTOR = 1.25  # times the upper end of real images: the share of the most frequent kind
SEEN = 0.95  # of the lower end of real images: the share of them with a sample nearby
RARE_KIND_SHARE = 1 / 3  # a kind with less than a third of its share
MISSING_SHARE = 0.15  # the share of real images of such kinds
MOSTLY_MISSING_SHARE = 0.35  # of the real images missing: less variety is then no surprise
HALF_OF_SAMPLES = 0.5  # of the samples in one kind
KIND_EXCESS_FACTOR = 3.0  # times what the loss of other kinds explains
REPEATED_RECALL_SHARE = 0.2  # of the recall of real images: a handful of images again and again
LIKE = 0.75  # of the precision of real images: vague rather than mush
# Of the distance of Gaussian images: a healthy run is below half of it at its first evaluation
NEAR_GAUSSIAN_SHARE = 0.8
CERTAIN = 4.0  # standard errors by which Gaussian images must differ from real ones to be a yardstick
GOOD_DISTANCE_SHARE = 0.25  # of that distance, for samples whose numbers are all as those of real images


@dataclass(frozen=True, slots=True)
class SampleQuality:
    """`kind` is None where samples are neither collapsed nor mush; `near` their distance over that of Gaussian images,
    None if these are no yardstick."""

    kind: Kind | None
    near: float | None
    sentence: str


class Figures:
    """Those of an evaluation, by name, as they were recorded."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._figures: Mapping[str, Any] = facts.get("figures") or {}

    def __bool__(self) -> bool:
        return bool(self._figures)

    def value(self, name: str) -> float:
        return float(self._figures[name]["value"])

    def real(self, name: str) -> tuple[float, float]:
        low, high = self._figures[name]["real"]
        return float(low), float(high)

    def is_below(self, name: str, share: float = 1.0) -> bool:
        """Whether the whole interval lies below this share of what real images have."""
        return float(self._figures[name]["interval"][1]) < share * self.real(name)[0]

    def is_above(self, name: str, times: float = 1.0) -> bool:
        return float(self._figures[name]["interval"][0]) > times * self.real(name)[1]


def judge_samples(facts: Mapping[str, Any]) -> SampleQuality:
    """`facts`: of an “evaluated” event, or `Examination.to_json()`."""
    figures, near = Figures(facts), distance_over_gaussian(facts)
    kind = _kind(figures, facts.get("kinds") or [], near) if figures else "mush" if _is_mush(near) else None
    return SampleQuality(kind, near, _sentence(kind, figures, near))


def distance_over_gaussian(facts: Mapping[str, Any]) -> float | None:
    """The larger of both distances over those of Gaussian images; None without a yardstick."""
    gaussian, ratios = facts.get("gaussian") or {}, []
    for name in ("unbiased", "kernel"):
        if name not in gaussian or name not in facts:
            continue
        far, error = float(gaussian[name]["value"]), float(gaussian[name]["error"])
        if far > CERTAIN * error:
            ratios.append(max(0.0, float(facts[name]["value"])) / far)
    return max(ratios, default=None)


def missing_share(kinds: list[list[float]]) -> float:
    """The share of real images whose kind samples hardly ever have."""
    return sum(real for own, real in kinds if own < RARE_KIND_SHARE * real)


def _kind(figures: Figures, kinds: list[list[float]], near: float | None) -> Kind | None:
    varies_less = any(figures.is_below(name, LESS) for name in ("variance", "distance", "vendi"))
    if figures.value("density") < AMONG_REAL_DENSITY * figures.real("density")[0]:
        # Not by the variance: that of Gaussian images is low too, but no two of them are alike.
        alike = figures.value("vendi") < LESS * figures.real("vendi")[0]
        if alike and not (_is_mush(near) and figures.value("precision") < LIKE * figures.real("precision")[0]):
            return "vague"
        return "mush" if _is_mush(near) else None
    if varies_less and figures.is_below("recall", REPEATED_RECALL_SHARE):
        return "narrow"
    missing = missing_share(kinds) if figures.is_below("coverage", SEEN) else 0.0
    if missing < MOSTLY_MISSING_SHARE and figures.is_below("variance", SHRUNK) and figures.is_below("distance", LESS):
        return "vague"
    if figures.is_above("largest mode", CROWDED_KIND_FACTOR) and _is_crowded(kinds, missing):
        return "crowded"
    if missing >= MISSING_SHARE:
        return "missing"
    return "narrow" if varies_less else None


def _is_crowded(kinds: list[list[float]], missing: float) -> bool:
    """Kinds that are missing make all others more frequent: the largest must be more than that."""
    if missing < MISSING_SHARE or not kinds:
        return True
    own, real = max(kinds)
    return own >= HALF_OF_SAMPLES or own > KIND_EXCESS_FACTOR * real / max(1 - missing, 1e-6)


def _is_mush(near: float | None) -> bool:
    return near is not None and near >= NEAR_GAUSSIAN_SHARE


def _sentence(kind: Kind | None, figures: Figures, near: float | None) -> str:
    if kind == "crowded":
        share, usual = figures.value("largest mode"), figures.real("largest mode")[1]
        visited = figures.value("modes")
        return (
            f"The samples crowd into one kind of image: {share:.0%} of them, where real images have at most "
            f"{usual:.0%}; {visited:.0%} of the kinds are visited."
        )
    if kind == "missing":
        seen, usual = figures.value("coverage"), figures.real("coverage")[0]
        return (
            f"Kinds of images are missing: {seen:.0%} of the real images have a sample nearby, where other real images "
            f"have {usual:.0%}."
        )
    if kind == "narrow":
        return f"The samples vary too little: {_variety(figures)}; each of them looks real."
    if kind == "vague":
        return (
            f"The samples are vague and alike: {_variety(figures)}, and {figures.value('density'):.2f} times as "
            "densely among real images as expected."
        )
    if kind == "mush":
        return (
            f"The samples are no better than a Gaussian: {near:.2f} times as far from real images as random images "
            "with the same mean and covariance."
        )
    return _fair_sentence(figures, near)


def _variety(figures: Figures) -> str:
    words = {"variance": "the variance", "distance": "the distance apart", "vendi": "the number of different images"}
    name = min(words, key=lambda each: figures.value(each) / figures.real(each)[0])
    return f"{figures.value(name):.2f} times {words[name]} of real ones"


def _fair_sentence(figures: Figures, near: float | None) -> str:
    than = "" if near is None else f" ({near:.2f} times as far from real images as Gaussian ones)"
    if not figures:
        return f"{_without_figures(near)}{than}: too few images to judge likeness and variety."
    lacking = [name for name in ("precision", "density", "recall", "coverage") if figures.is_below(name)]
    if lacking or (near is not None and near > GOOD_DISTANCE_SHARE):
        better = "not yet as real images are" if near is None else "better than a Gaussian, not yet as real images are"
        return f"The samples are {better}{than}{': ' + ', '.join(lacking) + ' too low' if lacking else ''}."
    return f"Good: the samples are as like and as varied as real images{than}."


def _without_figures(near: float | None) -> str:
    """A sentence about few samples, or of few real images."""
    if near is None:
        return "The samples were not judged"
    but = "not yet as real images are, but " if near > GOOD_DISTANCE_SHARE else ""
    return f"The samples are {but}better than a Gaussian"
