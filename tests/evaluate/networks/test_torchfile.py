"""Files of torch: tensors are read exactly, nothing is ever run, and files that mean harm are refused."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from safelight.errors import CheckpointError
from safelight.evaluate.networks.torchfile import read_tensors


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))


def saved(what: object, *, new: bool = True) -> bytes:
    file = io.BytesIO()
    torch.save(what, file, _use_new_zipfile_serialization=new)
    return file.getvalue()


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_what_torch_saved_is_read_exactly(new: bool, dtype: torch.dtype) -> None:
    state = small().to(dtype).state_dict()
    found = read_tensors(saved(state, new=new), "file")
    assert found.keys() == state.keys()
    assert all(found[name].dtype == tensor.dtype and torch.equal(found[name], tensor) for name, tensor in state.items())


@pytest.mark.parametrize("new", [True, False])
def test_views_and_shared_storages(new: bool) -> None:
    table = torch.arange(12.0).view(3, 4)
    state = {"turned": table.T, "row": table[1], "parameter": nn.Parameter(table)}
    found = read_tensors(saved(state, new=new), "file")
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())


def test_a_scripted_module_is_read_and_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = small()
    torch.jit.script(module).save(str(tmp_path / "scripted.pt"))
    for name in ("torch.jit.load", "torch.load", "pickle.loads", "pickle.load"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("the file was run"))
    found = read_tensors((tmp_path / "scripted.pt").read_bytes(), "file")
    assert all(torch.equal(found[name], tensor) for name, tensor in module.state_dict().items())


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch exploded",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda: saved({"weight": Bomb()}), "wants to call posix.system"),
        (lambda: saved({"weight": Bomb()}, new=False), "wants to call posix.system"),
        (lambda: saved(small()), "wants to make a torch.nn"),
        (lambda: pickle.dumps(Bomb(), 4), "instruction"),
        (lambda: saved({"steps": 3}), "no tensors"),
        (lambda: saved(small().state_dict())[:-300], "file is no|no whole file"),
        (lambda: saved(small().state_dict(), new=False)[:-8], "no whole file"),
        (lambda: b"", "no whole file"),
        (lambda: b"<html>404</html>" * 9, "no whole file"),
    ],
)
def test_anything_but_tensors_is_refused(
    content: Callable[[], bytes], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=words):
        read_tensors(content(), "file")
    assert not (tmp_path / "exploded").exists()


def test_a_slice_beyond_its_storage_is_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved({"weight": torch.zeros(4, 4)}))) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, content[:32] if name.endswith("data/0") else content)
    with pytest.raises(CheckpointError, match="no whole file"):
        read_tensors(file.getvalue(), "file")


def test_compressed_tensors_are_refused(tmp_path: Path) -> None:
    """A few kilobytes could unpack to anything."""
    torch.save({"a": torch.zeros(1000)}, tmp_path / "plain.pth")
    with zipfile.ZipFile(tmp_path / "plain.pth") as plain, zipfile.ZipFile(tmp_path / "small.pth", "w") as small:
        for entry in plain.infolist():
            small.writestr(entry.filename, plain.read(entry), zipfile.ZIP_DEFLATED)
    assert read_tensors((tmp_path / "plain.pth").read_bytes(), "plain")["a"].shape == (1000,)
    with pytest.raises(CheckpointError, match="compressed"):
        read_tensors((tmp_path / "small.pth").read_bytes(), "small")


@pytest.mark.parametrize("legacy", [False, True])
def test_a_view_that_repeats_one_number_without_end_is_refused(legacy: bool) -> None:
    content = io.BytesIO()
    torch.save({"a": torch.zeros(1).expand(10**9)}, content, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(CheckpointError, match="more numbers than it holds"):
        read_tensors(content.getvalue(), "file")


def test_tables_within_tables_without_end_are_refused() -> None:
    tree: dict[str, object] = {"a": torch.zeros(1)}
    for _ in range(30):
        tree = {"left": tree, "right": tree}
    content = io.BytesIO()
    torch.save(tree, content)
    with pytest.raises(CheckpointError, match="the same table twice"):
        read_tensors(content.getvalue(), "file")


@pytest.mark.parametrize("cousins", [True, False])
def test_a_table_that_comes_again_is_refused_wherever_it_is(cousins: bool) -> None:
    """Thirty levels of tables in which each holds the next one twice, by way of two others: a billion tensors."""
    tree: dict[str, object] = {"a": torch.zeros(1)}
    for _ in range(30):
        tree = {"left": {"x": tree}, "right": {"x": tree if cousins else {"b": torch.zeros(1)}}}
    if not cousins:
        assert len(read_tensors(saved(tree), "file")) == 31
        return
    with pytest.raises(CheckpointError, match="the same table twice"):
        read_tensors(saved(tree), "file")
