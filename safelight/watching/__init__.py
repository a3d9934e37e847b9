"""The watch on anyone's training loop: it looks through hooks, writes a record, and touches nothing."""

from __future__ import annotations

from safelight.watching.loop import Watch as Watch
from safelight.watching.loop import watch as watch
