"""A decoding process: an image or a reason for each name, in frames, under a limit of memory."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from image_sets import picture

from safelight.config.tree import Data
from safelight.data.rows import ROW
from safelight.data.sources.image_folder import ImageFolder
from safelight.data.worker import BAD, FRAME, IMAGE, READY, answer, send


def test_an_image_is_its_row_and_its_pixels(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", (9, 8, 7))
    kind, body = answer(ImageFolder(tmp_path), "a.png", Data(image_size=4))
    assert kind == IMAGE
    row = np.frombuffer(body, ROW, count=1)[0]
    assert (row["bytes"], row["width"]) == ((tmp_path / "a.png").stat().st_size, 8)
    assert body[ROW.itemsize :] == bytes([9, 8, 7] * 16)


class Exhausted(ImageFolder):
    def read(self, name: str, most: int) -> bytes:
        raise MemoryError


@pytest.mark.parametrize(
    ("source", "name", "retry", "words"),
    [
        (ImageFolder, "empty.png", "never", "it is empty (0 bytes)"),
        (ImageFolder, "missing.png", "any time", "it is not a file"),
        (Exhausted, "empty.png", "larger limits", "reading it takes more memory than data.max_memory allows (2000 MB)"),
    ],
)
def test_a_reason_says_whether_to_try_again(
    tmp_path: Path, source: type[ImageFolder], name: str, retry: str, words: str
) -> None:
    (tmp_path / "empty.png").touch()
    kind, body = answer(source(tmp_path), name, Data())
    assert BAD[kind] == retry
    assert body.decode().startswith(words)


def test_a_frame_is_its_kind_its_length_and_its_body() -> None:
    stream = io.BytesIO()
    send(stream, IMAGE, b"12345")
    assert stream.getvalue() == b"i\5\0\0\0" + b"12345"


def test_the_process_answers_in_order_and_ends_with_its_input(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    data = Data(source=str(tmp_path), image_size=2)
    requests = [asdict(data), ["missing.png", "a.png"], ["a.png"]]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "safelight.data.worker"],
        input="".join(json.dumps(request) + "\n" for request in requests).encode(),
        capture_output=True,
        check=True,
    )
    kinds, output = [], done.stdout
    while output:
        kind, length = FRAME.unpack_from(output)
        kinds.append(kind)
        output = output[FRAME.size + length :]
    assert kinds == [READY, b"a", IMAGE, IMAGE]
