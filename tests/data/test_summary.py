"""The report on a set: every fact on the page, and a remark on what is wrong and nothing else."""

from __future__ import annotations

import pytest

from safelight.config.tree import Data
from safelight.data.images import Images
from safelight.data.summary import in_short, lines, remarks, summary


def test_the_page_has_every_fact(known: tuple[Images, Data]) -> None:
    found = summary(*known)
    page = "\n".join(f"{name} {words}" for name, words in lines(found))
    for words in (
        "49 of 24 x 24 px, colour",
        "47 PNG",
        "64 x 48 (45)",
        "many",
        "2 equal another one",
        "pairs that look alike: 2",
    ):
        assert words in page


HEALTHY = {
    "images": 5000, "rejected": [], "duplicates": 3, "in_two_classes": 0, "blank": 0, "lost": 0.1, "enlarged": 4,
    "low": 0, "high": 255, "classes": {"a": 100, "b": 900},
}  # fmt: skip


@pytest.mark.parametrize(
    ("sick", "words"),
    [
        ({"images": 80, "duplicates": 0}, "Few: 80"),
        ({"rejected": [["x", "y"]] * 900}, "training would refuse"),
        ({"duplicates": 60}, "Copies: 60."),
        ({"in_two_classes": 2}, "In several classes: 2"),
        ({"blank": 1}, "Of one colour: 1"),
        ({"lost": 0.4}, "data.fit=pad"),
        ({"enlarged": 900}, "Smaller than 64 px"),
        ({"low": 0, "high": 1}, "between 0 and 1 of 255"),
        ({"classes": {"a": 10, "b": 900}}, "90 times as many"),
    ],
)
def test_remarks_name_what_is_wrong_and_nothing_else(sick: dict[str, object], words: str) -> None:
    data = Data(image_size=64)
    assert list(remarks(HEALTHY, data)) == []
    reported = list(remarks(HEALTHY | sick, data))
    assert len(reported) == 1
    assert words in reported[0]


@pytest.mark.parametrize(("copies", "left"), [(299, "1 different image."), (297, "3 different images.")])
def test_copies_are_named_before_anything_else(copies: int, left: str) -> None:
    first, second = remarks(HEALTHY | {"images": 300, "duplicates": copies}, Data(image_size=64))
    assert first.startswith(f"Copies: {copies}, which leaves {left}")
    assert second.startswith(f"Few: {300 - copies}.")


@pytest.mark.parametrize(
    ("remark", "words"),
    [
        (
            "Few: 80. A model learns so few by heart. More of them help most.",
            "Few: 80. A model learns so few by heart.",
        ),
        ("All levels lie between 0 and 1.", "All levels lie between 0 and 1."),
    ],
)
def test_a_remark_in_short(remark: str, words: str) -> None:
    assert in_short(remark) == words
