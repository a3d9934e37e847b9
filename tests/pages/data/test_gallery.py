"""Pictures are shown only if they are plain files inside the run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from folders import draw_picture, make_run

from safelight.pages.data.gallery import current_path, find_pictures, pictures
from safelight.pages.data.overview import open_run_history
from safelight.record.store import RecordWriter
from safelight.run import RunFolder


def test_pictures_are_shown_only_from_inside_the_run(tmp_path: Path) -> None:
    run, outside = make_run(tmp_path / "run", pictures=False), draw_picture(tmp_path, "secret.png")
    draw_picture(run, "samples/good.png")
    (run / "samples" / "link.png").symlink_to(outside)
    (run / "samples" / "dir").symlink_to(tmp_path)
    (run / "samples" / "folder.png").mkdir()
    os.mkfifo(run / "samples" / "pipe.png")
    (run / "samples" / "text.txt").write_text("words")
    (run / "samples" / "loop.png").symlink_to("loop.png")
    record = RecordWriter(run / "record.sqlite", from_step=200, say=print)
    names = ["samples/good.png", "../secret.png", str(outside), "samples/link.png", "samples/dir/secret.png",
             "samples/folder.png", "samples/pipe.png", "samples/text.txt", "samples/loop.png", "samples/none.png",
             "samples/../../secret.png", "/etc/passwd", "run.json", "", ".", "a\0b.png",
             "x" * 5000 + ".png"]  # fmt: skip
    for step, name in enumerate(names):
        record._note("picture VALUES (?, ?, ?, ?, ?)", "samples", step, name, 8, 8)
    record.close()
    with open_run_history(RunFolder(run)) as history:
        shown = pictures(history, RunFolder(run), "x")
        assert [each["step"] for each in shown] == [0]
        found = find_pictures(history, RunFolder(run))
        good = found[shown[0]["id"]]
        assert list(found) == [each["id"] for each in shown]
        assert good.path == (run / "samples" / "good.png").resolve()
        assert current_path(RunFolder(run), good) == good.path
        assert current_path(RunFolder(run), replace(good, id="0" * 16)) is None
        good.path.write_bytes(good.path.read_bytes() + b"another")
        assert current_path(RunFolder(run), good) is None
