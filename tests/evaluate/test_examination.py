"""Each way for samples to be bad is seen by the numbers that are made for it, and by no others; good ones by none.

The set of coloured shapes has 24 modes in equal parts, and `recognise` knows them: what is missing here is known.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache

import numpy as np
import pytest
import torch
from shape_recognition import recognise
from torch import Tensor, nn

from safelight.config.tree import Data
from safelight.data.sources.shapes import shapes
from safelight.evaluate.examination import LEAST_REAL, Examination, Real, examine
from safelight.evaluate.features import Extractor, extract, own_extractor
from safelight.evaluate.frechet import frechet
from safelight.evaluate.thumbnails import Thumbnails, find_copies, shrink

KEYS = {"label", "distance", "unbiased", "kernel", "count", "reference_count", "figures", "kinds", "gaussian", "copies"}
COUNT, TRAINED, HELD = 512, 1500, 600
ALIKE = ("as real images do.", "no crowding.", "the mixture is as in real images.")


class Eye(nn.Module):
    """Three random convolutions, always the same."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((3, 24, 5), (24, 48, 3), (48, 64, 3))
        self.layers = nn.ModuleList(nn.Conv2d(a, b, k, stride=2, padding=k // 2) for a, b, k in sizes)
        numbers = torch.Generator().manual_seed(0)
        for tensor in self.parameters():
            tensor.data.normal_(0, 1 / math.sqrt(tensor[0].numel()), generator=numbers)

    def forward(self, x: Tensor) -> Tensor:
        x = 2 * x - 1
        for layer in self.layers:
            x = layer(x).relu()
        return nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)


@cache
def eye() -> Extractor:
    return own_extractor(Eye(), name="eye", side=16)


@cache
def everything() -> tuple[np.ndarray, np.ndarray]:
    """uint8 [n, 3, 16, 16] and their modes; every draw is another."""
    pieces = list(shapes(Data(source="shapes:15600", image_size=16)).chunks())
    labels = [piece for _, piece in pieces if piece is not None]
    return np.concatenate([piece for piece, _ in pieces]).transpose(0, 3, 1, 2).copy(), np.concatenate(labels)


def trained() -> np.ndarray:
    return everything()[0][:TRAINED]


def held_out() -> np.ndarray:
    return everything()[0][TRAINED : TRAINED + HELD]


def fresh(keep: object = slice(None)) -> np.ndarray:
    """Draws that are neither trained on nor held out, of all modes or of some."""
    pixels, labels = everything()
    if callable(keep):
        return pixels[TRAINED + HELD :][keep(labels[TRAINED + HELD :])][:COUNT]
    return pixels[TRAINED + HELD : TRAINED + HELD + COUNT]


def blended(share: float) -> np.ndarray:
    """Towards the mean of all: what a model makes that averages."""
    return np.rint(share * fresh() + (1 - share) * trained().mean(0)).astype(np.uint8)


def with_copies(share: float) -> np.ndarray:
    samples, copies = fresh().copy(), round(share * COUNT)
    samples[:copies] = trained()[np.random.default_rng(0).permutation(TRAINED)[:copies]]
    return samples


MAKE = {
    "held out": lambda: held_out()[:COUNT],
    "other draws": fresh,
    "one class": lambda: fresh(lambda labels: labels == 5),
    "one image": lambda: np.repeat(fresh()[:1], COUNT, 0),
    "one hue missing": lambda: fresh(lambda labels: labels // 4 != 0),
    "low variance": lambda: blended(0.5),
    "slightly low variance": lambda: blended(0.8),
    "5 % copies": lambda: with_copies(0.05),
    "one copy": lambda: with_copies(1 / COUNT),
    "all copies": lambda: with_copies(1.0),
}
VARIETY = {"variance", "distance", "vendi"}
SPREAD = {"recall", "coverage"}
KINDS = {"modes", "largest mode", "different modes"}
FIGURES = {"precision", "density"} | VARIETY | SPREAD | KINDS


@cache
def real() -> Real:
    return Real(extract(eye(), trained()), eye().label, components=32)


@cache
def thumbnails() -> Thumbnails:
    return Thumbnails(np.arange(TRAINED), shrink(trained()), shrink(held_out()))


@cache
def examined(name: str) -> Examination:
    samples = MAKE[name]()
    return examine(extract(eye(), samples), real(), find_copies(samples, thumbnails()))


def value(found: Examination, name: str) -> float:
    [figure] = [figure for figure in found.figures if figure.name == name]
    return figure.value


def complaints(found: Examination) -> set[str]:
    return {figure.name for figure in found.figures if not figure.sentence.endswith(ALIKE)}


def test_the_stand_ins_are_what_they_are_called() -> None:
    def kinds(name: str) -> set[int]:
        pixels = np.concatenate([MAKE[name]()])
        return set(recognise(np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))).tolist()) - {-1}

    assert len(kinds("held out")) == len(kinds("other draws")) == 24
    assert kinds("one class") == {5}
    assert len(kinds("one image")) == 1
    assert kinds("one hue missing") == set(range(4, 24))
    assert all(len(MAKE[name]()) == COUNT for name in MAKE)
    together = np.concatenate([trained(), held_out(), fresh()]).reshape(TRAINED + HELD + COUNT, -1)
    assert len(np.unique(together, axis=0)) == len(together), "no image is there twice"


