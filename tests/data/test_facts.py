"""What is told of a set is what was put into it."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from oddities import photograph
from PIL import Image, ImageEnhance

from safelight.config.tree import Data
from safelight.data.images import Images, hold_out, straddling
from safelight.data.prepare import open_images
from safelight.data.summary import lines, remarks, summary
from safelight.errors import DataError


def save(image: Image.Image, path: Path, **how: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **how)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Images, Data]:
    """40 photographs, and one of everything that is told."""
    top = tmp_path_factory.mktemp("known")
    pictures = [photograph(64, 48) for _ in range(40)]
    for number, picture in enumerate(pictures):
        save(picture, top / ("many" if number < 30 else "some") / f"{number:02}.png")
    save(pictures[0], top / "many" / "copy.bmp")  # the same pixels in another file
    save(pictures[1], top / "some" / "contradiction.png")
    buffer = io.BytesIO()
    pictures[2].save(buffer, "JPEG", quality=50)
    (top / "many" / "again.jpg").write_bytes(buffer.getvalue())
    save(ImageEnhance.Brightness(pictures[3]).enhance(1.1), top / "some" / "brighter.png")
    noisy = np.asarray(pictures[4]) + np.random.default_rng(4).normal(0, 70, (48, 64, 3))  # near, but another picture
    save(Image.fromarray(noisy.clip(0, 255).astype(np.uint8)), top / "many" / "noisy.png")
    save(Image.new("RGB", (64, 64), (3, 3, 3)), top / "many" / "blank.png")
    save(photograph(400, 20), top / "many" / "panorama.png")
    save(photograph(10, 12), top / "many" / "small.png")
    save(photograph(48, 64).convert("L"), top / "many" / "grey.png")
    (top / "many" / "bad.png").write_bytes(b"bad")
    data = Data(source=str(top), image_size=24, cache=str(tmp_path_factory.mktemp("cache")))
    return open_images(data), data


def row_of(images: Images, name: str) -> int:
    assert images.names is not None
    return next(row for row in range(len(images)) if images.names[row] == name)


def test_the_facts_are_those_of_the_pile(known: tuple[Images, Data]) -> None:
    images, data = known
    found = summary(images, data)
    assert found["images"] == len(images) == 49
    assert found["formats"] == {"PNG": 47, "JPEG": 1, "BMP": 1}
    assert found["common_sizes"][0] == [64, 48, 45]
    assert found["widths"] == [10, 64, 400]
    assert found["classes"] == {"many": 37, "some": 12}
    assert found["grey"] == 2
    assert found["duplicates"] == 2
    assert found["in_two_classes"] == 1
    assert found["blank_rows"] == [row_of(images, "many/blank.png")]
    assert found["enlarged"] == 2
    assert found["much_lost"] == 1
    assert found["extremes"]["widest"][0] == row_of(images, "many/panorama.png")
    assert found["extremes"]["smallest"][0] == row_of(images, "many/small.png")
    assert found["extremes"]["darkest"][0] == row_of(images, "many/blank.png")
    assert found["rejected"] == [["many/bad.png", found["rejected"][0][1]]]
    pixels = np.asarray(images.pixels, np.float64).reshape(-1, 3)
    assert found["mean"] == pytest.approx(pixels.mean(0).tolist())
    assert found["std"] == pytest.approx(pixels.std(0).tolist())
    assert (found["low"], found["high"]) == (pixels.min(), pixels.max())


def test_pictures_that_look_alike_are_found_and_others_are_not(known: tuple[Images, Data]) -> None:
    images, _ = known
    wanted = {("many/02.png", "many/again.jpg"), ("many/03.png", "some/brighter.png")}
    assert images.near is not None
    assert images.names is not None
    assert {(images.names[a], images.names[b]) for a, b in images.near.tolist()} == wanted


def test_lossless_levels_are_exact(tmp_path: Path) -> None:
    save(Image.new("L", (8, 8), 0), tmp_path / "set" / "a.png")
    save(Image.new("L", (8, 8), 255), tmp_path / "set" / "b.png")
    found = open_images(Data(source=str(tmp_path / "set"), image_size=8, cache=str(tmp_path / "c"))).facts
    assert (found["mean"], found["std"], found["low"], found["high"]) == ([127.5], [127.5], 0, 255)


def test_the_page_tells_every_fact(known: tuple[Images, Data]) -> None:
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
        ({"duplicates": 60}, "Copies: 60"),
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
    told = list(remarks(HEALTHY | sick, data))
    assert len(told) == 1
    assert words in told[0]


def test_copies_stay_on_one_side_of_the_split(known: tuple[Images, Data]) -> None:
    images, _ = known
    for share in (0.2, 0.5, 0.8):
        train, held = hold_out(images, share)
        assert train is not None
        assert sorted([*train, *held]) == list(range(len(images)))
        assert images.rows is not None
        contents = {row: images.rows["content"][row].tobytes() for row in range(len(images))}
        assert not {contents[row] for row in train} & {contents[row] for row in held}


def test_the_split_is_stable_and_of_the_wanted_size(tmp_path: Path) -> None:
    few = open_images(Data(source="shapes:1000", image_size=8, cache=str(tmp_path)))
    many = open_images(Data(source="shapes:4000", image_size=8, cache=str(tmp_path)))
    held = {share: set(hold_out(many, share)[1].tolist()) for share in (0.1, 0.2)}
    assert abs(len(held[0.1]) - 400) < 80
    assert held[0.1] < held[0.2], "a larger share holds out the same ones and more"
    assert {row for row in held[0.1] if row < 1000} == set(hold_out(few, 0.1)[1].tolist()), "others do not matter"
    assert hold_out(many, 0.0) == (None, pytest.approx([]))


def test_a_split_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    images = open_images(Data(source="shapes:3", image_size=8, cache=str(tmp_path)))
    for share, words in ((1e-9, "no image to hold out"), (1 - 1e-9, "no image to train on")):
        with pytest.raises(DataError, match=words):
            hold_out(images, share)


def test_near_copies_across_the_split_are_counted(known: tuple[Images, Data]) -> None:
    images, _ = known
    assert images.near is not None
    first = images.near[0].tolist()
    assert straddling(images, first) == 0
    assert straddling(images, first[:1]) == 1
