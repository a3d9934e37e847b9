"""Damaged and hostile bytes: no crash, no hang, and every rejection says why."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from oddities import bomb, photograph

from safelight.config.tree import Data
from safelight.data.decode import EXTENSIONS, DecodedImage, UnreadableImage, decode
from safelight.data.rows import describe

DATA = Data(image_size=8, max_pixels=1_000_000)


KINDS = {"PNG": {}, "JPEG": {"quality": 80}, "WEBP": {}, "BMP": {}, "TIFF": {"compression": "tiff_lzw"}, "GIF": {}}


# The machine may be busy, and a run of the tests that finds what the one before did not is no use to anybody.
unhurried = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def encoded(kind: str, **how: object) -> bytes:
    buffer = io.BytesIO()
    photograph(24, 18).save(buffer, kind, **how)
    return buffer.getvalue()


SEEDS = {kind: encoded(kind, **how) for kind, how in KINDS.items()} | {
    "progressive": encoded("JPEG", progressive=True),
    "deflated": encoded("TIFF", compression="tiff_adobe_deflate"),
    "still": encoded("WEBP", lossless=True),
}


def reasonable(reason: str) -> str:
    assert reason.startswith(("it ", "its ", "decoding it "))
    assert len(reason) > 8
    return reason


def outcome(content: bytes) -> DecodedImage | str:
    try:
        picture = decode(content, DATA)
    except UnreadableImage as error:
        return reasonable(str(error))
    assert picture.pixels.dtype == np.uint8
    assert picture.pixels.shape[:2] == (8, 8)
    assert picture.pixels.shape[2] in (1, 3)
    assert picture.width > 0
    assert picture.height > 0
    describe(picture, len(content))
    return picture


@settings(unhurried, max_examples=400)
@given(
    kind=st.sampled_from(sorted(SEEDS)),
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=12),
    keep=st.floats(0, 1),
    tail=st.binary(max_size=16),
)
def test_mutated_files_give_an_image_or_a_reason(
    kind: str, edits: list[tuple[float, int]], keep: float, tail: bytes
) -> None:
    content = bytearray(SEEDS[kind])
    for place, byte in edits:
        content[int(place * len(content))] = byte
    outcome(bytes(content[: max(1, int(keep * len(content)))]) + tail)


@settings(unhurried, max_examples=200)
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF", b"GIF89a", b"BM", b"II*\0"]),
)
@example(b"", b"")
@example(b"\0" * 300, b"BM")
def test_any_bytes_give_a_reason(content: bytes, start: bytes) -> None:
    outcome(start + content)


@settings(unhurried, max_examples=60)
@given(kind=st.sampled_from(sorted(SEEDS)), keep=st.floats(0, 0.9))
def test_the_check_can_fail(kind: str, keep: float) -> None:
    """The control: whole files are images, and most cut ones are not."""
    assert isinstance(outcome(SEEDS[kind]), DecodedImage)
    if keep < 0.3:
        assert isinstance(outcome(SEEDS[kind][: int(keep * len(SEEDS[kind]))]), str)


@pytest.mark.parametrize(
    ("width", "height"), [(1001, 1000), (30_000, 30_000), (65_535, 65_535), (2**31 - 1, 2**31 - 1)]
)
def test_claims_of_many_pixels_are_refused_before_decoding(width: int, height: int) -> None:
    reason = outcome(bomb(width, height))
    assert isinstance(reason, str)


def test_every_allowed_ending_is_one_that_pillow_knows() -> None:
    from PIL import Image

    known = {
        ending
        for ending, kind in Image.registered_extensions().items()
        if kind in ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF", "DIB")
    }
    assert set(EXTENSIONS) == known