@pytest.mark.parametrize(
    ("name", "seen", "unseen", "far", "alarm"),
    [
        # healthy
        ("held out", set(), FIGURES, False, False),
        ("other draws", set(), FIGURES, False, False),
        # collapsed
        ("one class", VARIETY | SPREAD | KINDS, set(), True, False),
        ("one image", VARIETY | SPREAD | KINDS, set(), True, False),
        ("one hue missing", SPREAD | {"different modes"}, {"precision", "variance", "distance"}, True, False),
        ("low variance", VARIETY | SPREAD | {"different modes"}, set(), True, False),
        ("slightly low variance", {"variance", "distance", "recall"}, {"largest mode"}, True, False),
        # copied: nothing but the search for copies can see it
        ("one copy", set(), FIGURES, False, False),
        ("5 % copies", set(), FIGURES, False, True),
        ("all copies", set(), SPREAD | VARIETY, False, True),
    ],
)
def test_each_disease_is_seen_by_its_own_numbers(
    name: str, seen: set[str], unseen: set[str], far: bool, alarm: bool
) -> None:
    found = examined(name)
    told = complaints(found)
    assert seen <= told
    assert not unseen & told
    assert (found.unbiased.interval()[0] > 0) == far
    assert ("clearly more than" in found.kernel.sentence) == far
    assert found.unbiased.trusted
    assert found.copies is not None
    assert found.copies.alarm == alarm
    assert ("The model copies" in found.copies.sentence) == alarm
    assert {figure.name for figure in found.figures} == FIGURES


@pytest.mark.parametrize(
    ("name", "figure", "low", "high"),
    [
        ("other draws", "variance", 0.9, 1.1),
        ("other draws", "modes", 0.99, 1),
        ("other draws", "largest mode", 0, 0.1),
        ("other draws", "different modes", 0, 0),
        ("other draws", "vendi", 0.9, 1.1),
        ("one class", "variance", 0.3, 0.75),
        ("one class", "modes", 0.05, 0.5),
        ("one class", "largest mode", 0.15, 1),
        ("one class", "different modes", 10, 100),
        ("one class", "vendi", 0.1, 0.6),
        ("one class", "precision", 0.75, 1),  # each of them is a good picture
        ("one image", "variance", 0, 1e-6),
        ("one image", "distance", 0, 1e-3),
        ("one image", "largest mode", 1, 1),
        ("one image", "modes", 0.001, 0.05),
        ("one image", "recall", 0, 0.05),
        ("one hue missing", "different modes", 1, 15),
        ("one hue missing", "variance", 0.9, 1.1),
        ("low variance", "variance", 0.15, 0.45),
        ("low variance", "vendi", 0.2, 0.9),
        ("slightly low variance", "variance", 0.5, 0.85),
        ("5 % copies", "variance", 0.9, 1.1),
        ("5 % copies", "different modes", 0, 0),
    ],
)
def test_by_about_as_much_as_is_missing(name: str, figure: str, low: float, high: float) -> None:
    assert low <= value(examined(name), figure) <= high


@pytest.mark.parametrize(
    ("name", "share"), [("other draws", 0), ("one copy", 1 / COUNT), ("5 % copies", 26 / COUNT), ("all copies", 1)]
)
def test_copies_are_counted_and_shown_with_their_originals(name: str, share: float) -> None:
    copies = examined(name).copies
    assert copies is not None
    assert copies.copied.value == pytest.approx(share, abs=1.5 / COUNT)
    assert copies.smallest < 0.05, "so few would have been enough"
    pixels = MAKE[name]()
    for sample, original in copies.closest[: min(16, round(share * COUNT))]:
        assert np.array_equal(pixels[sample], trained()[original])


def test_the_worse_the_farther() -> None:
    order = ["other draws", "slightly low variance", "low variance", "one image"]
    values = [examined(name).unbiased.corrected for name in order]
    assert values == sorted(values)
    assert examined("one class").unbiased.corrected > 10 * examined("one hue missing").unbiased.corrected


def test_the_same_samples_get_the_same_numbers() -> None:
    samples = MAKE["5 % copies"]()
    fitted = Real(extract(eye(), trained()), eye().label, components=32)
    again = examine(extract(eye(), samples), fitted, find_copies(samples, thumbnails()))
    assert again.to_json() == examined("5 % copies").to_json()
    assert again.to_json() != examined("one copy").to_json()


