"""What a resume may change of a config, and what it says of other data and another environment."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny import tiny

from safelight.changes import check_changes, check_data, check_environment, check_origin
from safelight.checkpoints.snapshot import environment
from safelight.config.continuation import settings_affecting_result
from safelight.errors import UsageError


@pytest.mark.parametrize(
    ("settings", "force", "refused", "said"),
    [
        ({}, False, False, 0),
        ({"sample__every": 7}, False, False, 1),  # the same bytes
        ({"train__threads": 2}, False, False, 2),  # the same meaning
        ({"optimizer__lr": 0.5}, False, True, 1),
        ({"optimizer__lr": 0.5}, True, False, 1),
    ],
)
def test_what_would_change_the_meaning_needs_force(
    settings: dict[str, Any], force: bool, refused: bool, said: int
) -> None:
    lines: list[str] = []
    if refused:
        with pytest.raises(UsageError, match=r"optimizer\.lr"):
            check_changes(tiny(), tiny(**settings), force, lines.append)
    else:
        check_changes(tiny(), tiny(**settings), force, lines.append)
    assert len(lines) == said


class Images(SimpleNamespace):
    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("before", "force", "refused"),
    [("a" * 64, False, True), ("a" * 64, True, False), ("b" * 64, False, False), (None, False, False)],
)
def test_other_images_need_force(before: str | None, force: bool, refused: bool) -> None:
    data = {} if before is None else {"fingerprint": before}
    folder: Any = SimpleNamespace(path=Path("run"), status=lambda: {"data": data})
    images: Any = Images(fingerprint="b" * 64)
    if refused:
        with pytest.raises(UsageError, match="Add --force"):
            check_data(folder, images, force)
    else:
        check_data(folder, images, force)


@pytest.mark.parametrize(
    ("then", "shards", "said"),
    [({}, None, 0), ({"torch": "0.1"}, None, 1), ({"processes": 9}, None, 1), ({"processes": 9}, 4, 0)],
)
def test_another_environment_is_reported(then: dict[str, Any], shards: int | None, said: int) -> None:
    lines: list[str] = []
    loaded: Any = SimpleNamespace(manifest={"environment": environment() | then})
    check_environment(loaded, tiny(train__shards=shards), lines.append)
    assert len(lines) == said


@pytest.mark.parametrize(
    ("settings", "images", "force", "refused", "accepted"),
    [
        ({}, "b" * 64, False, None, False),
        ({"data__workers": 3, "checkpoint__every": 2}, "b" * 64, False, None, False),
        ({"train__threads": 2}, "b" * 64, False, None, False),
        ({"train__seed": 7}, "b" * 64, False, r"train\.seed in config\.yaml", False),
        ({"train__seed": 7}, "b" * 64, True, None, True),
        ({}, "c" * 64, False, "The images are not those", False),
        ({}, "c" * 64, True, None, True),
    ],
)
def test_what_the_checkpoint_says_counts(
    settings: dict[str, Any], images: str, force: bool, refused: str | None, accepted: bool
) -> None:
    state = json.loads(json.dumps({"origin": {"settings": settings_affecting_result(tiny()), "images": "b" * 64}}))
    loaded: Any = SimpleNamespace(state=state, path=Path("step_00000004"))
    given: Any = (loaded, (now := tiny(**settings)), now, Images(fingerprint=images), force, list[str]().append)
    if refused is None:
        assert check_origin(*given) == accepted
    else:
        with pytest.raises(UsageError, match=refused):
            check_origin(*given)


def test_a_checkpoint_of_before_says_nothing() -> None:
    loaded: Any = SimpleNamespace(state={}, path=Path("step_00000004"))
    images: Any = Images(fingerprint="b" * 64)
    assert not check_origin(loaded, tiny(), tiny(train__seed=7), images, False, pytest.fail)
