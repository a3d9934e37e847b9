"""What the tests of training share beside the helpers in tiny.py."""

from __future__ import annotations

import pytest

from safelight.train.checkpoint import Writer


@pytest.fixture
def every_save(monkeypatch: pytest.MonkeyPatch) -> None:
    """No save is skipped because the one before it is still on its way to a slow disk."""
    monkeypatch.setattr(Writer, "busy", property(lambda self: bool(self.wait())))
