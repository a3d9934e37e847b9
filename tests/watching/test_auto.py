"""A script that knows nothing of Safelight, under watch."""

from __future__ import annotations

import safelight


def test_a_script_that_does_not_train_is_said_to() -> None:
    with safelight.captured() as found:
        pass
    found.finish()
    assert (found.watch, found.updates, found.diagnosis()) == (None, 0, None)
    assert "No training was seen" in found.recognised()[0]
