"""The contact sheet has a row for everything that is worth a look, and none for what is not there."""

from __future__ import annotations

import numpy as np
import pytest

from safelight import contact_sheet
from safelight.data.images import Images
from safelight.pictures.sheet import COLUMNS, Group

NOTHING = {"duplicate_rows": [], "near_rows": [], "blank_rows": [], "extremes": {}, "rejected": [], "duplicates": 0,
           "near": 0, "blank": 0}  # fmt: skip


def images(count: int, **more: object) -> Images:
    pixels = np.arange(count, dtype=np.uint8)[:, None, None, None].repeat(8, 1).repeat(8, 2)
    return Images(pixels=pixels, fingerprint="", **({"labels": None, "class_names": ()} | more))  # type: ignore[arg-type]


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[Group]:
    """What the sheet was drawn of."""
    found: list[Group] = []
    monkeypatch.setattr(contact_sheet, "sheet", found.extend)
    return found


def test_a_healthy_set_has_one_row(groups: list[Group]) -> None:
    contact_sheet.contact_sheet(images(100), NOTHING)
    [some] = groups
    assert some.title == "100 images"
    assert len(some.captions) == 2 * COLUMNS
    assert (some.captions[0], some.captions[-1]) == ("0", "99")


def test_everything_worth_a_look_has_its_row(groups: list[Group]) -> None:
    labels = np.zeros(100, np.int64)
    found = NOTHING | {
        "duplicate_rows": [[1, 2], [3, 4]],
        "duplicates": 2,
        "blank_rows": list(range(50)),
        "blank": 50,
        "extremes": {"darkest": [7], "flattest": [8]},
        "rejected": [["a.png", "is empty"]] * 50,
    }
    contact_sheet.contact_sheet(images(100, labels=labels, class_names=("cat",)), found)
    titles = ["100 images", "Equal another one: 2", "Of one colour: 50", "Darkest", "Least contrast", "Left out: 50"]
    assert [group.title for group in groups] == titles
    assert [len(group.captions) for group in groups[1:5]] == [4, COLUMNS, 1, 1]
    assert groups[1].captions[0] == "cat"
    assert groups[1].images[:, 0, 0, 0].tolist() == [1, 2, 3, 4]
    assert groups[5].lines == ["a.png: is empty"] * contact_sheet.MAX_LISTED_FILES
