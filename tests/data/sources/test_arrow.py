"""Datasets saved by HF `datasets`. The package is not a dependency: a stand-in with the parts that are used is enough
here; the real one (5.2.0) was tried by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from oddities import photograph

from safelight.config.tree import Data
from safelight.data.prepare import open_images
from safelight.errors import DataError

STAND_IN = """
import json, pathlib

class Image: pass
class DatasetDict(dict): pass

class ClassLabel:
    def __init__(self, names): self.names = names

class Cell:
    def __init__(self, value): self.value = value
    def as_py(self): return self.value

class Dataset:
    def __init__(self, path):
        reported = json.loads((pathlib.Path(path) / "reported.json").read_text())
        self.features = {"note": "text", "picture": Image(), "kind": ClassLabel(["cat", "dog"])}
        if reported.get("blind"): del self.features["picture"]
        self.columns = {
            "picture": [Cell(f and {"bytes": pathlib.Path(f).read_bytes() if kept else None, "path": f})
                        for f, kept in reported["pictures"]],
            "kind": [Cell(number) for number in reported["kinds"]],
        }
        self.data = self
    def column(self, name): return self.columns[name]

def load_from_disk(path):
    if not (pathlib.Path(path) / "state.json").exists(): return DatasetDict(one=1, two=2)
    return Dataset(path)
"""


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site, folder, files = tmp_path / "site", tmp_path / "saved", tmp_path / "files"
    for each in (site, folder, files):
        each.mkdir()
    (site / "datasets.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "datasets", raising=False)
    reported = {"pictures": [], "kinds": []}
    for number in range(8):
        photograph(12, 12).save(files / f"{number}.png")
        reported["pictures"].append([str(files / f"{number}.png"), number % 2 == 0])
        reported["kinds"].append(number % 2)
    reported["pictures"] += [[None, True], [str(files / "gone.png"), False]]
    reported["kinds"] += [0, 1]
    (folder / "reported.json").write_text(json.dumps(reported))
    (folder / "state.json").write_text("{}")
    (folder / "dataset_info.json").write_text("{}")
    return folder


def read(folder: Path):  # type: ignore[no-untyped-def]
    return open_images(Data(source=str(folder), image_size=8, max_bad=0.5, cache=str(folder.parent / "cache")))


def test_pictures_inside_and_beside_are_read_with_their_labels(saved: Path) -> None:
    images = read(saved)
    assert len(images) == 8
    assert images.class_names == ("cat", "dog")
    assert images.labels is not None
    assert images.labels.tolist() == [0, 1] * 4
    reasons = dict(images.rejected)
    assert reasons.keys() == {"000000008", "000000009"}
    assert "holds no picture" in reasons["000000008"]
    assert "not a file" in reasons["000000009"]


def test_a_dataset_without_images_or_a_train_split_is_refused(saved: Path) -> None:
    reported = json.loads((saved / "reported.json").read_text())
    (saved / "reported.json").write_text(json.dumps(reported | {"blind": True}))
    with pytest.raises(DataError, match="the columns note, kind, and none of them holds images"):
        read(saved)
    (saved / "state.json").unlink()
    (saved / "dataset_dict.json").write_text('{"splits": ["one", "two"]}')
    with pytest.raises(DataError, match="the splits one, two and none called train"):
        read(saved)


def test_without_the_package_it_says_what_to_install(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match="pip install datasets"):
        read(saved)
