"""Memory does not grow with the set: neither while it is scanned nor when it is opened."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

MEASURE = """
import sys, threading, time
from safelight.config.tree import Data
from safelight.data.prepare import open_images

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

data = Data(source=sys.argv[1], image_size=8, cache=sys.argv[2])
open_images(Data(source="shapes:64", image_size=8, cache=sys.argv[2]))  # what is imported once
before, peak = anonymous(), 0
def watch(done, total):
    global peak
    if done % 50 == 0:
        peak = max(peak, anonymous())
images = open_images(data, watch)
assert len(images) == int(sys.argv[3]), len(images)
print(max(peak, anonymous()) - before)
"""


def anonymous_growth(folder: Path, cache: Path, count: int) -> int:
    command = [sys.executable, "-c", MEASURE, str(folder), str(cache), str(count)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux: it reads /proc")
def test_memory_does_not_grow_with_the_set(tmp_path: Path) -> None:
    Image.new("L", (8, 8), 90).save(tmp_path / "one.png")
    growth = {}
    for count in (2000, 6000):
        folder = tmp_path / str(count)
        folder.mkdir()
        for number in range(count):  # long names: a list of them would show
            shutil.copy(tmp_path / "one.png", folder / f"{'a name as long as names are ' * 6}{number:06}.png")
        scanned = anonymous_growth(folder, tmp_path / "cache", count)
        opened = anonymous_growth(folder, tmp_path / "cache", count)
        growth[count] = scanned, opened
    # kB. 4,000 names of 180 characters in a list would be 950.
    assert growth[6000][0] - growth[2000][0] < 600, growth
    assert growth[6000][1] - growth[2000][1] < 200, growth
