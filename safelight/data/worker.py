"""A process that decodes files for another one, so that a hostile picture can only harm this one.

It is sent one line of JSON with the settings, then a line with a list of names for each task; it answers every name
with a frame: one byte of kind, four of length, and the row and pixels of the image, or the reason against it. Its first
frame says that it is ready.
"""

from __future__ import annotations

import json
import signal
import struct
import sys
from typing import BinaryIO, cast

from safelight.config.tree import Data
from safelight.data.decode import Retry, UnreadableImage, decode
from safelight.data.rows import describe
from safelight.data.sources import Files, open_source

FRAME = struct.Struct("<cI")
READY, IMAGE = b"r", b"i"
BAD: dict[bytes, Retry] = {b"n": "never", b"a": "any time", b"l": "larger limits"}


def main() -> None:
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes our input
    data = Data(**json.loads(requests.readline()))
    source = cast(Files, open_source(data))
    limit_memory(data.max_memory)
    send(answers, READY, b"")
    for line in requests:
        for name in json.loads(line):
            send(answers, *answer(source, name, data))


def answer(source: Files, name: str, data: Data) -> tuple[bytes, bytes]:
    try:
        content = source.read(name, int(data.max_megabytes * 1e6))
        picture = decode(content, data)
        return IMAGE, describe(picture, len(content)).tobytes() + picture.pixels.tobytes()
    except UnreadableImage as reason:
        kind = next(kind for kind, retry in BAD.items() if retry == reason.retry)
        return kind, str(reason).encode("utf-8", "backslashreplace")
    except MemoryError:
        return b"l", f"reading it takes more memory than data.max_memory allows ({data.max_memory:g} MB)".encode()


def limit_memory(megabytes: float) -> None:
    """On top of what this process has taken so far."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
        most = taken + int(megabytes * 1e6)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    except (ImportError, OSError, ValueError):
        return  # no such limit on this system; that of pixels still holds


def send(stream: BinaryIO, kind: bytes, body: bytes) -> None:
    stream.write(FRAME.pack(kind, len(body)) + body)
    stream.flush()


if __name__ == "__main__":
    main()
