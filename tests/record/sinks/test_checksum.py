"""CRC-32C, against the standard and against TensorBoard's own."""

from __future__ import annotations

import io

import numpy as np
import pytest

from safelight.record.sinks.checksum import BLOCK, crc32c, frame


@pytest.mark.parametrize("size", [4, 8, 9, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 100_003])
def test_records_are_framed_as_tensorboard_does(size: int) -> None:
    reason = "needs tensorboard: pip install 'safelight[tensorboard]'"
    record_writer = pytest.importorskip("tensorboard.summary.writer.record_writer", reason=reason)
    for content in (bytes(size), b"\xff" * size, np.random.default_rng(size).bytes(size)):
        theirs = io.BytesIO()
        record_writer.RecordWriter(theirs).write(content)
        assert frame(content) == theirs.getvalue()


def test_checksum_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283
