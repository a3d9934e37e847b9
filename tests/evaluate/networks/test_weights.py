"""Weights: where they are looked for, what is refused, and what they are known by."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from safelight.errors import CheckpointError, SafelightError, UsageError
from safelight.evaluate.networks import inception, weights
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