@pytest.mark.parametrize("name", MAKE)
def test_json_says_all_that_was_found(name: str) -> None:
    found = examined(name)
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert told.keys() == KEYS
    assert (told["label"], told["count"], told["reference_count"]) == ("FD-eye", COUNT, TRAINED)
    assert told["distance"]["value"] == frechet(extract(eye(), MAKE[name]()), extract(eye(), trained())).value
    assert told["unbiased"]["value"] == found.unbiased.corrected
    assert told["unbiased"]["dimension"] == 32
    assert told["figures"].keys() == FIGURES
    for figure in told["figures"].values():
        assert figure["interval"][0] <= figure["value"] <= figure["interval"][1]
        assert figure["real"][0] <= figure["real"][1]
        assert figure["sentence"].endswith(".")
    assert told["copies"]["alarm"] == (found.copies is not None and found.copies.alarm)
    assert told["copies"]["held_out"] is True


def test_sentences_are_those_of_all_numbers() -> None:
    found = examined("5 % copies")
    assert found.copies is not None
    figures = [figure.sentence for figure in found.figures]
    assert len(figures) == len(FIGURES)
    assert all(
        text.endswith(".")
        for text in [found.distance.sentence, found.unbiased.sentence, found.kernel.sentence, *figures]
    )
    assert found.copies.sentence.endswith(".")
    assert "The model copies training images" in found.copies.sentence


def test_the_summary_has_its_error_and_the_number_of_samples() -> None:
    few = examine(extract(eye(), fresh()[:127]), real())
    number = r"[0-9]+\.[0-9]+"
    words = rf"FD-eye {number} ± {number} \(N = 512, real images {number}\)"
    assert re.fullmatch(words, examined("one class").summary)
    assert not few.unbiased.trusted, "128 = 4 x 32 would be enough"
    assert examine(extract(eye(), fresh()[:128]), real()).unbiased.trusted
    assert few.copies is None
    assert few.to_json()["copies"] is None


# The real side


@pytest.mark.parametrize(
    ("count", "components", "label", "dimension"),
    [(300, 0, "FD", 256), (300, 8, "FD-pca8", 8), (300, 9999, "FD-pca256", 256), (20, 64, "FD-pca19", 19)],
)
def test_only_the_distance_without_bias_names_the_axes_that_are_used(
    count: int, components: int, label: str, dimension: int
) -> None:
    found = Real(extract(eye(), trained()[:count]), "FD", components=components)
    assert (found.label, found.unbiased_label) == ("FD", f"{label}, bias removed")
    assert found.reference.dimension == dimension
    assert found.whole.dimension == 256


@pytest.mark.parametrize(("count", "figures"), [(LEAST_REAL - 1, 0), (LEAST_REAL, 10)])
def test_few_real_images_make_no_modes(count: int, figures: int) -> None:
    few = Real(extract(eye(), trained()[:count]), "FD", components=8)
    found = examine(extract(eye(), fresh()[:64]), few)
    assert len(found.figures) == figures
    assert json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize(("count", "taken"), [(64, 64), (500, 500), (900, 750)])
def test_the_floor_is_what_as_many_real_images_have(count: int, taken: int) -> None:
    features = extract(eye(), trained())
    floor, compared = Real(features, "FD").floor(count)
    assert compared == taken
    others = frechet(extract(eye(), fresh()[: min(taken, 500)]), features[min(taken, 500) :]).value
    assert floor is not None
    assert floor == pytest.approx(others, rel=0.35), "of other draws: none of the compared is among the others"


def test_few_real_images_have_no_floor() -> None:
    assert Real(extract(eye(), trained()[: LEAST_REAL - 1]), "FD").floor(16) == (None, 0)


def test_between_two_piles_the_choice_of_real_images_counts_too() -> None:
    features = extract(eye(), fresh())
    alone, both = (examine(features, real(), finite_reference=counts) for counts in (False, True))
    assert both.distance.error > alone.distance.error
    assert both.distance.value == alone.distance.value
    assert both.unbiased.error > alone.unbiased.error
    assert both.kernel.error > alone.kernel.error
    assert both.unbiased.corrected < alone.unbiased.corrected, "its bias is taken off as well"


def test_json_where_no_share_of_copies_could_be_seen() -> None:
    """Held-out images that are all in the training set too, as with a folder of doubles."""
    doubles = Thumbnails(np.arange(TRAINED), shrink(trained()), shrink(trained()[:300]))
    samples = with_copies(0.05)
    found = examine(extract(eye(), samples), real(), find_copies(samples, doubles))
    assert json.dumps(found.to_json(), allow_nan=False)
